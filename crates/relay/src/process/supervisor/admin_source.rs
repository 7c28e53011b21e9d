// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data source of the admin endpoint.

use crate::{
    config::{Config, certificates::validity::Certificates},
    peers::{
        current::{Peers, Setup},
        peer::Peer,
    },
    relay::{Phase, Relay},
};
use jiff::{Timestamp, ToSpan as _};
use longhaul_admin::{
    Source,
    record::{
        Certificate, Health, HealthStatus, PeerState, PeerUsage, Process, Snapshot, Status,
        Throughput,
    },
};
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// The relay as data source of its admin endpoint.
#[derive(Clone)]
pub(crate) struct AdminSource(pub(crate) Arc<Relay>);

impl Source for AdminSource {
    fn health(&self) -> Health {
        let are_alive = self.0.heartbeats.are_all_alive(std::time::Instant::now());
        let Setup { config, peers } = self.0.setup();
        let is_down = |peer: &&Arc<Peer>| !peer.state.health.is_up();
        let down = peers.all().filter(is_down);
        let obstacle = if has_no_upstream(&config, &peers) {
            Some(HealthStatus::NoUpstream)
        } else if self.0.heartbeats.intercepts.load(Relaxed) {
            None
        } else {
            Some(HealthStatus::NotIntercepting)
        };
        Health {
            status: status(self.0.lifecycle.phase(), are_alive, obstacle),
            peers_down: down.map(|peer| peer.config.name.clone()).collect(),
            connections_exhausted: self.0.connection_limit.is_reached(),
            descriptors_exhausted: self.0.descriptor_limit.is_reached(),
            memory_exhausted: self.0.memory.is_exhausted(),
        }
    }

    async fn status(&self) -> Status {
        let legs = self.0.sampler.snapshot().await.legs.clone();
        let relay = self.0.counters();
        let peer = |counts: &longhaul_admin::relay_record::PeerCounts| PeerState {
            usage: PeerUsage::from_legs(&counts.name, &legs),
            counts: counts.clone(),
        };
        let uptime = self.0.started.elapsed();
        Status {
            version: longhaul_command::release().to_owned(),
            commit: commit().to_owned(),
            started: Timestamp::now() - (uptime.as_millis() as i64).milliseconds(),
            uptime_s: uptime.as_secs_f64(),
            health: self.health(),
            peers: relay.peers.iter().map(peer).collect(),
            relay,
            legs,
            times: self.0.listeners.durations(),
            reload: self.0.reloads.read(),
            certificates: certificates(&self.0),
            process: process(),
        }
    }

    async fn connections(&self) -> Arc<Snapshot> {
        self.0.sampler.snapshot().await
    }

    fn throughput(&self) -> Throughput {
        self.0.history.read()
    }
}

/// Returns the commit from the version, or an empty string (build.rs).
fn commit() -> &'static str {
    let whole = longhaul_command::version();
    whole.split_once('+').map_or("", |(_, commit)| commit)
}

fn process() -> Option<Process> {
    let usage = longhaul_linux::process_usage::own().ok()?;
    Some(Process {
        started: usage.start_time.try_into().ok()?,
        cpu_s: usage.cpu_s,
        resident_bytes: usage.resident_bytes,
        virtual_bytes: usage.virtual_bytes,
        threads: usage.threads,
        open_fds: usage.descriptors,
        max_fds: longhaul_linux::descriptors::limits().0,
    })
}

fn certificates(relay: &Relay) -> Vec<Certificate> {
    let config = relay.config();
    let listeners = config.listeners.iter().filter_map(|listener| {
        let tls = listener.tls.as_ref()?;
        Some(own_and_authority(
            "listener",
            &listener.name,
            tls.certificates(),
        ))
    });
    let peers = config.peers.values().filter_map(|peer| {
        let tls = peer.tls.as_ref()?;
        Some(own_and_authority("peer", &peer.name, tls.certificates()))
    });
    listeners.chain(peers).flatten().collect()
}

/// Returns the own certificate and the authority's.
fn own_and_authority(used_by: &str, name: &str, of: &Certificates) -> Vec<Certificate> {
    let own = ("own", &of.settings.certificate, of.own_not_after());
    let authority = ("authority", &of.settings.ca, of.authorities_not_after());
    let certificate = |(role, file, end): (&str, &std::path::PathBuf, Option<Timestamp>)| {
        Some(Certificate {
            used_by: used_by.to_owned(),
            name: name.to_owned(),
            role: role.to_owned(),
            file: file.display().to_string(),
            not_after: end?,
        })
    };
    [own, authority]
        .into_iter()
        .filter_map(certificate)
        .collect()
}

/// Returns the health status. A relay that drains reports so, whatever the state of its workers.
fn status(phase: Phase, are_alive: bool, obstacle: Option<HealthStatus>) -> HealthStatus {
    match (phase, are_alive) {
        (Phase::Run, true) => obstacle.unwrap_or(HealthStatus::Serving),
        (Phase::Run, false) => HealthStatus::Stalled,
        (Phase::Drain | Phase::Cut | Phase::Stop, _) => HealthStatus::Draining,
    }
}

/// Returns whether every listener needs a peer that is down. A listener whose rules only refuse
/// connections does not count.
fn has_no_upstream(config: &Config, peers: &Peers) -> bool {
    let mut blocked = config.listeners.iter().filter_map(|listener| {
        let targets = config.policy.targets_for(&listener.name);
        let any = !targets.is_empty();
        let open =
            listener.direct_fallback || targets.iter().any(|target| peers.is_any_chain_up(target));
        any.then_some(!open)
    });
    let first = blocked.next();
    first.is_some_and(|first| first && blocked.all(|blocked| blocked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_depends_on_phase_workers_and_reachable_peers() {
        let no_upstream = Some(HealthStatus::NoUpstream);
        assert_eq!(status(Phase::Run, true, None), HealthStatus::Serving);
        assert_eq!(
            status(Phase::Run, true, no_upstream),
            HealthStatus::NoUpstream
        );
        assert_eq!(
            status(Phase::Run, false, no_upstream),
            HealthStatus::Stalled
        );
        for phase in [Phase::Drain, Phase::Cut, Phase::Stop] {
            assert_eq!(status(phase, true, no_upstream), HealthStatus::Draining);
            assert_eq!(status(phase, false, None), HealthStatus::Draining);
        }
    }

    /// Returns whether a relay with this configuration is cut off while the peers `dead` are down.
    fn no_upstream(text: &str, dead: &[&str]) -> bool {
        let listeners = "[[listener]]\nkind = 'http'\naddress = '127.0.0.1:0'\nname = 'a'\n\
                         [[listener]]\nkind = 'socks5'\naddress = '127.0.0.1:0'\nname = 'b'\n";
        let peers = "[peer.x]\naddress = '192.0.2.1'\n[peer.y]\naddress = '192.0.2.2'\n";
        let text = format!("{listeners}{peers}{text}");
        let config = Config::new(&toml::from_str(&text).unwrap()).unwrap();
        let peers = Peers::new(&config, &Peers::default());
        for peer in peers
            .all()
            .filter(|peer| dead.contains(&peer.config.name.as_str()))
        {
            peer.state
                .health
                .record_failure(std::time::Instant::now(), 0.5);
        }
        has_no_upstream(&config, &peers)
    }

    #[test]
    fn no_upstream_only_if_every_listener_needs_down_peer() {
        let all = "[[route]]\nvia = ['x']\n";
        assert!(!no_upstream(all, &[]));
        assert!(no_upstream(all, &["x"]));
        assert!(!no_upstream(
            "[[route]]\nvia = ['x']\nfallback = [['y']]\n",
            &["x"]
        ));
        assert!(no_upstream(
            "[[route]]\nvia = ['x']\nfallback = [['y']]\n",
            &["x", "y"]
        ));
        assert!(!no_upstream(
            "[[route]]\nvia = ['x']\nfallback = [[]]\n",
            &["x"]
        ));
        // Destinations without a rule are connected to directly, and so are those of the other
        // listener.
        assert!(!no_upstream(
            "[[route]]\nvia = ['x']\nports = [80]\n",
            &["x"]
        ));
        assert!(!no_upstream(
            "[[route]]\nvia = ['x']\nlistener = ['a']\n",
            &["x"]
        ));
        let denied = "[[route]]\nlistener = ['b']\ndeny = true\n";
        assert!(no_upstream(&format!("{denied}{all}"), &["x"]));
        assert!(!no_upstream("[[route]]\ndeny = true\n", &["x", "y"]));
    }
}
