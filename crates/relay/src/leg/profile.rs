// SPDX-License-Identifier: MIT OR Apache-2.0
//! Application of profiles to sockets.

use crate::config::{
    location::{Part, Table},
    profile::{Profile, Profiles},
};
use anyhow::Context as _;
use longhaul_command::exit::Refusal;
use longhaul_congestion::sockets::initial_window;
use longhaul_linux::socket::{self, Options};
use std::{error::Error as _, io, net::SocketAddr, os::fd::AsFd};

/// Checks that this system supports the profiles, on sockets that are discarded.
pub(crate) fn check_support(profiles: &Profiles) -> anyhow::Result<()> {
    profiles.iter().try_for_each(|(name, profile)| {
        let table = Table::Profile(name.clone());
        check_profile_support(profile).context(table)
    })
}

fn check_profile_support(profile: &Profile) -> anyhow::Result<()> {
    let needs_bpf = [
        ("initial_window", profile.initial_window.is_some()),
        ("ecn", profile.ecn),
    ];
    if let Some((key, _)) = needs_bpf.into_iter().find(|(_, is_set)| *is_set) {
        initial_window::attach().map_err(|error| bpf_error(profile, key, &error))?;
    }
    let discard = SocketAddr::from(([127, 0, 0, 1], 9));
    // Interception, which needs the mark, checks it itself.
    let options = Options {
        mark: None,
        ..profile.options.clone()
    };
    match socket::outgoing(discard, None, &options) {
        Ok(_) => Ok(()),
        Err(error) => socket_error(profile, &error),
    }
}

/// Sets the initial window of a socket, before connect(2) or for the connections that a listener
/// accepts, and lets its SYN offer ECN.
pub(crate) fn set_initial_window(profile: &Profile, socket: &impl AsFd) -> io::Result<()> {
    match (profile.initial_window, profile.ecn) {
        (None, false) => Ok(()),
        (segments, ecn) => initial_window::set_start(socket, segments, ecn),
    }
}

fn bpf_error(profile: &Profile, key: &'static str, error: &initial_window::Error) -> anyhow::Error {
    let cause = error
        .source()
        .map_or(String::new(), |cause| format!(" ({cause})"));
    let name = &profile.name;
    let refused = |subject: &str| Refusal::unsupported(format!("{subject}: {error}{cause}"));
    match profile.flags.initial_window {
        Some(flag) if key == "initial_window" => refused(flag),
        _ => refused(&format!("profile {name}: {key}")).context(Part::Key(key)),
    }
}

fn socket_error(profile: &Profile, error: &io::Error) -> anyhow::Result<()> {
    let cc = profile.options.congestion_control.as_deref().unwrap_or("");
    let subject = match profile.flags.congestion_control {
        Some(flag) => format!("{flag} "),
        None => format!("profile {}: ", profile.name),
    };
    let refusal = match error.kind() {
        io::ErrorKind::NotFound => {
            let available = socket::congestion_controls()?.join(", ");
            Refusal::usage(format!("{subject}{}", unavailable_message(cc, &available)))
        }
        io::ErrorKind::PermissionDenied => Refusal::unsupported(format!(
            "{subject}{cc}: needs CAP_NET_ADMIN, or {cc} in \
             net.ipv4.tcp_allowed_congestion_control"
        )),
        kind => return Err(io::Error::from(kind).into()),
    };
    Err(match profile.flags.congestion_control {
        Some(_) => refusal,
        None => refusal.context(Part::Key("congestion_control")),
    })
}

/// Message about a congestion control that is not among `available`, with the command that loads it
/// if it is longhaul's.
fn unavailable_message(cc: &str, available: &str) -> String {
    let unknown = format!("{cc}: no such congestion control here");
    let Some(algorithm) = longhaul_congestion::math::algorithm(cc) else {
        return format!("{unknown}; there are: {available}");
    };
    let (name, load) = (
        algorithm.system_name(),
        format!("longhaul cc load {}", algorithm.name()),
    );
    if name == cc {
        format!("{cc} is not loaded: {load}")
    } else {
        format!("{unknown}; longhaul's own is {name} ({load}); there are: {available}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn check_support_of(profile: &str) -> Result<(), String> {
        let listener = "[[listener]]\nkind = 'socks5'\naddress = '127.0.0.1:0'\n";
        let settings = toml::from_str(&format!("{listener}[profile.long]\n{profile}")).unwrap();
        let config = Config::new(&settings).unwrap();
        check_support(&config.profiles).map_err(|error| format!("{:#}", error.root_cause()))
    }

    #[test]
    fn checks_unused_profiles() {
        assert_eq!(check_support_of("mss = 1000"), Ok(()));
        let problem = check_support_of("congestion_control = 'no-such'").unwrap_err();
        let begin = "profile long: no-such: no such congestion control here; there are: ";
        assert!(problem.starts_with(begin), "{problem}");
    }

    #[test]
    fn names_the_command_that_loads_a_congestion_control() {
        assert_eq!(
            unavailable_message("lh_bic_linux", "reno"),
            "lh_bic_linux is not loaded: longhaul cc load bic_linux"
        );
        let message = unavailable_message("fast", "reno, cubic");
        assert!(
            message.contains("lh_fast (longhaul cc load fast); there are: reno, cubic"),
            "{message}"
        );
        assert!(!unavailable_message("lh_no_such", "reno").contains("cc load"));
    }
}
