// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurements of an endpoint of a copy: the time of its threads by stage, and the state of its sockets.

use longhaul_linux::limiter::Limiter;
use serde::{Deserialize, Serialize};
use std::ops::{Index, IndexMut};

/// The activity of a thread of a copy. The first five are activities of the source's streams, the next two of the
/// target's streams. The others belong to one thread at either end. Their order is part of the protocol of copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Has nothing to send.
    Idle,
    /// Reads a file.
    Reading,
    /// Hashes a block.
    Hashing,
    /// Encrypts data, and writes it to the socket.
    Sending,
    /// Waits until the limit that the user set lets it send.
    Limited,
    /// Reads data from the socket, and decrypts it.
    Receiving,
    /// Checks a block, and writes it to its file.
    Writing,
    /// Scans the source, or looks up which files the target has already.
    Scanning,
    /// Syncs files to disk, and gives them their names.
    Syncing,
    /// Waits for other threads.
    Waiting,
}

impl Stage {
    /// Every stage, in the order of declaration.
    pub const ALL: [Self; 10] = [
        Self::Idle,
        Self::Reading,
        Self::Hashing,
        Self::Sending,
        Self::Limited,
        Self::Receiving,
        Self::Writing,
        Self::Scanning,
        Self::Syncing,
        Self::Waiting,
    ];
}

/// Time in one stage, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTime {
    /// Time on a CPU.
    pub ran_us: u64,
    /// Time of waiting for a disk, a socket or a CPU.
    pub waited_us: u64,
}

/// Time in all stages, summed over threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTimes([StageTime; Stage::ALL.len()]);

impl Index<Stage> for StageTimes {
    type Output = StageTime;

    fn index(&self, stage: Stage) -> &StageTime {
        &self.0[stage as usize]
    }
}

impl IndexMut<Stage> for StageTimes {
    fn index_mut(&mut self, stage: Stage) -> &mut StageTime {
        &mut self.0[stage as usize]
    }
}

impl StageTimes {
    /// Adds the times of another thread.
    pub fn add(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            own.ran_us += other.ran_us;
            own.waited_us += other.waited_us;
        }
    }

    /// Time on a CPU in all stages, in microseconds.
    #[must_use]
    pub fn ran_us(&self) -> u64 {
        self.0.iter().map(|spent| spent.ran_us).sum()
    }

    fn since(&self, before: &Self) -> Self {
        let mut difference = *self;
        for (own, before) in difference.0.iter_mut().zip(&before.0) {
            own.ran_us = own.ran_us.saturating_sub(before.ran_us);
            own.waited_us = own.waited_us.saturating_sub(before.waited_us);
        }
        difference
    }
}

/// State of the source's sockets, over all streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Streams that are open.
    pub streams: u32,
    /// Time for which each limiter held streams back, in microseconds, summed over all streams, in the order of
    /// [`Limiter::ALL`]. [`Limiter::Pacing`] counts only pacing that the user set. Pacing by a congestion control
    /// counts as [`Limiter::CongestionWindow`].
    pub limited_us: [u64; 5],
    /// Whether the congestion control ignores single losses, as BBR does.
    pub ignores_single_losses: bool,
    /// Bytes sent, retransmissions included.
    pub sent_bytes: u64,
    /// Bytes retransmitted.
    pub retransmitted_bytes: u64,
    /// Segments retransmitted.
    pub retransmitted_segments: u64,
    /// Current round-trip time, as the mean of all streams, in microseconds; 0 if unknown.
    pub rtt_us: u32,
    /// Smallest round-trip time of any stream, in microseconds; 0 if unknown.
    pub rtt_min_us: u32,
}

impl Network {
    /// Adds `for_us` microseconds for which the limiter `by` held a stream back.
    pub fn add_limited_time(&mut self, by: Limiter, for_us: u64) {
        if let Some(at) = Limiter::ALL.iter().position(|one| *one == by) {
            self.limited_us[at] += for_us;
        }
    }

    /// Share of the time with data to send in which `limiter` held streams back, 0 to 1.
    #[must_use]
    pub fn limited_share(&self, limiter: Limiter) -> f64 {
        let all = || Limiter::ALL.into_iter().zip(self.limited_us);
        let sum = |matches: &dyn Fn(Limiter) -> bool| -> u64 {
            all()
                .filter(|(one, _)| matches(*one))
                .map(|(_, us)| us)
                .sum()
        };
        let busy = sum(&|one| one != Limiter::Application);
        sum(&|one| one == limiter) as f64 / busy.max(1) as f64
    }

    /// Share of all bytes sent that were retransmissions, 0 to 1.
    #[must_use]
    pub fn retransmitted_share(&self) -> f64 {
        self.retransmitted_bytes as f64 / self.sent_bytes.max(1) as f64
    }

    fn since(&self, before: &Self) -> Self {
        let mut difference = *self;
        for (own, before) in difference.limited_us.iter_mut().zip(before.limited_us) {
            *own = own.saturating_sub(before);
        }
        difference.sent_bytes = self.sent_bytes.saturating_sub(before.sent_bytes);
        difference.retransmitted_bytes = self
            .retransmitted_bytes
            .saturating_sub(before.retransmitted_bytes);
        difference.retransmitted_segments = self
            .retransmitted_segments
            .saturating_sub(before.retransmitted_segments);
        difference
    }
}

/// Measurements of an endpoint since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    /// Time since the start, in microseconds.
    pub elapsed_us: u64,
    /// Time of all threads by stage.
    pub stages: StageTimes,
    /// Time of waiting for a CPU, in microseconds. The waiting times in `stages` include it.
    pub runqueue_wait_us: u64,
    /// CPUs that the endpoint may use.
    pub cpus: u32,
    /// Identifier of the machine that the endpoint runs on. Endpoints with the same number are on the same machine.
    pub machine: u64,
    /// State of its sockets. Only the source has it.
    pub network: Network,
}

impl Metrics {
    /// Returns the difference to an earlier measurement. Values that are not sums stay as they are now. If the earlier
    /// measurement is of another process, which ran for longer, all of this one is returned.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        if before.elapsed_us > self.elapsed_us {
            return *self;
        }
        Self {
            elapsed_us: self.elapsed_us - before.elapsed_us,
            stages: self.stages.since(&before.stages),
            runqueue_wait_us: self
                .runqueue_wait_us
                .saturating_sub(before.runqueue_wait_us),
            network: self.network.since(&before.network),
            ..*self
        }
    }

    /// CPUs that the threads ran on or waited for, on average.
    #[must_use]
    pub fn cpu_demand(&self) -> f64 {
        (self.stages.ran_us() + self.runqueue_wait_us) as f64 / self.elapsed_us.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_returns_the_difference_or_all_of_a_new_process() {
        let mut before = Metrics {
            elapsed_us: 100,
            ..Metrics::default()
        };
        before.stages[Stage::Reading].waited_us = 40;
        before.network.sent_bytes = 1000;
        let mut now = before;
        now.elapsed_us = 300;
        now.stages[Stage::Reading].waited_us = 90;
        now.network.sent_bytes = 1500;
        now.network.rtt_us = 7;
        let difference = now.since(&before);
        assert_eq!(difference.elapsed_us, 200);
        assert_eq!(difference.stages[Stage::Reading].waited_us, 50);
        assert_eq!(
            (difference.network.sent_bytes, difference.network.rtt_us),
            (500, 7)
        );
        assert_eq!(before.since(&now), before);
    }

    #[test]
    fn limited_share_excludes_time_without_data() {
        let mut network = Network::default();
        network.add_limited_time(Limiter::Application, 900);
        network.add_limited_time(Limiter::SendBuffer, 60);
        network.add_limited_time(Limiter::Pacing, 40);
        assert!((network.limited_share(Limiter::SendBuffer) - 0.6).abs() < 1e-9);
    }
}
