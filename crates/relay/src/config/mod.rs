// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checked configuration of a relay. No socket is opened before the check succeeds.

pub(crate) mod certificates;
pub(crate) mod file;
pub(crate) mod limits;
pub(crate) mod listener;
pub(crate) mod location;
pub(crate) mod options;
pub(crate) mod peer;
pub(crate) mod policy;
pub(crate) mod profile;
pub(crate) mod reference;
#[cfg(test)]
mod schema;
pub(crate) mod settings;
pub(crate) mod users;

use crate::config::{
    file::File,
    limits::{Limits, access_log_interval, interval, limits, pool_config},
    listener::{Kind, ListenerConfig},
    location::{Part, Table, in_table, refused},
    peer::{PeerConfig, peers},
    policy::{Policy, Rule, policy},
    profile::{Profile, Profiles, UPSTREAM, profiles},
    settings::{ListenerSettings, RecordFormat, Settings, Transport},
};
use anyhow::Context as _;
use longhaul_admission::descriptors::DescriptorDemand;
use longhaul_command::exit::Refusal;
use longhaul_linux::pipe_pool::PoolConfig;
use longhaul_protocol::networks::Prefix;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// A checked configuration.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listeners: Vec<ListenerConfig>,
    pub(crate) peers: BTreeMap<String, Arc<PeerConfig>>,
    pub(crate) policy: Policy,
    /// Allows clients from other hosts to reach this host's own addresses.
    pub(crate) allow_local: bool,
    /// Packetization-layer path MTU discovery of TCP (RFC 4821).
    pub(crate) mtu_probing: bool,
    /// All profiles by name.
    pub(crate) profiles: Profiles,
    /// Profile of legs towards relays that only a request names.
    pub(crate) upstream_profile: Arc<Profile>,
    /// Pool of pipes or buffers of each worker.
    pub(crate) pool: PoolConfig,
    pub(crate) limits: Limits,
    pub(crate) counters: Option<PathBuf>,
    pub(crate) access_log: Option<PathBuf>,
    pub(crate) access_log_format: RecordFormat,
    /// Clients without records in the access log.
    pub(crate) access_log_except: Vec<Prefix>,
    /// Interval of the records of an open tunnel.
    pub(crate) access_log_interval: Option<Duration>,
    pub(crate) interval: Duration,
    /// Address of the admin endpoint: health, metrics and the status page.
    pub(crate) admin: Option<SocketAddr>,
    /// Address of `/healthz` and `/readyz` alone.
    pub(crate) health: Option<SocketAddr>,
}

impl Config {
    /// Number of descriptors that this configuration needs.
    pub(crate) fn descriptor_demand(&self) -> DescriptorDemand {
        let streams = self.peers.values().map(|peer| peer.fixed_streams()).max();
        DescriptorDemand {
            connections: self.limits.connections_max as usize,
            workers: self.limits.workers,
            listeners: self.listeners.len(),
            pooled: self.peers.values().map(|peer| peer.pool).sum(),
            streams: streams.unwrap_or(1).into(),
        }
    }

    /// Whether a listener on `[::]` takes IPv4 connections, too: unless something else of this relay has the port on an
    /// IPv4 address. Transparent listeners divert the connections of one family.
    pub(crate) fn is_dual_stack(&self, listener: &ListenerConfig) -> bool {
        let others = self
            .listeners
            .iter()
            .filter(|other| other.transport == Transport::Tcp);
        let addresses = others
            .map(|other| other.address)
            .chain(self.admin)
            .chain(self.health);
        let port = listener.address.port();
        let mut on_ipv4 = addresses.filter(|at| at.is_ipv4() && at.port() == port && port != 0);
        !matches!(listener.kind, Kind::Transparent { .. }) && on_ipv4.next().is_none()
    }

    /// Checks settings that are not from a file.
    #[cfg(test)]
    pub(crate) fn new(settings: &Settings) -> anyhow::Result<Self> {
        Self::from_file(settings, None)
    }

    /// Checks settings, which come from `file` and flags; errors name their location.
    pub(crate) fn from_file(settings: &Settings, file: Option<&File>) -> anyhow::Result<Self> {
        Self::check(settings).map_err(|error| file::locate(error, file))
    }

    /// Checks the settings. The first error ends the command with exit code 2 or 3.
    fn check(settings: &Settings) -> anyhow::Result<Self> {
        let profiles = profiles(settings)?;
        let peers = peers(settings, &profiles)?;
        let upstream_profile = profiles[UPSTREAM].clone();
        let config = Self {
            listeners: listeners(settings, &profiles)?,
            policy: policy(settings, &peers, &profiles)?,
            allow_local: settings.allow_local,
            mtu_probing: settings.mtu_probing,
            pool: pool_config(settings).context(Table::Limits)?,
            limits: limits(settings).context(Table::Limits)?,
            peers,
            profiles,
            upstream_profile,
            counters: settings.counters.file.clone(),
            access_log: settings.counters.access_log.clone(),
            access_log_format: settings.counters.access_log_format.unwrap_or_default(),
            access_log_except: settings.counters.access_log_except.clone(),
            access_log_interval: access_log_interval(&settings.counters)
                .context(Table::Counters)?,
            interval: interval(settings.counters.interval).context(Table::Counters)?,
            admin: admin(settings).context(Table::Admin)?,
            health: settings.admin.health,
        };
        config.check_references()?;
        Ok(config)
    }

    /// Keeps the values of `before` that can't change while the relay runs. Returns the keys whose
    /// new values need a restart.
    pub(crate) fn keep_fixed(&mut self, before: &Self) -> Vec<&'static str> {
        let (new, old) = (&mut self.limits, &before.limits);
        let mut fixed = vec![
            keep_value(
                "limits.connections",
                &mut new.connections_max,
                &old.connections_max,
            ),
            keep_value("limits.workers", &mut new.workers, &old.workers),
            keep_value("limits.memory", &mut new.memory, &old.memory),
            keep_value("mtu_probing", &mut self.mtu_probing, &before.mtu_probing),
            keep_value("counters.file", &mut self.counters, &before.counters),
            keep_value(
                "counters.access_log",
                &mut self.access_log,
                &before.access_log,
            ),
            keep_value(
                "counters.access_log_format",
                &mut self.access_log_format,
                &before.access_log_format,
            ),
            keep_value("admin.address", &mut self.admin, &before.admin),
            keep_value("admin.health", &mut self.health, &before.health),
        ];
        // The descriptor limit determined this value at the start.
        self.pool.pipes_max = before.pool.pipes_max;
        fixed.push(keep_value("limits.pipe_size", &mut self.pool, &before.pool));
        fixed.into_iter().flatten().collect()
    }

    fn check_references(&self) -> anyhow::Result<()> {
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
                .and_then(|()| listener.check_intercept_port(&self.listeners[..n]))
                .context(Table::Listener(n))?;
        }
        self.check_listener_names(&names)
    }

    fn check_listener(&self, listener: &ListenerConfig, is_new: bool) -> anyhow::Result<()> {
        self.check_source(listener)?;
        listener.check_exposure().context(Part::value("address"))?;
        let unnamed = listener.address.port() == 0;
        if is_new || unnamed {
            Ok(())
        } else {
            let name = &listener.name;
            let (key, problem) = if *name == listener.address.to_string() {
                let problem =
                    format!("two listeners have the address {name}: give each its own port");
                ("address", problem)
            } else {
                ("name", format!("two listeners have the name {name}"))
            };
            Err(Refusal::option(listener.kind.to_string(), problem).context(Part::Key(key)))
        }
    }

    /// Refuses rules for listeners that do not exist: such a rule would never apply, so the name is
    /// mistyped.
    fn check_listener_names(&self, names: &BTreeSet<&String>) -> anyhow::Result<()> {
        for (n, rule) in self.policy.rules.iter().enumerate() {
            if let Some(name) = rule.listeners.iter().find(|name| !names.contains(name)) {
                let problem = format!("no listener is called {name}");
                return in_table(Err(refused("listener", problem)), Table::Route(n));
            }
        }
        Ok(())
    }

    /// Refuses `keep_source` with peers: the leg to a peer can't have the client's address.
    fn check_source(&self, listener: &ListenerConfig) -> anyhow::Result<()> {
        let Kind::Transparent { keep_source: true } = listener.kind else {
            return Ok(());
        };
        let applies =
            |rule: &&Rule| rule.listeners.is_empty() || rule.listeners.contains(&listener.name);
        let rules = self.policy.rules.iter().filter(applies);
        let mut chains = rules
            .flat_map(|rule| &rule.target)
            .flat_map(|target| &target.chains);
        if chains.any(|chain| !chain.is_empty()) {
            let problem = "keep_source (--keep-source) and peers (--peer, via) exclude each other: the leg \
                           to a peer is the relay's own";
            Err(Refusal::option("keep-source", problem).context(Part::Key("keep_source")))
        } else {
            Ok(())
        }
    }
}

fn keep_value<T: Clone + PartialEq>(
    key: &'static str,
    new: &mut T,
    old: &T,
) -> Option<&'static str> {
    let changed = new != old;
    new.clone_from(old);
    changed.then_some(key)
}

fn listeners(settings: &Settings, profiles: &Profiles) -> anyhow::Result<Vec<ListenerConfig>> {
    let listener = |(n, own): (usize, &ListenerSettings)| {
        let named = |error| Refusal::with_prefix(error, &format!("listener {}: ", own.name()));
        ListenerConfig::new(own, settings, profiles)
            .map_err(named)
            .context(Table::Listener(n))
    };
    settings.listener.iter().enumerate().map(listener).collect()
}

/// Refuses an admin address off loopback: the endpoint has no authentication and shows who talks to
/// whom.
fn admin(settings: &Settings) -> anyhow::Result<Option<SocketAddr>> {
    match settings.admin.address {
        Some(address) if !address.ip().is_loopback() => {
            let port = address.port();
            let problem = format!(
                "admin {address} (--admin, admin.address) is not on loopback, and it has no authentication: \
                 for health checks of load balancers use --health; else use 127.0.0.1:{port} and reach it with \
                 ssh -L {port}:127.0.0.1:{port} HOST or through a reverse proxy that does"
            );
            Err(Refusal::option("admin", problem).context(Part::Key("address")))
        }
        address => Ok(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn checked(text: &str) -> Result<Config, String> {
        let settings = toml::from_str(text).map_err(|error| error.to_string())?;
        Config::new(&settings).map_err(|error| error.to_string())
    }

    #[test]
    fn reports_errors_of_a_file() {
        let listener = "[[listener]]\nkind = 'socks5'\naddress = '127.0.0.1:1080'\n";
        for (text, word) in [
            ("[[route]]\nvia = ['tokyo']", "no peer is called tokyo"),
            (
                "[[route]]\ndeny = true\nprofile = 'upstream'",
                "deny excludes",
            ),
            ("[[route]]\nlistener = ['web']", "no listener is called web"),
            (
                "[[route]]\nprofile = 'long'",
                "there are: downstream, upstream",
            ),
            ("[profile.long]\ndscp = 64", "0 to 63"),
            ("[profile.long]\nmss = 40", "88"),
            (
                "[peer.p]\naddress = '10.0.0.1'\nstreams = 17",
                "\"auto\" or 1 to 16",
            ),
            ("[profile.long]\ninitial_window = 0", "1 to 1024"),
            ("[profile.long]\ninitial_window = 1025", "1 to 1024"),
            ("[profile.long]\nkeepalive = '100ms'", "1s"),
            (
                "[[listener]]\nkind = 'forward'\naddress = '[::1]:1'",
                "needs a destination",
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
                "verify_connect need",
            ),
            (
                "[[listener]]\nkind = 'transparent'\naddress = '127.0.0.1:1'\n\
                 intercept = ['10.0.0.0/8']\nverify_connect = true\naccept_proxy = true",
                "verify_connect and accept_proxy",
            ),
            (
                "[[listener]]\nkind = 'http'\naddress = '127.0.0.1:1080'",
                "two listeners have the address 127.0.0.1:1080",
            ),
        ] {
            let problem = checked(&format!("{listener}{text}")).unwrap_err();
            assert!(problem.contains(word), "{text}: {problem}");
        }
    }

    #[test]
    fn accepts_example_file() {
        let config = checked(include_str!("example.toml")).unwrap();
        assert_eq!(config.listeners.len(), 2);
        assert_eq!(config.policy.rules.len(), 3);
        let target = config.policy.rules[1].target.as_ref().unwrap();
        assert_eq!(target.chains.len(), 3);
        assert_eq!(target.chains[0][0].profile.name, "long");
    }
}
