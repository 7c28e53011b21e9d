// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listener configuration, checked.

use crate::config::{
    certificates::identity::Responder,
    limits::{IDLE_TIMEOUT_DEFAULT, check_positive},
    profile::{DOWNSTREAM, Profile, Profiles, check_transport, profile_named},
    settings::{KindName, ListenerSettings, SendProxy, Settings, Transport},
    users::Users,
};
use longhaul_command::exit::Refusal;
use longhaul_interception::target::{InterceptConfig, Target};
use longhaul_linux::netfilter::Family;
use longhaul_protocol::destination::Destination;
use longhaul_protocol::networks::Prefix;
use longhaul_units::BitRate;
use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

/// Checked configuration of a listener.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ListenerConfig {
    /// Name in rules, records and metrics.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    /// Transparent listeners: connections that the relay diverts to this listener.
    pub(crate) intercept: Option<InterceptConfig>,
    /// Clients are connected directly to their destinations while all peers of a route are down.
    pub(crate) direct_fallback: bool,
    /// Clients that are served besides those on loopback.
    pub(crate) allow_from: Vec<Prefix>,
    /// Clients that are refused.
    pub(crate) deny_from: Vec<Prefix>,
    /// Users, one of which a client must be.
    pub(crate) users: Option<Arc<Users>>,
    /// Connections begin with a PROXY protocol header.
    pub(crate) accept_proxy: bool,
    /// PROXY protocol header that begins connections to destinations.
    pub(crate) send_proxy: Option<SendProxy>,
    /// Profile of the legs towards clients.
    pub(crate) profile: Arc<Profile>,
    /// Rate limit of all connections together, for each direction.
    pub(crate) rate: Option<BitRate>,
    /// Rate limit of the connections of one client address, for each direction.
    pub(crate) rate_per_client: Option<BitRate>,
    /// Convert: time for which a relay may keep a connection open before its request.
    pub(crate) idle_timeout: Duration,
    /// Convert: TLS that relays must use.
    pub(crate) tls: Option<Arc<Responder>>,
    /// Convert: transport that relays must use.
    pub(crate) transport: Transport,
}

/// Protocol by which a listener learns the client's destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// SOCKS5.
    Socks5,
    /// HTTP CONNECT and http:// requests.
    Http,
    /// No protocol: the destination is fixed.
    Forward(Destination),
    /// No protocol: TPROXY diverted the client, and the destination is the accepted socket's local
    /// address.
    Transparent {
        /// The upstream leg takes the client's address.
        keep_source: bool,
    },
    /// TCP Convert, spoken by other relays.
    Convert,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Socks5 => "socks5",
            Self::Http => "http",
            Self::Forward(_) => "forward",
            Self::Transparent { .. } => "transparent",
            Self::Convert => "convert",
        })
    }
}

impl ListenerConfig {
    pub(crate) fn new(
        listener_settings: &ListenerSettings,
        settings: &Settings,
        profiles: &Profiles,
    ) -> anyhow::Result<Self> {
        let address = listener_settings.address;
        let name = listener_settings
            .name
            .clone()
            .unwrap_or_else(|| address.to_string());
        let owner = format!("listener {name}");
        let refused = |problem: &str| Refusal::usage(format!("{owner}: {problem}"));
        check_keys(listener_settings).map_err(refused)?;
        let kind = kind(listener_settings).map_err(refused)?;
        let profile = listener_settings.profile.as_deref().unwrap_or(DOWNSTREAM);
        let profile = profile_named(profile, profiles, &owner)?;
        let responder = |tls| Responder::new(tls, &owner).map(Arc::new);
        let tls = listener_settings.tls.as_ref().map(responder).transpose()?;
        check_transport(listener_settings.transport, tls.is_some(), &profile, &owner)?;
        let users = listener_settings
            .users
            .as_deref()
            .map(Users::read)
            .transpose()?;
        Ok(Self {
            transport: listener_settings.transport,
            profile,
            // Clients of a transparent listener do not know of the relay: a dead peer must not cut
            // them off.
            direct_fallback: listener_settings
                .direct_fallback
                .unwrap_or(listener_settings.kind == KindName::Transparent),
            allow_from: [&settings.allow_from[..], &listener_settings.allow_from].concat(),
            deny_from: listener_settings.deny_from.clone(),
            users: users.map(Arc::new),
            accept_proxy: listener_settings.accept_proxy,
            send_proxy: listener_settings.send_proxy,
            rate: listener_settings.rate,
            rate_per_client: listener_settings.rate_per_client,
            intercept: intercept_config(listener_settings).map_err(|problem| refused(&problem))?,
            idle_timeout: check_positive(
                "idle_timeout",
                listener_settings
                    .idle_timeout
                    .unwrap_or(IDLE_TIMEOUT_DEFAULT),
            )?,
            tls,
            name,
            kind,
            address,
        })
    }

    /// Checks that the listener may use `address`, which the service manager passed.
    pub(crate) fn check_address(&self, address: SocketAddr) -> anyhow::Result<()> {
        if self.intercept.is_some() && address.is_ipv4() != self.address.is_ipv4() {
            let (name, own) = (&self.name, self.address);
            return Err(Refusal::usage(format!(
                "listener {name}: the socket that was passed, {address}, is not of the family of {own}"
            )));
        }
        let placed = Self {
            address,
            ..self.clone()
        };
        placed.check_exposure()
    }

    /// Refuses two intercepting listeners with one port: the port is part of the nft table's name
    /// and of the mark, so the rules of the second would replace those of the first.
    pub(crate) fn check_intercept_port(&self, before: &[Self]) -> anyhow::Result<()> {
        let port_and_family = |listener: &Self| {
            let (port, is_ipv4) = (listener.address.port(), listener.address.is_ipv4());
            let intercepts = listener.intercept.is_some() && port != 0;
            intercepts.then_some((port, is_ipv4))
        };
        let own = port_and_family(self);
        match before
            .iter()
            .find(|other| own.is_some() && port_and_family(other) == own)
        {
            None => Ok(()),
            Some(other) => Err(Refusal::usage(format!(
                "listener {}: intercept: listener {} has this port, and only the rules of one would apply: \
                 give them different ports",
                self.name, other.name
            ))),
        }
    }

    /// Refuses a listener off loopback that does not name its clients. A transparent listener is
    /// exempt: clients reach it through the administrator's rules, and direct connections to it are
    /// refused.
    pub(crate) fn check_exposure(&self) -> anyhow::Result<()> {
        let Self { kind, address, .. } = self;
        let closed = address.ip().is_loopback() || !self.allow_from.is_empty();
        if closed || matches!(kind, Kind::Transparent { .. }) {
            return Ok(());
        }
        let problem = format!(
            "{kind} {address} is not on loopback: name the clients that it serves with \
             --allow-from CIDR (allow_from in a file)"
        );
        Err(Refusal::option(kind.to_string(), problem))
    }
}

fn intercept_config(settings: &ListenerSettings) -> Result<Option<InterceptConfig>, String> {
    if settings.intercept.is_empty() {
        let any =
            settings.intercept_local || settings.verify_connect || !settings.bypass.is_empty();
        return if any {
            Err("bypass, intercept_local and verify_connect need intercept".to_owned())
        } else {
            Ok(None)
        };
    }
    if settings.kind != KindName::Transparent {
        return Err("intercept is for transparent listeners".into());
    }
    if settings.verify_connect && settings.accept_proxy {
        return Err(
            "verify_connect and accept_proxy exclude each other: a SYN that is held has \
                    no PROXY header yet"
                .into(),
        );
    }
    let address = settings.address;
    let other_family = match Family::of(address.ip()) {
        Family::Ip => Family::Ip6,
        Family::Ip6 => Family::Ip,
    };
    let foreign = |target: &Target| target.of_family(other_family);
    for (key, targets) in [
        ("intercept", &settings.intercept),
        ("bypass", &settings.bypass),
    ] {
        if let Some(foreign) = targets.iter().find_map(foreign) {
            return Err(format!("{key} {foreign} is not of the family of {address}"));
        }
    }
    Ok(Some(InterceptConfig {
        targets: settings.intercept.clone(),
        bypass: settings.bypass.clone(),
        keeps_source: settings.keep_source,
        local: settings.intercept_local,
        verify: settings.verify_connect,
    }))
}

fn kind(settings: &ListenerSettings) -> Result<Kind, &'static str> {
    use KindName as N;
    match (settings.kind, &settings.destination, settings.keep_source) {
        (N::Forward, Some(to), false) => Ok(Kind::Forward(to.clone())),
        (N::Forward, None, _) => Err("forward needs a destination"),
        (_, Some(_), _) => Err("destination is for forward listeners"),
        (N::Transparent, None, keep_source) => Ok(Kind::Transparent { keep_source }),
        (_, _, true) => Err("keep_source is for transparent listeners"),
        (N::Socks5, None, false) => Ok(Kind::Socks5),
        (N::Http, None, false) => Ok(Kind::Http),
        (N::Convert, None, false) => Ok(Kind::Convert),
    }
}

/// Refuses keys that the listener's kind does not have.
fn check_keys(settings: &ListenerSettings) -> Result<(), &'static str> {
    use KindName as N;
    let kind = settings.kind;
    let over_udt = settings.transport != Transport::Tcp;
    let for_relays = settings.tls.is_some() || settings.idle_timeout.is_some() || over_udt;
    if settings.direct_fallback.is_some() && kind != N::Transparent {
        Err(
            "direct_fallback is for transparent listeners: for others, give the route fallback = [[]]",
        )
    } else if settings.users.is_some() && !matches!(kind, N::Socks5 | N::Http) {
        Err("users is for socks5 and http listeners")
    } else if for_relays && kind != N::Convert {
        Err("tls, transport and idle_timeout are for convert listeners")
    } else {
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::Config;

    /// Configuration of a SOCKS5 listener with further settings.
    pub(crate) fn listener(address: &str, more: &str) -> ListenerConfig {
        all(&format!("kind = 'socks5'\naddress = '{address}'\n{more}")).remove(0)
    }

    /// Configurations of all listeners in `text`.
    pub(crate) fn all(text: &str) -> Vec<ListenerConfig> {
        let text = format!("[[listener]]\n{text}\n[profile.slow]\npacing_rate = '1mbit'");
        let settings = toml::from_str(&text).unwrap();
        Config::new(&settings).unwrap().listeners
    }
}
