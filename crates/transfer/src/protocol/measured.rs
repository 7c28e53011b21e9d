// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an end has measured of itself, as it tells its driver.

use longhaul_scheduling::{self as scheduling, Stage};
use longhaul_tcpsim::limiter::Limiter;
use serde::{Deserialize, Serialize};

/// All that an end has measured since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Since when.
    pub elapsed_us: u64,
    /// Where its threads' time went.
    pub stages: Stages,
    /// Part of the time waited: for a CPU.
    pub crowded_us: u64,
    /// CPUs that it may use.
    pub cpus: u32,
    /// The machine that it runs on: the same number, the same machine.
    pub machine: u64,
    /// What its sockets say; only the source's.
    pub network: Network,
}

same_fields!(
    Measured,
    scheduling::Measured {
        elapsed_us,
        stages,
        crowded_us,
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
    fn of(&mut self, stage: Stage) -> &mut Spent {
        match stage {
            Stage::Idle => &mut self.idle,
            Stage::Reading => &mut self.reading,
            Stage::Hashing => &mut self.hashing,
            Stage::Sending => &mut self.sending,
            Stage::Limited => &mut self.limited,
            Stage::Receiving => &mut self.receiving,
            Stage::Writing => &mut self.writing,
            Stage::Looking => &mut self.looking,
            Stage::Syncing => &mut self.syncing,
            Stage::Resting => &mut self.resting,
        }
    }
}

impl From<scheduling::Stages> for Stages {
    fn from(own: scheduling::Stages) -> Self {
        let mut wire = Self::default();
        for stage in Stage::ALL {
            *wire.of(stage) = own[stage].into();
        }
        wire
    }
}

impl From<Stages> for scheduling::Stages {
    fn from(mut wire: Stages) -> Self {
        let mut own = Self::default();
        for stage in Stage::ALL {
            own[stage] = (*wire.of(stage)).into();
        }
        own
    }
}

/// Time in one stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// On a CPU.
    pub ran_us: u64,
    /// The rest: for a disk, for a socket, for a CPU.
    pub waited_us: u64,
}

same_fields!(Spent, scheduling::Spent { ran_us, waited_us });

/// What the source's sockets say of their streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Streams that are open.
    pub streams: u32,
    /// How long what limited them.
    pub limited_us: Limited,
    /// Their congestion control doesn't take single losses for congestion, as BBR.
    pub shrugs_off_losses: bool,
    /// Bytes sent, those sent again included.
    pub sent_bytes: u64,
    /// Bytes sent again.
    pub again_bytes: u64,
    /// Segments sent again.
    pub again_segments: u64,
    /// Round-trip time now, the mean of all streams; 0 if it is not known.
    pub rtt_us: u32,
    /// The smallest that any stream has seen; 0 if it is not known.
    pub rtt_min_us: u32,
}

same_fields!(
    Network,
    scheduling::Network {
        streams,
        limited_us,
        shrugs_off_losses,
        sent_bytes,
        again_bytes,
        again_segments,
        rtt_us,
        rtt_min_us
    }
);

/// How long what limited streams, in microseconds of all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limited {
    pub application: u64,
    pub receive_window: u64,
    pub send_buffer: u64,
    pub congestion_window: u64,
    pub pacing: u64,
}

impl Limited {
    fn by(&mut self, limiter: Limiter) -> &mut u64 {
        match limiter {
            Limiter::Application => &mut self.application,
            Limiter::ReceiveWindow => &mut self.receive_window,
            Limiter::SendBuffer => &mut self.send_buffer,
            Limiter::CongestionWindow => &mut self.congestion_window,
            Limiter::Pacing => &mut self.pacing,
        }
    }
}

/// In the order of [`Limiter::ALL`].
impl From<[u64; 5]> for Limited {
    fn from(own: [u64; 5]) -> Self {
        let mut wire = Self::default();
        for (limiter, us) in Limiter::ALL.into_iter().zip(own) {
            *wire.by(limiter) = us;
        }
        wire
    }
}

impl From<Limited> for [u64; 5] {
    fn from(mut wire: Limited) -> Self {
        Limiter::ALL.map(|limiter| *wire.by(limiter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_end_measured_its_driver_reads() {
        let mut own = scheduling::Measured {
            elapsed_us: 1,
            machine: 2,
            ..scheduling::Measured::default()
        };
        for (stage, us) in Stage::ALL.into_iter().zip(10..) {
            own.stages[stage].ran_us = us;
        }
        for (limiter, us) in Limiter::ALL.into_iter().zip(30..) {
            own.network.limited(limiter, us);
        }
        let wire = Measured::from(own);
        assert_eq!(wire.stages.reading.ran_us, 11);
        assert_eq!(wire.network.limited_us.pacing, 34);
        // In the order of the protocol.
        let ran = (10..20).flat_map(|us| [us, 0]).collect::<Vec<u8>>();
        assert_eq!(postcard::to_stdvec(&wire.stages).unwrap(), ran);
        let limited = postcard::to_stdvec(&wire.network.limited_us).unwrap();
        assert_eq!(limited, [30, 31, 32, 33, 34]);
        assert_eq!(scheduling::Measured::from(wire), own);
    }
}
