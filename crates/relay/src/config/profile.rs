// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles: transport settings of legs.

use crate::config::{
    location::{Table, in_table, refused},
    settings::{ListenerSettings, Mode, ProfileFlags, ProfileSettings, Settings, Transport},
};
use longhaul_congestion::sockets::initial_window;
use longhaul_linux::{netfilter::marks::OWN_MARK, socket::Options};
use longhaul_transport::port::UdtCongestionControl;
use longhaul_units::{Bytes, Time};
use std::{collections::BTreeMap, fmt::Display, sync::Arc, time::Duration};

/// Default profile of legs towards clients.
pub(crate) const DOWNSTREAM: &str = "downstream";
/// Default profile of legs towards destinations and peers.
pub(crate) const UPSTREAM: &str = "upstream";

/// Transport settings of a leg. The default leaves all to the system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) name: String,
    pub(crate) options: Options,
    /// Segments sent before the first acknowledgement.
    pub(crate) initial_window: Option<u32>,
    /// SYNs offer ECN, whatever the system's setting.
    pub(crate) ecn: bool,
    /// Mode of moving bytes to and from this leg; `None` is the relay's default.
    pub(crate) mode: Option<Mode>,
    /// Rate control of legs over UDT.
    pub(crate) udt_control: Option<UdtCongestionControl>,
    /// Flags that gave values, for errors.
    pub(crate) flags: ProfileFlags,
}

impl Profile {
    /// Checks the settings. `leg::profile` checks that this system supports them.
    pub(crate) fn new(name: &str, settings: &ProfileSettings) -> anyhow::Result<Self> {
        check_ranges(settings)?;
        Ok(Self {
            name: name.to_owned(),
            options: options(settings),
            initial_window: settings.initial_window,
            ecn: settings.ecn,
            mode: settings.mode,
            udt_control: settings.udt_control,
            flags: settings.flags,
        })
    }
}

fn options(settings: &ProfileSettings) -> Options {
    let bytes = |size: Option<Bytes>| size.map(|size| size.get() as usize);
    Options {
        congestion_control: settings.congestion_control.clone(),
        pacing_rate: settings.pacing_rate.map(|rate| rate.bits() / 8),
        notsent_lowat: settings.notsent_lowat.map(|size| size.get() as u32),
        keepalive: keepalive(settings.keepalive),
        user_timeout: settings.user_timeout.map(Duration::from),
        mss: settings.mss,
        dscp: settings.dscp,
        send_buffer: bytes(settings.send_buffer),
        receive_buffer: bytes(settings.receive_buffer),
        // Data that was cut short never ends cleanly for a client, even if this process is killed.
        reset_on_close: true,
        ..Options::default()
    }
}

/// Default idle time before a keepalive probe. One segment and its ACK a minute keep the state of
/// most firewalls alive; a dead neighbour is detected after two minutes.
pub(crate) const KEEPALIVE_DEFAULT: Duration = Duration::from_secs(60);

fn keepalive(value: Option<Time>) -> Option<Duration> {
    match value {
        None => Some(KEEPALIVE_DEFAULT),
        Some(Time::ZERO) => None,
        Some(time) => Some(time.into()),
    }
}

/// Checks ranges, including those that the kernel would clamp silently.
fn check_ranges(settings: &ProfileSettings) -> anyhow::Result<()> {
    if settings.congestion_control.as_deref() == Some("") {
        let problem = "congestion_control: expected a name, such as bbr";
        return Err(refused("congestion_control", problem));
    }
    let seconds = |time: Option<Time>| time.map(|time| (time, Duration::from(time).as_secs()));
    let number = |value: Option<u32>| value.map(|value| (value, u64::from(value)));
    within(
        "keepalive",
        seconds(settings.keepalive.filter(|time| *time != Time::ZERO)),
        1..=32400,
        "1s to 9h, or 0s for never",
    )?;
    within(
        "user_timeout",
        seconds(settings.user_timeout),
        1..=86400,
        "1s to 24h",
    )?;
    within("mss", number(settings.mss), 88..=32767, "88 to 32767 bytes")?;
    within(
        "dscp",
        number(settings.dscp.map(u32::from)),
        0..=63,
        "0 to 63",
    )?;
    let (least, most) = (initial_window::RANGE.start(), initial_window::RANGE.end());
    within(
        "initial_window",
        number(settings.initial_window),
        u64::from(*least)..=u64::from(*most),
        &format!("{least} to {most} segments"),
    )?;
    let rate = settings.pacing_rate.map(|rate| (rate, rate.bits()));
    within("pacing_rate", rate, 8000..=u64::MAX, "8kbit or more")?;
    for (key, size) in [
        ("notsent_lowat", settings.notsent_lowat),
        ("send_buffer", settings.send_buffer),
        ("receive_buffer", settings.receive_buffer),
    ] {
        let size = size.map(|size| (size.exact(), size.get()));
        within(key, size, 4096..=1 << 30, "4KiB to 1GiB")?;
    }
    Ok(())
}

/// Checks a value, given as the user writes it and as a number.
fn within(
    key: &'static str,
    value: Option<(impl Display, u64)>,
    range: std::ops::RangeInclusive<u64>,
    expected: &str,
) -> anyhow::Result<()> {
    match value {
        Some((written, number)) if !range.contains(&number) => Err(refused(
            key,
            format!("{key} {written}: expected {expected}"),
        )),
        _ => Ok(()),
    }
}

pub(crate) type Profiles = BTreeMap<String, Arc<Profile>>;

pub(crate) fn profiles(settings: &Settings) -> anyhow::Result<Profiles> {
    let mut profile_settings = settings.profile.clone();
    for always in [DOWNSTREAM, UPSTREAM] {
        profile_settings.entry(always.to_owned()).or_default();
    }
    // The mark keeps the relay's own packets from being intercepted, and distinguishes them from a
    // downstream leg with the same addresses.
    let intercepts = |l: &ListenerSettings| !l.intercept.is_empty();
    let needs_mark = |l: &ListenerSettings| l.intercept_local || intercepts(l) && l.keep_source;
    let marked = settings.listener.iter().any(needs_mark);
    let checked = |(name, profile_settings): (&String, _)| {
        let profile = Profile::new(name, profile_settings);
        let mut profile = in_table(profile, Table::Profile(name.clone()))?;
        profile.options.mark = marked.then_some(OWN_MARK);
        Ok((name.clone(), profile.into()))
    };
    profile_settings.iter().map(checked).collect()
}

pub(crate) fn profile_named(name: &str, profiles: &Profiles) -> anyhow::Result<Arc<Profile>> {
    let profile = profiles.get(name).cloned();
    profile.ok_or_else(|| {
        let all: Vec<_> = profiles.keys().map(String::as_str).collect();
        let all = all.join(", ");
        let problem = format!("no profile is called {name}; there are: {all}");
        refused("profile", problem)
    })
}

/// Checks a profile for its transport. UDT has no encryption and no half-close, so it requires TLS,
/// and it has its own options.
pub(crate) fn check_transport(
    transport: Transport,
    has_tls: bool,
    profile: &Profile,
) -> anyhow::Result<()> {
    if transport == Transport::Tcp {
        return Ok(());
    }
    let name = &profile.name;
    let (key, problem) = match option_without_udt(profile) {
        Some(option) => {
            let problem = format!("profile {name}: {option} is for TCP: give this leg another");
            ("profile", problem)
        }
        None if !has_tls => ("transport", "transport = \"udt\" needs tls".to_owned()),
        None => return Ok(()),
    };
    Err(refused(key, problem))
}

/// First option of a profile that UDT does not have.
fn option_without_udt(profile: &Profile) -> Option<&'static str> {
    let options = &profile.options;
    let set_options = [
        ("congestion_control", options.congestion_control.is_some()),
        ("pacing_rate", options.pacing_rate.is_some()),
        ("notsent_lowat", options.notsent_lowat.is_some()),
        ("keepalive", has_custom_keepalive(options.keepalive)),
        ("dscp", options.dscp.is_some()),
        ("initial_window", profile.initial_window.is_some()),
        ("ecn", profile.ecn),
    ];
    let option = set_options.into_iter().find(|(_, is_set)| *is_set);
    option.map(|(name, _)| name)
}

/// Whether a keepalive is configured: the default is for TCP, and UDT has its own keepalives.
fn has_custom_keepalive(keepalive: Option<Duration>) -> bool {
    keepalive.is_some_and(|time| time != KEEPALIVE_DEFAULT)
}
