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
        let (held, budget) = self.memory.read();
        let status = match self.drain.phase() {
            Phase::Run if self.pulse.is_steady(std::time::Instant::now()) => HealthStatus::Serving,
            Phase::Run => HealthStatus::Stalled,
            Phase::Drain | Phase::Cut | Phase::Stop => HealthStatus::Draining,
        };
        Health {
            status,
            memory_exhausted: held >= budget,
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
