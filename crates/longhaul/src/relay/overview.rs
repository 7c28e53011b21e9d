// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the relay tells its admin endpoint.

use super::{Relay, counters, drain::Phase};
use crate::admin::{
    Source,
    record::{Health, HealthStatus, PeerState, PeerUsage, Snapshot, Status, Throughput},
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
            started: Timestamp::now() - (uptime.as_millis() as i64).milliseconds(),
            uptime_s: uptime.as_secs_f64(),
            health: self.health(),
            peers: relay.peers.iter().map(peer).collect(),
            relay,
            legs,
        }
    }

    async fn connections(&self) -> Arc<Snapshot> {
        self.survey.latest().await
    }

    fn throughput(&self) -> Throughput {
        self.history.read()
    }
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
