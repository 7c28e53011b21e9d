// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a relay is told to do, checked: nothing is opened before this stands.

pub(crate) mod file;
mod flags;
pub(crate) mod location;
pub(crate) mod reference;
pub(crate) mod settings;

use crate::{
    args::{Args, SendProxy},
    certificates::{Initiator, Responder},
    config::{
        file::File,
        location::{In as _, Table},
        settings::{KindName, ListenerSettings, RouteSettings, Settings, Transport},
    },
    intercept::{Intercept, OWN_MARK, target::Target},
    peer::{POOL_AGE_DEFAULT, Peer},
    policy::{Chain, Policy, Rule, WayOut},
    prefix::Prefix,
    profile::Profile,
    udt,
    users::Users,
};
use longhaul_command::exit::Refusal;
use longhaul_linux::pipe_pool::PoolConfig;
use longhaul_protocol::{convert, destination::Destination};
use longhaul_units::{BitRate, Bytes, Time};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
    ops::RangeInclusive,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// A checked configuration.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listeners: Vec<Listener>,
    pub(crate) peers: BTreeMap<String, Arc<Peer>>,
    pub(crate) policy: Policy,
    /// Clients from elsewhere may reach this host's own addresses.
    pub(crate) allow_local: bool,
    /// Of legs towards relays that a request names and `peers` does not have.
    pub(crate) far: Arc<Profile>,
    /// Each worker's store of pipes or buffers.
    pub(crate) pool: PoolConfig,
    pub(crate) limits: Limits,
    pub(crate) counters: Option<PathBuf>,
    pub(crate) interval: Duration,
    /// Where health, metrics and the status page are served.
    pub(crate) admin: Option<SocketAddr>,
}

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

/// Times and numbers that nothing exceeds.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) connect_timeout: Duration,
    pub(crate) handshake_timeout: Duration,
    /// How long an origin that owes something may be silent: HTTP and FTP.
    pub(crate) response_timeout: Duration,
    pub(crate) connections_max: u32,
    pub(crate) workers: usize,
    /// How long nothing may pass over a tunnel; `None` is for ever.
    pub(crate) tunnel_idle_timeout: Option<Duration>,
    pub(crate) grace: Duration,
    /// Names looked up for one client at a time.
    pub(crate) lookups_per_client: usize,
    /// Connections of one client; `None` depends on what is left for others.
    pub(crate) connections_per_client: Option<usize>,
    /// Bytes that one client may hold once the budget is used up; `None` is a quarter of it.
    pub(crate) memory_per_client: Option<u64>,
    /// How long somebody may take nothing of what is there for them.
    pub(crate) stall_timeout: Duration,
    /// Bytes in the socket buffers and pipes of all legs; `None` is [`super::memory::budget`]'s
    /// default.
    pub(crate) memory: Option<u64>,
}

/// Bytes in one copy: large enough that the system calls vanish beside the copying.
const BUFFER_BYTES: usize = 256 * 1024;

/// Idle conduits a worker keeps: enough for a burst of busy connections. Memory: 640 KiB a worker
/// with 1 MiB pipes, 16 MiB in copy mode; buffers that only saw small reads, 16 KiB each.
const IDLE_CONDUITS_MAX: usize = 64;

const CONNECTIONS_DEFAULT: u32 = 16384;
const CONNECTIONS_RANGE: RangeInclusive<u32> = 1..=1_000_000;
const WORKERS_RANGE: RangeInclusive<u16> = 1..=1024;
/// About what the sockets of one connection hold when bytes move.
const MEMORY_MIN: u64 = 64 << 10;
/// Above the pauses of people and programs that read what they asked for.
const STALL_TIMEOUT_DEFAULT: Time = Time::from_millis(300_000);
/// Above what a browser opens at once, and a sixteenth of what all clients may have.
const LOOKUPS_DEFAULT: u32 = 64;
/// What all clients together may have under way: see [`Budget`](super::budget::Budget).
const LOOKUPS_MAX: u32 = 1024;
const PIPE_DEFAULT: Bytes = Bytes::new(1 << 20);
const TIMEOUT_DEFAULT: Time = Time::from_millis(10_000);
/// Above what long polls and large reports take.
const RESPONSE_TIMEOUT_DEFAULT: Time = Time::from_millis(300_000);
/// Twice the age at which peers replace their ready connections.
const IDLE_TIMEOUT_DEFAULT: Time = Time::from_millis(120_000);
/// About what address translators must remember an idle connection for (RFC 5382 REQ-5: 2 h 4 min).
const TUNNEL_IDLE_TIMEOUT_DEFAULT: Time = Time::from_millis(7_200_000);
const INTERVAL_DEFAULT: Time = Time::from_millis(1000);
/// More often, and counters are all that a disk has room for.
const INTERVAL_LEAST: Time = Time::from_millis(1);

type Profiles = BTreeMap<String, Arc<Profile>>;

impl Config {
    /// Reads the file that the arguments name, if any, and checks both.
    pub(crate) fn from_args(args: Args) -> anyhow::Result<Self> {
        Self::read(args).map(|(config, ..)| config)
    }

    /// The same, with what it was made of.
    pub(crate) fn read(args: Args) -> anyhow::Result<(Self, Settings, Option<File>)> {
        let read = args.config.as_deref().map(file::read).transpose()?;
        let (file, mut settings) = match read {
            Some((file, settings)) => (Some(file), settings),
            None => (None, Settings::default()),
        };
        args.apply(&mut settings)?;
        let place = |table: &Table, text: &str| {
            let file = file.as_ref();
            file.map_or_else(String::new, |file| file.place(table, text))
        };
        match Self::check(&settings) {
            Ok(config) => Ok((config, settings, file)),
            Err(error) => Err(location::locate(error, place)),
        }
    }

    /// Checks settings of no file.
    #[cfg(test)]
    pub(crate) fn new(settings: &Settings) -> anyhow::Result<Self> {
        Self::check(settings).map_err(|error| location::locate(error, |_, _| String::new()))
    }

    /// Checks the settings; the first thing that is wrong ends the command with exit code 2 or 3.
    fn check(settings: &Settings) -> anyhow::Result<Self> {
        let profiles = profiles(settings)?;
        let peers = peers(settings, &profiles)?;
        let far = profiles["far"].clone();
        let config = Self {
            listeners: listeners(settings, &profiles)?,
            policy: policy(settings, &peers, &profiles)?,
            allow_local: settings.allow_local,
            pool: pool(settings).in_table(Table::Limits)?,
            limits: limits(settings).in_table(Table::Limits)?,
            peers,
            far,
            counters: settings.counters.file.clone(),
            interval: interval(settings.counters.interval).in_table(Table::Counters)?,
            admin: admin(settings).in_table(Table::Admin)?,
        };
        config.check_ways()?;
        Ok(config)
    }

    /// Takes over from `before`, whose connections go on, what can't change while the relay runs,
    /// and the peers that stay the same with all that is known of them. Returns the keys whose new
    /// values wait for a restart.
    pub(crate) fn keep(&mut self, before: &Self) -> Vec<&'static str> {
        let (new, old) = (&mut self.limits, &before.limits);
        let mut fixed = vec![
            keep(
                "limits.connections",
                &mut new.connections_max,
                &old.connections_max,
            ),
            keep("limits.workers", &mut new.workers, &old.workers),
            keep("limits.memory", &mut new.memory, &old.memory),
            keep("counters.file", &mut self.counters, &before.counters),
            keep("admin.address", &mut self.admin, &before.admin),
        ];
        // The limit on descriptors decided this one.
        self.pool.pipes_max = before.pool.pipes_max;
        fixed.push(keep("limits.pipe_size", &mut self.pool, &before.pool));
        self.keep_peers(before);
        fixed.into_iter().flatten().collect()
    }

    fn keep_peers(&mut self, before: &Self) {
        // Certificates may have been renewed: peers with TLS begin anew.
        let same = |peer: &Arc<Peer>| {
            let old = before.peers.get(&peer.name)?;
            (old == peer && peer.tls.is_none()).then_some(old)
        };
        let ways = self
            .policy
            .rules
            .iter_mut()
            .filter_map(|rule| rule.way.as_mut());
        let in_chains = ways.flat_map(|way| &mut way.chains).flatten();
        for peer in self.peers.values_mut().chain(in_chains) {
            if let Some(old) = same(peer) {
                *peer = old.clone();
            }
        }
    }

    /// Whether a peer listens on `address`.
    pub(crate) fn has_peer_at(&self, address: SocketAddr) -> bool {
        self.peers.values().any(|peer| peer.place.is_at(address))
    }

    /// The peer that listens on `address`, or one with default settings.
    pub(crate) fn peer_at(&self, address: SocketAddr) -> Arc<Peer> {
        let known = self.peers.values().find(|peer| peer.place.is_at(address));
        known.cloned().unwrap_or_else(|| {
            let place = Destination::Address(address);
            Arc::new(Peer::new(&address.to_string(), place, self.far.clone()))
        })
    }

    /// The name of the peer that listens on `address`.
    pub(crate) fn name_at(&self, address: SocketAddr) -> Option<String> {
        let known = self.peers.values().find(|peer| peer.place.is_at(address));
        known.map(|peer| peer.name.clone())
    }

    fn check_ways(&self) -> anyhow::Result<()> {
        if self.listeners.is_empty() {
            return Err(Refusal::usage(
                "no listener: give at least one of --socks5, --http, --forward, --transparent, \
                 --convert, or a --config with a [[listener]]",
            ));
        }
        let mut names = BTreeSet::new();
        for (n, listener) in self.listeners.iter().enumerate() {
            let is_new = names.insert(&listener.name);
            self.check_listener(listener, is_new)
                .and_then(|()| listener.check_rules(&self.listeners[..n]))
                .in_table(Table::Listener(n))?;
        }
        self.check_conditions(&names)
    }

    fn check_listener(&self, listener: &Listener, is_new: bool) -> anyhow::Result<()> {
        self.check_source(listener)?;
        listener.check_exposure()?;
        let unnamed = listener.address.port() == 0;
        match is_new || unnamed {
            true => Ok(()),
            false => {
                let name = &listener.name;
                Err(Refusal::usage(format!("two listeners are called {name}")))
            }
        }
    }

    /// A rule for a listener that is not there would never hold: a mistyped name.
    fn check_conditions(&self, names: &BTreeSet<&String>) -> anyhow::Result<()> {
        for (n, rule) in self.policy.rules.iter().enumerate() {
            if let Some(name) = rule.listeners.iter().find(|name| !names.contains(name)) {
                let text = format!("route {}: no listener is called {name}", n + 1);
                return Err(Refusal::usage(text)).in_table(Table::Route(n));
            }
        }
        Ok(())
    }

    /// The leg to a peer is the relay's own: it can't keep the client's address.
    fn check_source(&self, listener: &Listener) -> anyhow::Result<()> {
        let Kind::Transparent { keep_source: true } = listener.kind else {
            return Ok(());
        };
        let applies =
            |rule: &&Rule| rule.listeners.is_empty() || rule.listeners.contains(&listener.name);
        let ways = self.policy.rules.iter().filter(applies);
        let mut chains = ways.flat_map(|rule| &rule.way).flat_map(|way| &way.chains);
        match chains.any(|chain| !chain.is_empty()) {
            true => Err(Refusal::usage(
                "keep_source (--keep-source) and peers (--peer, via) exclude each other: the leg \
                 to a peer is the relay's own",
            )),
            false => Ok(()),
        }
    }
}

impl Listener {
    fn new(
        written: &ListenerSettings,
        settings: &Settings,
        profiles: &Profiles,
    ) -> anyhow::Result<Self> {
        let address = written.address;
        let name = written.name.clone().unwrap_or_else(|| address.to_string());
        let kind = kind(written)
            .map_err(|problem| Refusal::usage(format!("listener {name}: {problem}")))?;
        let user = format!("listener {name}");
        let profile = written.profile.as_deref().unwrap_or("near");
        let profile = profile_named(profile, profiles, &user)?;
        let tls = responder(written, &name)?;
        check_transport(written.transport, tls.is_some(), &profile, &user)?;
        Ok(Self {
            transport: written.transport,
            profile,
            direct_fallback: direct_fallback(written, &name)?,
            allow_from: [&settings.allow_from[..], &written.allow_from].concat(),
            deny_from: written.deny_from.clone(),
            users: users(written, &name)?,
            accept_proxy: written.accept_proxy,
            send_proxy: written.send_proxy,
            rate: written.rate,
            rate_per_client: written.rate_per_client,
            intercept: intercept(written)
                .map_err(|problem| Refusal::usage(format!("listener {name}: {problem}")))?,
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
    fn check_rules(&self, before: &[Self]) -> anyhow::Result<()> {
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
    fn check_exposure(&self) -> anyhow::Result<()> {
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

fn keep<T: Clone + PartialEq>(key: &'static str, new: &mut T, old: &T) -> Option<&'static str> {
    let changed = new != old;
    new.clone_from(old);
    changed.then_some(key)
}

fn intercept(written: &ListenerSettings) -> Result<Option<Intercept>, String> {
    if written.intercept.is_empty() {
        return match written.intercept_local || written.verify_connect {
            true => Err("intercept_local and verify_connect want an intercept".to_owned()),
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
    if let Some(foreign) = written.intercept.iter().find_map(foreign) {
        return Err(format!(
            "intercept {foreign} is not of the family of {address}"
        ));
    }
    Ok(Some(Intercept {
        targets: written.intercept.clone(),
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

/// Clients of a transparent listener know nothing of the relay: a dead one must not cut them off.
fn direct_fallback(written: &ListenerSettings, name: &str) -> anyhow::Result<bool> {
    let transparent = written.kind == KindName::Transparent;
    match written.direct_fallback {
        Some(_) if !transparent => Err(Refusal::usage(format!(
            "listener {name}: direct_fallback is for transparent listeners: for others, give the \
             route fallback = [[]]"
        ))),
        wanted => Ok(wanted.unwrap_or(transparent)),
    }
}

fn users(written: &ListenerSettings, name: &str) -> anyhow::Result<Option<Arc<Users>>> {
    match (&written.users, written.kind) {
        (None, _) => Ok(None),
        (Some(path), KindName::Socks5 | KindName::Http) => Ok(Some(Users::read(path)?.into())),
        (Some(_), _) => Err(Refusal::usage(format!(
            "listener {name}: users is for socks5 and http listeners"
        ))),
    }
}

fn responder(written: &ListenerSettings, name: &str) -> anyhow::Result<Option<Arc<Responder>>> {
    let user = format!("listener {name}");
    let over_udt = written.transport != Transport::Tcp;
    let for_relays = written.tls.is_some() || written.idle_timeout.is_some() || over_udt;
    if for_relays && written.kind != KindName::Convert {
        let problem = "tls, transport and idle_timeout are for convert listeners";
        return Err(Refusal::usage(format!("{user}: {problem}")));
    }
    let responder = |tls| Responder::new(tls, &user).map(Arc::new);
    written.tls.as_ref().map(responder).transpose()
}

fn listeners(settings: &Settings, profiles: &Profiles) -> anyhow::Result<Vec<Listener>> {
    let listener =
        |(n, written)| Listener::new(written, settings, profiles).in_table(Table::Listener(n));
    settings.listener.iter().enumerate().map(listener).collect()
}

fn profiles(settings: &Settings) -> anyhow::Result<Profiles> {
    let mut written = settings.profile.clone();
    for always in ["near", "far"] {
        written.entry(always.to_owned()).or_default();
    }
    // What the relay itself sends must not come back to it.
    let marked = settings.listener.iter().any(|l| l.intercept_local);
    let checked = |(name, written): (&String, _)| {
        let profile = Profile::new(name, written);
        let mut profile = profile.in_table(Table::Profile(name.clone()))?;
        profile.options.mark = marked.then_some(OWN_MARK);
        Ok((name.clone(), profile.into()))
    };
    written.iter().map(checked).collect()
}

fn profile_named(name: &str, profiles: &Profiles, user: &str) -> anyhow::Result<Arc<Profile>> {
    let profile = profiles.get(name).cloned();
    profile.ok_or_else(|| {
        let all: Vec<_> = profiles.keys().map(String::as_str).collect();
        let all = all.join(", ");
        Refusal::usage(format!(
            "{user}: no profile is called {name}; there are: {all}"
        ))
    })
}

fn peers(settings: &Settings, profiles: &Profiles) -> anyhow::Result<BTreeMap<String, Arc<Peer>>> {
    let chains = || settings.route.iter().flat_map(RouteSettings::chains);
    let peer = |(name, written): (&String, &settings::PeerSettings)| {
        let begins = chains().any(|via| via.first() == Some(name));
        let profile = written.profile.as_deref().unwrap_or("far");
        let user = format!("peer {name}");
        let profile = profile_named(profile, profiles, &user)?;
        check_transport(written.transport, written.tls.is_some(), &profile, &user)?;
        let initiator = |tls| Initiator::new(tls, &user, name).map(Arc::new);
        let peer = Peer {
            is_configured: true,
            is_beyond: !begins && chains().any(|via| via.contains(name)),
            tls: written.tls.as_ref().map(initiator).transpose()?,
            pool: pool_size(written, &user)?,
            streams: streams(written, &user)?,
            transport: written.transport,
            pool_age: written
                .pool_age
                .map_or(Ok(POOL_AGE_DEFAULT), |age| positive("pool_age", age))?,
            ..Peer::new(name, written.address.0.clone(), profile)
        };
        Ok((name.clone(), Arc::new(peer)))
    };
    let located = |(name, written)| peer((name, written)).in_table(Table::Peer(name.clone()));
    settings.peer.iter().map(located).collect()
}

/// UDT by itself encrypts nothing, knows no end of one direction, and has options of its own.
fn check_transport(
    transport: Transport,
    has_tls: bool,
    profile: &Profile,
    user: &str,
) -> anyhow::Result<()> {
    if transport == Transport::Tcp {
        return Ok(());
    }
    let name = &profile.name;
    let problem = match udt::problem(profile) {
        Some(option) => format!("profile {name}: {option} is for TCP: give this leg another"),
        None if !has_tls => "transport = \"udt\" wants tls".to_owned(),
        None => return Ok(()),
    };
    Err(Refusal::usage(format!("{user}: {problem}")))
}

/// A peer's bound on what each worker may keep of it.
const POOL_MAX: u16 = 1024;

fn pool_size(written: &settings::PeerSettings, user: &str) -> anyhow::Result<usize> {
    match written.pool.unwrap_or(0) {
        pool @ 0..=POOL_MAX => Ok(pool.into()),
        _ => Err(Refusal::usage(format!(
            "{user}: pool: want 0 to {POOL_MAX}"
        ))),
    }
}

fn streams(written: &settings::PeerSettings, user: &str) -> anyhow::Result<u8> {
    match written.streams.unwrap_or(1) {
        streams @ 1..=convert::STRIPES_MAX => Ok(streams),
        _ => Err(Refusal::usage(format!(
            "{user}: streams: want 1 to {}",
            convert::STRIPES_MAX
        ))),
    }
}

fn policy(
    settings: &Settings,
    peers: &BTreeMap<String, Arc<Peer>>,
    profiles: &Profiles,
) -> anyhow::Result<Policy> {
    let rule = |(index, route): (usize, &RouteSettings)| {
        rule(route, peers, profiles, &format!("route {}", index + 1)).in_table(Table::Route(index))
    };
    let rules = settings.route.iter().enumerate().map(rule);
    Ok(Policy {
        rules: rules.collect::<Result<_, _>>()?,
        otherwise: WayOut {
            chains: vec![Chain::new()],
            profile: profiles["far"].clone(),
        },
    })
}

fn rule(
    route: &RouteSettings,
    peers: &BTreeMap<String, Arc<Peer>>,
    profiles: &Profiles,
    name: &str,
) -> anyhow::Result<Rule> {
    let leads_on = !route.via.is_empty() || !route.fallback.is_empty() || route.profile.is_some();
    if route.deny && leads_on {
        return Err(Refusal::usage(format!(
            "{name}: deny excludes via, fallback and profile"
        )));
    }
    let way = WayOut {
        chains: route
            .chains()
            .map(|via| chain(via, peers, name))
            .collect::<Result<_, _>>()?,
        profile: profile_named(route.profile.as_deref().unwrap_or("far"), profiles, name)?,
    };
    Ok(Rule {
        listeners: route.listener.clone(),
        from: route.from.clone(),
        to: route.to.clone(),
        ports: route.ports.clone(),
        way: (!route.deny).then_some(way),
    })
}

fn chain(via: &[String], peers: &BTreeMap<String, Arc<Peer>>, user: &str) -> anyhow::Result<Chain> {
    if via.len() > convert::HOPS_MAX {
        let most = convert::HOPS_MAX;
        return Err(Refusal::usage(format!(
            "{user}: more than {most} peers in a chain"
        )));
    }
    let peer = |name: &String| {
        let peer = peers.get(name).cloned();
        peer.ok_or_else(|| Refusal::usage(format!("{user}: no peer is called {name}")))
    };
    via.iter().map(peer).collect()
}

fn pool(settings: &Settings) -> anyhow::Result<PoolConfig> {
    let size = settings.limits.pipe_size.unwrap_or(PIPE_DEFAULT);
    if !(4096..=1 << 30).contains(&size.get()) {
        return Err(Refusal::usage(format!(
            "pipe size {size} (--pipe-size, limits.pipe_size): want 4096B to 1GiB"
        )));
    }
    Ok(PoolConfig {
        pipe_bytes: size.get() as usize,
        buffer_bytes: BUFFER_BYTES,
        pipes_max: usize::MAX,
        idle_max: IDLE_CONDUITS_MAX,
    })
}

fn limits(settings: &Settings) -> anyhow::Result<Limits> {
    let written = &settings.limits;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let time = |key, time: Option<Time>| positive(key, time.unwrap_or(TIMEOUT_DEFAULT));
    Ok(Limits {
        connect_timeout: time("connect_timeout", written.connect_timeout)?,
        handshake_timeout: time("handshake_timeout", written.handshake_timeout)?,
        response_timeout: positive(
            "response_timeout",
            written.response_timeout.unwrap_or(RESPONSE_TIMEOUT_DEFAULT),
        )?,
        connections_max: within(
            "connections",
            written.connections.unwrap_or(CONNECTIONS_DEFAULT),
            &CONNECTIONS_RANGE,
        )?,
        workers: match written.workers {
            Some(workers) => within("workers", workers, &WORKERS_RANGE)?.into(),
            None => cores,
        },
        tunnel_idle_timeout: tunnel_idle_timeout(written.tunnel_idle_timeout)?,
        grace: written.grace.unwrap_or(TIMEOUT_DEFAULT).into(),
        lookups_per_client: within(
            "lookups_per_client",
            written.lookups_per_client.unwrap_or(LOOKUPS_DEFAULT),
            &(1..=LOOKUPS_MAX),
        )? as usize,
        connections_per_client: connections_per_client(written.connections_per_client)?,
        memory_per_client: memory("memory_per_client", written.memory_per_client)?,
        stall_timeout: positive(
            "stall_timeout",
            written.stall_timeout.unwrap_or(STALL_TIMEOUT_DEFAULT),
        )?,
        memory: memory("memory", written.memory)?,
    })
}

fn connections_per_client(wanted: Option<u32>) -> anyhow::Result<Option<usize>> {
    match wanted {
        Some(0) => Err(Refusal::usage(
            "limits.connections_per_client 0: want 1 or more",
        )),
        wanted => Ok(wanted.map(|wanted| wanted as usize)),
    }
}

fn within<T: PartialOrd + fmt::Display>(
    key: &str,
    wanted: T,
    range: &RangeInclusive<T>,
) -> anyhow::Result<T> {
    match range.contains(&wanted) {
        true => Ok(wanted),
        false => Err(Refusal::usage(format!(
            "limits.{key} {wanted}: want {} to {}",
            range.start(),
            range.end()
        ))),
    }
}

/// With less, a relay would serve nobody.
fn memory(key: &str, wanted: Option<Bytes>) -> anyhow::Result<Option<u64>> {
    match wanted.map(Bytes::get) {
        Some(bytes) if bytes < MEMORY_MIN => Err(Refusal::usage(format!(
            "limits.{key} {}: want {} or more",
            Bytes::new(bytes),
            Bytes::new(MEMORY_MIN)
        ))),
        bytes => Ok(bytes),
    }
}

/// What the kernel's own time-outs come to is below a week.
const TUNNEL_IDLE_TIMEOUT_MAX: Time = Time::from_millis(7 * 86_400_000);

fn tunnel_idle_timeout(written: Option<Time>) -> anyhow::Result<Option<Duration>> {
    let range = Time::from_millis(1000)..=TUNNEL_IDLE_TIMEOUT_MAX;
    match written.unwrap_or(TUNNEL_IDLE_TIMEOUT_DEFAULT) {
        Time::ZERO => Ok(None),
        time if range.contains(&time) => Ok(Some(time.into())),
        time => Err(Refusal::usage(format!(
            "tunnel_idle_timeout {time} (--tunnel-idle-timeout): want 1s to 7d, or 0s for never"
        ))),
    }
}

/// It tells everyone who asks who talks to whom: it stays on this host.
fn admin(settings: &Settings) -> anyhow::Result<Option<SocketAddr>> {
    match settings.admin.address {
        Some(address) if !address.ip().is_loopback() => Err(Refusal::usage(format!(
            "admin {address} (--admin, admin.address) is not on loopback, and it asks nobody who \
             they are: use 127.0.0.1:{port} and reach it with ssh -L {port}:127.0.0.1:{port} HOST \
             or through a reverse proxy that does",
            port = address.port()
        ))),
        address => Ok(address),
    }
}

fn interval(wanted: Option<Time>) -> anyhow::Result<Duration> {
    match wanted.unwrap_or(INTERVAL_DEFAULT) {
        time if time < INTERVAL_LEAST => Err(Refusal::usage(format!(
            "interval {time} (--interval): want 1ms or more"
        ))),
        time => Ok(time.into()),
    }
}

fn positive(key: &str, time: Time) -> anyhow::Result<Duration> {
    let flag = key.replace('_', "-");
    match time {
        Time::ZERO => Err(Refusal::usage(format!(
            "{key} 0 (--{flag}): want more than no time"
        ))),
        time => Ok(time.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn refusal(line: &str) -> String {
        let words = std::iter::once("relay").chain(line.split_whitespace());
        let args = Line::try_parse_from(words).unwrap().args;
        Config::from_args(args).unwrap_err().to_string()
    }

    #[test]
    fn refuses_before_anything_is_opened() {
        for (line, word) in [
            ("", "no listener"),
            ("--socks5 0.0.0.0:1080", "--allow-from"),
            ("--convert 192.0.2.1", "--allow-from"),
            ("--http [::]:3128", "--allow-from"),
            ("--socks5 127.0.0.1:0 --keep-source", "--transparent"),
            ("--socks5 127.0.0.1:0 --no-direct-fallback", "--transparent"),
            (
                "--transparent 127.0.0.1:1 --intercept 10.0.0.0/8,[2001:db8::/32]:80",
                "--transparent [::1]:3129",
            ),
            (
                "--transparent [::1]:1 --intercept 10.0.0.0/8",
                "127.0.0.1:3129",
            ),
            (
                "--transparent 0.0.0.0:1 --keep-source --peer 192.0.2.1",
                "--peer",
            ),
            ("--socks5 127.0.0.1:0 --cc-far no-such", "there are: "),
            ("--socks5 127.0.0.1:0 --interval 0s", "--interval"),
            ("--socks5 127.0.0.1:0 --pipe-size 1B", "--pipe-size"),
            (
                "--socks5 127.0.0.1:0 --admin 0.0.0.0:9100",
                "ssh -L 9100:127.0.0.1:9100",
            ),
            ("--socks5 127.0.0.1:0 --admin [::]:9100", "loopback"),
        ] {
            assert!(refusal(line).contains(word), "{line}: {}", refusal(line));
        }
    }

    #[test]
    fn takes_any_number_of_listeners() {
        let line = "relay --socks5 127.0.0.1:0 --socks5 [::1]:0 --forward 127.0.0.1:0=host:80 \
                    --convert 10.0.0.1 --allow-from 10.0.0.0/8 --peer 10.0.0.2 --peer 10.0.0.3:9";
        let args = Line::try_parse_from(line.split_whitespace()).unwrap().args;
        let config = Config::from_args(args).unwrap();
        assert_eq!(config.listeners.len(), 4);
        assert_eq!(config.listeners[3].address.port(), convert::PORT);
        let way = config.policy.rules[0].way.as_ref().unwrap();
        let ports: Vec<u16> = way.chains[0].iter().map(|p| p.place.port()).collect();
        assert_eq!(ports, [convert::PORT, 9]);
    }

    fn checked(text: &str) -> Result<Config, String> {
        let settings = toml::from_str(text).map_err(|error| error.to_string())?;
        Config::new(&settings).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_says_what_is_wrong_with_it() {
        let listener = "[[listener]]\nkind = 'socks5'\naddress = '127.0.0.1:1080'\n";
        for (text, word) in [
            ("[[route]]\nvia = ['tokyo']", "no peer is called tokyo"),
            ("[[route]]\ndeny = true\nprofile = 'far'", "deny excludes"),
            ("[[route]]\nlistener = ['web']", "no listener is called web"),
            ("[[route]]\nprofile = 'long'", "there are: far, near"),
            ("[profile.long]\ndscp = 64", "0 to 63"),
            ("[profile.long]\nmss = 40", "88"),
            ("[peer.p]\naddress = '10.0.0.1'\nstreams = 17", "1 to 16"),
            ("[profile.long]\ninitial_window = 0", "1 to 1024"),
            ("[profile.long]\ninitial_window = 1025", "1 to 1024"),
            ("[profile.long]\nkeepalive = '100ms'", "1s"),
            (
                "[[listener]]\nkind = 'forward'\naddress = '[::1]:1'",
                "wants a destination",
            ),
            (
                "[[listener]]\nkind = 'http'\naddress = '[::1]:1'\nkeep_source = true",
                "keep_source is for transparent",
            ),
            (
                "[[listener]]\nkind = 'http'\naddress = '[::1]:1'\ndirect_fallback = false",
                "direct_fallback is for transparent",
            ),
            (
                "[[listener]]\nkind = 'http'\naddress = '[::1]:1'\nintercept = ['::/0']",
                "intercept is for transparent",
            ),
            (
                "[[listener]]\nkind = 'transparent'\naddress = '[::1]:1'\nintercept = ['10.0.0.0/8']",
                "10.0.0.0/8 is not of the family",
            ),
            (
                "[[listener]]\nkind = 'transparent'\naddress = '[::1]:1'\nverify_connect = true",
                "verify_connect want",
            ),
            (
                "[[listener]]\nkind = 'transparent'\naddress = '127.0.0.1:1'\n\
                 intercept = ['10.0.0.0/8']\nverify_connect = true\naccept_proxy = true",
                "verify_connect and accept_proxy",
            ),
            (
                "[[listener]]\nkind = 'http'\naddress = '127.0.0.1:1080'",
                "two listeners are called 127.0.0.1:1080",
            ),
        ] {
            let problem = checked(&format!("{listener}{text}")).unwrap_err();
            assert!(problem.contains(word), "{text}: {problem}");
        }
    }

    #[test]
    fn a_whole_file_stands() {
        let config = checked(include_str!("example.toml")).unwrap();
        assert_eq!(config.listeners.len(), 2);
        assert_eq!(config.policy.rules.len(), 3);
        let way = config.policy.rules[1].way.as_ref().unwrap();
        assert_eq!(way.chains.len(), 3);
        assert_eq!(way.chains[0][0].profile.name, "long");
    }
}
