// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listener configuration, checked.

use crate::config::{
    certificates::identity::Responder,
    limits::{IDLE_TIMEOUT_DEFAULT, check_positive},
    location::{Part, refused},
    profile::{DOWNSTREAM, Profile, Profiles, check_transport, profile_named},
    settings::{KindName, ListenerSettings, SendProxy, Settings, Transport},
    users::Users,
};
use anyhow::Context as _;
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
        check_keys(listener_settings)?;
        let kind = kind(listener_settings)?;
        let profile = listener_settings.profile.as_deref().unwrap_or(DOWNSTREAM);
        let profile = profile_named(profile, profiles)?;
        let responder = |tls| Responder::new(tls).map(Arc::new);
        let tls = listener_settings.tls.as_ref().map(responder).transpose()?;
        check_transport(listener_settings.transport, tls.is_some(), &profile)?;
        let users = listener_settings
            .users
            .as_deref()
            .map(Users::read)
            .transpose()
            .context(Part::value("users"))?;
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
            intercept: intercept_config(listener_settings)?,
            idle_timeout: check_positive(
                "idle_timeout",
                listener_settings
                    .idle_timeout
                    .unwrap_or(IDLE_TIMEOUT_DEFAULT),
            )?,
            tls,
            name: listener_settings.name(),
            kind,
            address: listener_settings.address,
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
            Some(other) => {
                let problem = format!(
                    "listener {}: intercept: listener {} has this port, and only the rules of one would apply: \
                     give them different ports",
                    self.name, other.name
                );
                Err(refused("intercept", problem))
            }
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

/// Refuses the first of these keys that is set.
fn refuse_first(keys: &[(&'static str, bool)], problem: &str) -> anyhow::Result<()> {
    match keys.iter().find(|(_, is_set)| *is_set) {
        Some((key, _)) => Err(refused(*key, problem)),
        None => Ok(()),
    }
}

fn intercept_config(settings: &ListenerSettings) -> anyhow::Result<Option<InterceptConfig>> {
    if settings.intercept.is_empty() {
        let keys = [
            ("bypass", !settings.bypass.is_empty()),
            ("intercept_local", settings.intercept_local),
            ("verify_connect", settings.verify_connect),
        ];
        let problem = "bypass, intercept_local and verify_connect need intercept";
        return refuse_first(&keys, problem).map(|()| None);
    }
    if settings.kind != KindName::Transparent {
        let problem = "intercept is for transparent listeners";
        return Err(refused("intercept", problem));
    }
    if settings.verify_connect && settings.accept_proxy {
        let problem = "verify_connect and accept_proxy exclude each other: a SYN that is held has \
                       no PROXY header yet";
        return Err(refused("verify_connect", problem));
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
        let foreign = |(n, target)| Some((n, foreign(target)?));
        if let Some((n, foreign)) = targets.iter().enumerate().find_map(foreign) {
            let problem = format!("{key} {foreign} is not of the family of {address}");
            return Err(refused(Part::value(format!("{key}.{n}")), problem));
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

fn kind(settings: &ListenerSettings) -> anyhow::Result<Kind> {
    use KindName as N;
    let key_is_for = |key, kind| Err(refused(key, format!("{key} is for {kind} listeners")));
    match (settings.kind, &settings.destination, settings.keep_source) {
        (N::Forward, Some(to), false) => Ok(Kind::Forward(to.clone())),
        (N::Forward, None, _) => Err(refused(Part::value("kind"), "forward needs a destination")),
        (_, Some(_), _) => key_is_for("destination", "forward"),
        (N::Transparent, None, keep_source) => Ok(Kind::Transparent { keep_source }),
        (_, _, true) => key_is_for("keep_source", "transparent"),
        (N::Socks5, None, false) => Ok(Kind::Socks5),
        (N::Http, None, false) => Ok(Kind::Http),
        (N::Convert, None, false) => Ok(Kind::Convert),
    }
}

/// Refuses keys that the listener's kind does not have.
fn check_keys(settings: &ListenerSettings) -> anyhow::Result<()> {
    use KindName as N;
    let kind = settings.kind;
    if settings.direct_fallback.is_some() && kind != N::Transparent {
        let problem = "direct_fallback is for transparent listeners: for others, give the route fallback = [[]]";
        return Err(refused("direct_fallback", problem));
    }
    if settings.users.is_some() && !matches!(kind, N::Socks5 | N::Http) {
        return Err(refused("users", "users is for socks5 and http listeners"));
    }
    if kind == N::Convert {
        return Ok(());
    }
    let for_relays = [
        ("tls", settings.tls.is_some()),
        ("transport", settings.transport != Transport::Tcp),
        ("idle_timeout", settings.idle_timeout.is_some()),
    ];
    let problem = "tls, transport and idle_timeout are for convert listeners";
    refuse_first(&for_relays, problem)
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
