// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the relay tells its admin endpoint.

use super::{Relay, counters, drain::Phase, validity::Certificates};
use crate::admin::{
    Source,
    record::{
        Certificate, Health, HealthStatus, PeerState, PeerUsage, Process, Snapshot, Status,
        Throughput,
    },
};
use jiff::{Timestamp, ToSpan as _};
use std::sync::Arc;

impl Source for Arc<Relay> {
    fn health(&self) -> Health {
        let is_steady = self.pulse.is_steady(std::time::Instant::now());
        Health {
            status: status(self.drain.phase(), is_steady),
            memory_exhausted: self.memory.is_exhausted(),
        }
    }

    async fn status(&self) -> Status {
        let legs = self.survey.latest().await.legs.clone();
        let relay = counters(self);
        let peer = |counts: &super::record::PeerCounts| PeerState {
            usage: PeerUsage::of(&counts.name, &legs),
            counts: counts.clone(),
        };
        let uptime = self.started.elapsed();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit().to_owned(),
            started: Timestamp::now() - (uptime.as_millis() as i64).milliseconds(),
            uptime_s: uptime.as_secs_f64(),
            health: self.health(),
            peers: relay.peers.iter().map(peer).collect(),
            relay,
            legs,
            times: self.doors.times(),
            reload: self.reloads.read(),
            certificates: certificates(self),
            process: process(),
        }
    }

    async fn connections(&self) -> Arc<Snapshot> {
        self.survey.latest().await
    }

    fn throughput(&self) -> Throughput {
        self.history.read()
    }
}

/// Behind the version, if there is one (build.rs).
fn commit() -> &'static str {
    let whole = env!("LONGHAUL_VERSION");
    whole.split_once('+').map_or("", |(_, commit)| commit)
}

fn process() -> Option<Process> {
    let usage = host::process_usage::own().ok()?;
    Some(Process {
        started: usage.started.try_into().ok()?,
        cpu_s: usage.cpu_s,
        resident_bytes: usage.resident_bytes,
        virtual_bytes: usage.virtual_bytes,
        threads: usage.threads,
        open_fds: usage.descriptors,
        max_fds: host::descriptors::limits().0,
    })
}

fn certificates(relay: &Relay) -> Vec<Certificate> {
    let config = relay.config();
    let listeners = config.listeners.iter().filter_map(|listener| {
        let tls = listener.tls.as_ref()?;
        Some(both("listener", &listener.name, tls.certificates()))
    });
    let peers = config.peers.values().filter_map(|peer| {
        let tls = peer.tls.as_ref()?;
        Some(both("peer", &peer.name, tls.certificates()))
    });
    listeners.chain(peers).flatten().collect()
}

/// The own certificate and the authority's.
fn both(user: &str, name: &str, of: &Certificates) -> Vec<Certificate> {
    let own = ("own", &of.written.certificate, of.own_end());
    let authority = ("authority", &of.written.ca, of.authority_end());
    let certificate = |(role, file, end): (&str, &std::path::PathBuf, Option<Timestamp>)| {
        Some(Certificate {
            user: user.to_owned(),
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

/// A relay that is about to end is not waited for, whatever its workers do.
fn status(phase: Phase, is_steady: bool) -> HealthStatus {
    match (phase, is_steady) {
        (Phase::Run, true) => HealthStatus::Serving,
        (Phase::Run, false) => HealthStatus::Stalled,
        (Phase::Drain | Phase::Cut | Phase::Stop, _) => HealthStatus::Draining,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_welcome_while_all_workers_live() {
        assert_eq!(status(Phase::Run, true), HealthStatus::Serving);
        assert_eq!(status(Phase::Run, false), HealthStatus::Stalled);
        for phase in [Phase::Drain, Phase::Cut, Phase::Stop] {
            assert_eq!(status(phase, true), HealthStatus::Draining);
            assert_eq!(status(phase, false), HealthStatus::Draining);
        }
    }
}
