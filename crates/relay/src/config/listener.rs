// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways in, checked.

use crate::config::{
    certificates::identity::Responder,
    limits::{IDLE_TIMEOUT_DEFAULT, positive},
    profile::{Profile, Profiles, check_transport, profile_named},
    settings::{KindName, ListenerSettings, SendProxy, Settings, Transport},
    users::Users,
};
use longhaul_command::exit::Refusal;
use longhaul_interception::target::{Intercept, Target};
use longhaul_protocol::destination::Destination;
use longhaul_protocol::networks::Prefix;
use longhaul_units::BitRate;
use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

/// One way in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Listener {
    /// In rules, records and metrics.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    /// Transparent listeners: what the relay itself diverts to it.
    pub(crate) intercept: Option<Intercept>,
    /// While all peers of a route are down, its clients go straight to their destinations.
    pub(crate) direct_fallback: bool,
    /// Who may use it, if it is not on loopback.
    pub(crate) allow_from: Vec<Prefix>,
    /// Who may not, wherever it is.
    pub(crate) deny_from: Vec<Prefix>,
    /// Its clients must be one of these.
    pub(crate) users: Option<Arc<Users>>,
    /// Its connections begin with a PROXY protocol header.
    pub(crate) accept_proxy: bool,
    /// Connections to destinations begin with such a header.
    pub(crate) send_proxy: Option<SendProxy>,
    /// Of the legs towards its clients.
    pub(crate) profile: Arc<Profile>,
    /// For each direction of all connections together.
    pub(crate) rate: Option<BitRate>,
    /// For each direction of one client address's connections.
    pub(crate) rate_per_client: Option<BitRate>,
    /// Convert: how long a relay may take before it asks for something.
    pub(crate) idle_timeout: Duration,
    /// Convert: what relays must protect their legs by.
    pub(crate) tls: Option<Arc<Responder>>,
    /// Convert: what relays come over.
    pub(crate) transport: Transport,
}

/// How clients of a listener say where they want to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// SOCKS5.
    Socks5,
    /// HTTP CONNECT and http:// requests.
    Http,
    /// They do not: it is always here.
    Forward(Destination),
    /// They do not: TPROXY diverted them, and their destination is the accepted socket's address.
    Transparent {
        /// The outgoing leg takes the client's address.
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

impl Listener {
    pub(crate) fn new(
        written: &ListenerSettings,
        settings: &Settings,
        profiles: &Profiles,
    ) -> anyhow::Result<Self> {
        let address = written.address;
        let name = written.name.clone().unwrap_or_else(|| address.to_string());
        let user = format!("listener {name}");
        let refused = |problem: &str| Refusal::usage(format!("{user}: {problem}"));
        check_keys(written).map_err(refused)?;
        let kind = kind(written).map_err(refused)?;
        let profile = written.profile.as_deref().unwrap_or("near");
        let profile = profile_named(profile, profiles, &user)?;
        let responder = |tls| Responder::new(tls, &user).map(Arc::new);
        let tls = written.tls.as_ref().map(responder).transpose()?;
        check_transport(written.transport, tls.is_some(), &profile, &user)?;
        let users = written.users.as_deref().map(Users::read).transpose()?;
        Ok(Self {
            transport: written.transport,
            profile,
            // Clients of a transparent listener know nothing of the relay: a dead one must not cut them off.
            direct_fallback: written
                .direct_fallback
                .unwrap_or(written.kind == KindName::Transparent),
            allow_from: [&settings.allow_from[..], &written.allow_from].concat(),
            deny_from: written.deny_from.clone(),
            users: users.map(Arc::new),
            accept_proxy: written.accept_proxy,
            send_proxy: written.send_proxy,
            rate: written.rate,
            rate_per_client: written.rate_per_client,
            intercept: intercept(written).map_err(|problem| refused(&problem))?,
            idle_timeout: positive(
                "idle_timeout",
                written.idle_timeout.unwrap_or(IDLE_TIMEOUT_DEFAULT),
            )?,
            tls,
            name,
            kind,
            address,
        })
    }

    /// Whether it may stand at `address`, which the service manager gave it.
    pub(crate) fn check_place(&self, address: SocketAddr) -> anyhow::Result<()> {
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

    /// The port is in the name of the nft table and in the mark: the rules of a second listener would take the
    /// place of the first one's.
    pub(crate) fn check_rules(&self, before: &[Self]) -> anyhow::Result<()> {
        let place = |listener: &Self| {
            let (port, is_ipv4) = (listener.address.port(), listener.address.is_ipv4());
            let intercepts = listener.intercept.is_some() && port != 0;
            intercepts.then_some((port, is_ipv4))
        };
        let own = place(self);
        match before
            .iter()
            .find(|other| own.is_some() && place(other) == own)
        {
            None => Ok(()),
            Some(other) => Err(Refusal::usage(format!(
                "listener {}: intercept: listener {} has this port, and the rules of only one would hold: \
                 give them different ports",
                self.name, other.name
            ))),
        }
    }

    /// Nothing listens off loopback for strangers. TPROXY's listener is reached through rules that
    /// the administrator made; one who connects straight to it is turned away.
    pub(crate) fn check_exposure(&self) -> anyhow::Result<()> {
        let Self { kind, address, .. } = self;
        let closed = address.ip().is_loopback() || !self.allow_from.is_empty();
        if closed || matches!(kind, Kind::Transparent { .. }) {
            return Ok(());
        }
        Err(Refusal::usage(format!(
            "{kind} {address} is not on loopback: name the clients that it serves with \
             --allow-from CIDR (allow_from in a file)"
        )))
    }
}

fn intercept(written: &ListenerSettings) -> Result<Option<Intercept>, String> {
    if written.intercept.is_empty() {
        let any = written.intercept_local || written.verify_connect || !written.bypass.is_empty();
        return match any {
            true => Err("bypass, intercept_local and verify_connect want an intercept".to_owned()),
            false => Ok(None),
        };
    }
    if written.kind != KindName::Transparent {
        return Err("intercept is for transparent listeners".into());
    }
    if written.verify_connect && written.accept_proxy {
        return Err(
            "verify_connect and accept_proxy exclude each other: a SYN that is held can't \
                    say yet whom it speaks for"
                .into(),
        );
    }
    let address = written.address;
    let foreign = |target: &Target| target.of_family(!address.is_ipv4());
    for (key, targets) in [
        ("intercept", &written.intercept),
        ("bypass", &written.bypass),
    ] {
        if let Some(foreign) = targets.iter().find_map(foreign) {
            return Err(format!("{key} {foreign} is not of the family of {address}"));
        }
    }
    Ok(Some(Intercept {
        targets: written.intercept.clone(),
        bypass: written.bypass.clone(),
        keeps_source: written.keep_source,
        local: written.intercept_local,
        verify: written.verify_connect,
    }))
}

fn kind(written: &ListenerSettings) -> Result<Kind, &'static str> {
    use KindName as N;
    match (written.kind, &written.destination, written.keep_source) {
        (N::Forward, Some(to), false) => Ok(Kind::Forward(to.clone())),
        (N::Forward, None, _) => Err("forward wants a destination"),
        (_, Some(_), _) => Err("destination is for forward listeners"),
        (N::Transparent, None, keep_source) => Ok(Kind::Transparent { keep_source }),
        (_, _, true) => Err("keep_source is for transparent listeners"),
        (N::Socks5, None, false) => Ok(Kind::Socks5),
        (N::Http, None, false) => Ok(Kind::Http),
        (N::Convert, None, false) => Ok(Kind::Convert),
    }
}

/// Keys that only some kinds have.
fn check_keys(written: &ListenerSettings) -> Result<(), &'static str> {
    use KindName as N;
    let kind = written.kind;
    let over_udt = written.transport != Transport::Tcp;
    let for_relays = written.tls.is_some() || written.idle_timeout.is_some() || over_udt;
    if written.direct_fallback.is_some() && kind != N::Transparent {
        Err(
            "direct_fallback is for transparent listeners: for others, give the route fallback = [[]]",
        )
    } else if written.users.is_some() && !matches!(kind, N::Socks5 | N::Http) {
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

    /// A SOCKS5 listener with these further settings.
    pub(crate) fn listener(address: &str, more: &str) -> Listener {
        all(&format!("kind = 'socks5'\naddress = '{address}'\n{more}")).remove(0)
    }

    /// All listeners of these settings.
    pub(crate) fn all(text: &str) -> Vec<Listener> {
        let text = format!("[[listener]]\n{text}\n[profile.slow]\npacing_rate = '1mbit'");
        let settings = toml::from_str(&text).unwrap();
        Config::new(&settings).unwrap().listeners
    }
}
