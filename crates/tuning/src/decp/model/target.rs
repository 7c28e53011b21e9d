// SPDX-License-Identifier: MIT OR Apache-2.0
//! T: the sum of rates that windows may have where caps stay.

use super::sample::{Estimate, Phase, Sample};
use longhaul_units::Time;

/// Least headroom, and the least queue that is distinguished from noise.
const HEADROOM_MIN: f64 = 0.02;
pub(super) const QUEUE_MIN: f64 = 0.01;
/// Delivery below this share of capacity, while caps limit all windows, shows that caps are too low …
const SHORT: f64 = 0.97;
/// … and they are raised, up to this multiple of the target …
const MAKE_UP_MAX: f64 = 2.0;
/// … if that lasts for this many round trips.
const SHORT_ROUNDS: u64 = 4;
/// Round trips between two probes: for one round trip the headroom is doubled, to see whether the link got faster.
const PROBE_ROUNDS: u64 = 10;
/// Losses are attributed to the longest queue of this many round trips before.
const BLAME_ROUNDS: u64 = 2;
/// Loss-free round trips in which headroom recovers 63 % of its reduction.
const RECOVERY_ROUNDS: f64 = 200.0;
/// Windows are limited by caps where their rate is at least this share of the budget.
const HELD: f64 = 0.9;

/// Estimates of the link's buffer and of delay that is not queueing, from which T follows.
#[derive(Debug)]
pub(super) struct Target {
    headroom_max: f64,
    headroom: f64,
    /// Whether a loss without a queue halves the headroom too.
    halves_without_queue: bool,
    /// Longest recent queue, and its time.
    longest_queue: (f64, Time),
    /// Factor of the target, because less was delivered than the link's capacity: on a busy host or a
    /// radio link round trips exceed the least one without a queue too.
    compensation: f64,
    shortfall_since: Option<Time>,
}

impl Target {
    pub(super) fn new(headroom: f64, blames_itself: bool) -> Self {
        Self {
            headroom_max: headroom,
            headroom,
            halves_without_queue: blames_itself,
            longest_queue: (0.0, Time::ZERO),
            compensation: 1.0,
            shortfall_since: None,
        }
    }

    /// Returns h.
    pub(super) fn headroom(&self) -> f64 {
        self.headroom
    }

    /// Updates from a sample in which the windows' rate was `total_rate` and was allowed to be `budget`;
    /// returns T, bytes a second.
    pub(super) fn update(
        &mut self,
        at: Sample,
        estimate: &Estimate,
        total_rate: f64,
        budget: f64,
    ) -> f64 {
        self.update_headroom(at, estimate.queue);
        let is_held = estimate.phase == Phase::Level && total_rate >= budget * HELD;
        self.update_compensation(at, estimate, is_held);
        let round = at.now.as_nanos() / at.rtt.as_nanos().max(1);
        // Where a loss has shown a short buffer, there is no room for a probe.
        let is_deep = self.headroom >= 0.9 * self.headroom_max;
        let probes =
            estimate.phase == Phase::Level && is_deep && round.is_multiple_of(PROBE_ROUNDS);
        let headroom = self.headroom * if probes { 2.0 } else { 1.0 };
        estimate.capacity * self.compensation * (1.0 + headroom)
    }

    fn update_headroom(&mut self, at: Sample, queue: f64) {
        let most = self.headroom_max;
        if queue >= self.longest_queue.0
            || at.now.since(self.longest_queue.1) > at.rtt * BLAME_ROUNDS
        {
            self.longest_queue = (queue, at.now);
        }
        if at.losses > 0 && self.longest_queue.0 >= QUEUE_MIN {
            self.headroom = (self.longest_queue.0 / 2.0).clamp(HEADROOM_MIN.min(most), most);
        } else if at.losses > 0 && self.halves_without_queue {
            // Slow start may have overflowed the buffer too briefly for a queue to be observed.
            self.headroom = (self.headroom / 2.0).max(HEADROOM_MIN.min(most));
        } else {
            self.headroom += (most - self.headroom) * at.rounds / RECOVERY_ROUNDS;
        }
    }

    /// Raises the target if all windows are limited by caps and less is delivered than the link's capacity.
    fn update_compensation(&mut self, at: Sample, estimate: &Estimate, is_held: bool) {
        let is_short = is_held && estimate.delivered < estimate.capacity * SHORT;
        self.shortfall_since = is_short.then(|| self.shortfall_since.unwrap_or(at.now));
        // The present rate of the windows is delivered a round trip and a span later.
        let stays_short = |since| at.now.since(since) >= at.rtt * SHORT_ROUNDS;
        if at.losses > 0 {
            self.compensation = 1.0 + (self.compensation - 1.0) / 2.0;
        } else if self.shortfall_since.is_some_and(stays_short) {
            let missing = (estimate.capacity / estimate.delivered.max(1.0) - 1.0).min(1.0);
            self.compensation = (self.compensation * (1.0 + missing * at.rounds)).min(MAKE_UP_MAX);
        }
    }
}
