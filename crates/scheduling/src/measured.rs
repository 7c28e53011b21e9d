// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an end of a copy has measured of itself: where its threads' time went, and what its sockets say.

use longhaul_tcpsim::limiter::Limiter;
use std::ops::{Index, IndexMut};

/// What a thread of a copy does at a time. The first five are the source's streams', the next two the target's; the
/// rest is done by one thread at either end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Has nothing to send.
    Idle,
    /// Reads a file.
    Reading,
    /// Hashes a block.
    Hashing,
    /// Encrypts, and writes to the socket.
    Sending,
    /// Waits until a limit that was asked for lets it send.
    Limited,
    /// Reads from the socket, and decrypts.
    Receiving,
    /// Checks a block, and writes it to its file.
    Writing,
    /// Finds what there is, or what of it is there already.
    Looking,
    /// Makes durable what was written, and gives files their names.
    Syncing,
    /// Waits for other threads.
    Resting,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Idle,
        Self::Reading,
        Self::Hashing,
        Self::Sending,
        Self::Limited,
        Self::Receiving,
        Self::Writing,
        Self::Looking,
        Self::Syncing,
        Self::Resting,
    ];
}

/// Time in one stage, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// On a CPU.
    pub ran_us: u64,
    /// The rest: for a disk, for a socket, for a CPU.
    pub waited_us: u64,
}

/// Time in all stages, summed over threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages([Spent; Stage::ALL.len()]);

impl Index<Stage> for Stages {
    type Output = Spent;

    fn index(&self, stage: Stage) -> &Spent {
        &self.0[stage as usize]
    }
}

impl IndexMut<Stage> for Stages {
    fn index_mut(&mut self, stage: Stage) -> &mut Spent {
        &mut self.0[stage as usize]
    }
}

impl Stages {
    /// Adds another thread's.
    pub fn add(&mut self, other: &Self) {
        for (mine, other) in self.0.iter_mut().zip(&other.0) {
            mine.ran_us += other.ran_us;
            mine.waited_us += other.waited_us;
        }
    }

    /// On a CPU, in whatever stage.
    #[must_use]
    pub fn ran_us(&self) -> u64 {
        self.0.iter().map(|spent| spent.ran_us).sum()
    }

    fn since(&self, before: &Self) -> Self {
        let mut rest = *self;
        for (rest, before) in rest.0.iter_mut().zip(&before.0) {
            rest.ran_us = rest.ran_us.saturating_sub(before.ran_us);
            rest.waited_us = rest.waited_us.saturating_sub(before.waited_us);
        }
        rest
    }
}

/// What the source's sockets say of their streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Network {
    /// Streams that are open.
    pub streams: u32,
    /// How long what limited them, in microseconds of all streams, in the order of [`Limiter::ALL`]. Pacing is only
    /// what was asked for; a congestion control's own counts as its window.
    pub limited_us: [u64; 5],
    /// Their congestion control doesn't take single losses for congestion, as BBR.
    pub shrugs_off_losses: bool,
    /// Bytes sent, those sent again included.
    pub sent_bytes: u64,
    /// Bytes sent again.
    pub again_bytes: u64,
    /// Segments sent again.
    pub again_segments: u64,
    /// Round-trip time now, the mean of all streams, in microseconds; 0 if it is not known.
    pub rtt_us: u32,
    /// The smallest that any stream has seen, in microseconds; 0 if it is not known.
    pub rtt_min_us: u32,
}

impl Network {
    /// A stream was limited by this for so long.
    pub fn limited(&mut self, by: Limiter, for_us: u64) {
        if let Some(at) = Limiter::ALL.iter().position(|one| *one == by) {
            self.limited_us[at] += for_us;
        }
    }

    /// Its part of the time in which they had something to send.
    #[must_use]
    pub fn share(&self, of: Limiter) -> f64 {
        let all = || Limiter::ALL.into_iter().zip(self.limited_us);
        let sum = |wanted: &dyn Fn(Limiter) -> bool| -> u64 {
            all()
                .filter(|(one, _)| wanted(*one))
                .map(|(_, us)| us)
                .sum()
        };
        let busy = sum(&|one| one != Limiter::Application);
        sum(&|one| one == of) as f64 / busy.max(1) as f64
    }

    /// The part of all bytes that was sent again.
    #[must_use]
    pub fn again_share(&self) -> f64 {
        self.again_bytes as f64 / self.sent_bytes.max(1) as f64
    }

    fn since(&self, before: &Self) -> Self {
        let mut rest = *self;
        for (rest, before) in rest.limited_us.iter_mut().zip(before.limited_us) {
            *rest = rest.saturating_sub(before);
        }
        rest.sent_bytes = self.sent_bytes.saturating_sub(before.sent_bytes);
        rest.again_bytes = self.again_bytes.saturating_sub(before.again_bytes);
        rest.again_segments = self.again_segments.saturating_sub(before.again_segments);
        rest
    }
}

/// All that an end has measured since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// Since when, in microseconds.
    pub elapsed_us: u64,
    /// Where its threads' time went.
    pub stages: Stages,
    /// Part of the time waited: for a CPU, in microseconds.
    pub crowded_us: u64,
    /// CPUs that it may use.
    pub cpus: u32,
    /// The machine that it runs on: the same number, the same machine.
    pub machine: u64,
    /// What its sockets say; only the source's.
    pub network: Network,
}

impl Measured {
    /// What came since another look; what is no sum, as it is now. All of it if that look was of another process.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        if before.elapsed_us > self.elapsed_us {
            return *self;
        }
        Self {
            elapsed_us: self.elapsed_us - before.elapsed_us,
            stages: self.stages.since(&before.stages),
            crowded_us: self.crowded_us.saturating_sub(before.crowded_us),
            network: self.network.since(&before.network),
            ..*self
        }
    }

    /// The CPUs that its threads ran on or waited for, on average.
    #[must_use]
    pub fn wanted_cpus(&self) -> f64 {
        (self.stages.ran_us() + self.crowded_us) as f64 / self.elapsed_us.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_since_is_the_difference_and_of_another_process_all() {
        let mut before = Measured {
            elapsed_us: 100,
            ..Measured::default()
        };
        before.stages[Stage::Reading].waited_us = 40;
        before.network.sent_bytes = 1000;
        let mut now = before;
        now.elapsed_us = 300;
        now.stages[Stage::Reading].waited_us = 90;
        now.network.sent_bytes = 1500;
        now.network.rtt_us = 7;
        let rest = now.since(&before);
        assert_eq!(rest.elapsed_us, 200);
        assert_eq!(rest.stages[Stage::Reading].waited_us, 50);
        assert_eq!((rest.network.sent_bytes, rest.network.rtt_us), (500, 7));
        assert_eq!(before.since(&now), before);
    }

    #[test]
    fn streams_without_data_don_t_say_what_limits_the_others() {
        let mut network = Network::default();
        network.limited(Limiter::Application, 900);
        network.limited(Limiter::SendBuffer, 60);
        network.limited(Limiter::Pacing, 40);
        assert!((network.share(Limiter::SendBuffer) - 0.6).abs() < 1e-9);
    }
}
