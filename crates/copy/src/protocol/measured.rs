// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurements that an endpoint makes of itself and reports to the coordinator.

use longhaul_linux::limiter::Limiter;
use longhaul_scheduling::{self as scheduling, Stage};
use serde::{Deserialize, Serialize};

/// Measurements of an endpoint since the start of the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Time since the start of the session.
    pub elapsed_us: u64,
    /// Time of the threads, by stage.
    pub stages: Stages,
    /// Part of the waiting time that was spent waiting for a CPU.
    pub runqueue_wait_us: u64,
    /// CPUs that the endpoint may use.
    pub cpus: u32,
    /// Identifier of the machine that the endpoint runs on. Equal numbers mean the same machine.
    pub machine: u64,
    /// State of the sockets; only the source measures it.
    pub network: Network,
}

same_fields!(
    Measured,
    scheduling::Metrics {
        elapsed_us,
        stages,
        runqueue_wait_us,
        cpus,
        machine,
        network
    }
);

/// Time in all stages, summed over threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    pub idle: Spent,
    pub reading: Spent,
    pub hashing: Spent,
    pub sending: Spent,
    pub limited: Spent,
    pub receiving: Spent,
    pub writing: Spent,
    pub looking: Spent,
    pub syncing: Spent,
    pub resting: Spent,
}

impl Stages {
    fn get_mut(&mut self, stage: Stage) -> &mut Spent {
        match stage {
            Stage::Idle => &mut self.idle,
            Stage::Reading => &mut self.reading,
            Stage::Hashing => &mut self.hashing,
            Stage::Sending => &mut self.sending,
            Stage::Limited => &mut self.limited,
            Stage::Receiving => &mut self.receiving,
            Stage::Writing => &mut self.writing,
            Stage::Scanning => &mut self.looking,
            Stage::Syncing => &mut self.syncing,
            Stage::Waiting => &mut self.resting,
        }
    }
}

impl From<scheduling::StageTimes> for Stages {
    fn from(own: scheduling::StageTimes) -> Self {
        let mut wire = Self::default();
        for stage in Stage::ALL {
            *wire.get_mut(stage) = own[stage].into();
        }
        wire
    }
}

impl From<Stages> for scheduling::StageTimes {
    fn from(mut wire: Stages) -> Self {
        let mut own = Self::default();
        for stage in Stage::ALL {
            own[stage] = (*wire.get_mut(stage)).into();
        }
        own
    }
}

/// Time in one stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Time on a CPU.
    pub ran_us: u64,
    /// Time of waiting for a disk, a socket or a CPU.
    pub waited_us: u64,
}

same_fields!(Spent, scheduling::StageTime { ran_us, waited_us });

/// Statistics of the source's sockets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Number of open streams.
    pub streams: u32,
    /// Time during which each factor limited the streams.
    pub limited_us: LimiterTimes,
    /// Whether the congestion control ignores single losses, as BBR does.
    pub ignores_single_losses: bool,
    /// Bytes sent, with retransmissions.
    pub sent_bytes: u64,
    /// Bytes retransmitted.
    pub retransmitted_bytes: u64,
    /// Segments retransmitted.
    pub retransmitted_segments: u64,
    /// Current round-trip time, the mean of all streams; 0 if unknown.
    pub rtt_us: u32,
    /// Smallest round-trip time of any stream; 0 if unknown.
    pub rtt_min_us: u32,
}

same_fields!(
    Network,
    scheduling::Network {
        streams,
        limited_us,
        ignores_single_losses,
        sent_bytes,
        retransmitted_bytes,
        retransmitted_segments,
        rtt_us,
        rtt_min_us
    }
);

/// Time during which each factor limited the streams, in microseconds, summed over the streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimiterTimes {
    pub application: u64,
    pub receive_window: u64,
    pub send_buffer: u64,
    pub congestion_window: u64,
    pub pacing: u64,
}

impl LimiterTimes {
    fn get_mut(&mut self, limiter: Limiter) -> &mut u64 {
        match limiter {
            Limiter::Application => &mut self.application,
            Limiter::ReceiveWindow => &mut self.receive_window,
            Limiter::SendBuffer => &mut self.send_buffer,
            Limiter::CongestionWindow => &mut self.congestion_window,
            Limiter::Pacing => &mut self.pacing,
        }
    }
}

/// Converts the times, in the order of [`Limiter::ALL`].
impl From<[u64; 5]> for LimiterTimes {
    fn from(own: [u64; 5]) -> Self {
        let mut wire = Self::default();
        for (limiter, us) in Limiter::ALL.into_iter().zip(own) {
            *wire.get_mut(limiter) = us;
        }
        wire
    }
}

impl From<LimiterTimes> for [u64; 5] {
    fn from(mut wire: LimiterTimes) -> Self {
        Limiter::ALL.map(|limiter| *wire.get_mut(limiter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_convert_and_keep_their_wire_order() {
        let mut own = scheduling::Metrics {
            elapsed_us: 1,
            machine: 2,
            ..scheduling::Metrics::default()
        };
        for (stage, us) in Stage::ALL.into_iter().zip(10..) {
            own.stages[stage].ran_us = us;
        }
        for (limiter, us) in Limiter::ALL.into_iter().zip(30..) {
            own.network.add_limited_time(limiter, us);
        }
        let wire = Measured::from(own);
        assert_eq!(wire.stages.reading.ran_us, 11);
        assert_eq!(wire.network.limited_us.pacing, 34);
        // The order of the protocol.
        let ran = (10..20).flat_map(|us| [us, 0]).collect::<Vec<u8>>();
        assert_eq!(postcard::to_stdvec(&wire.stages).unwrap(), ran);
        let limited = postcard::to_stdvec(&wire.network.limited_us).unwrap();
        assert_eq!(limited, [30, 31, 32, 33, 34]);
        assert_eq!(scheduling::Metrics::from(wire), own);
    }
}
