// SPDX-License-Identifier: MIT OR Apache-2.0
//! T: the sum of rates that windows may have where caps stay.

use super::sample::{Estimate, Phase, Sample};
use longhaul_units::Time;

/// Minimum headroom, as a share of the BDP.
const HEADROOM_MIN: f64 = 0.02;
/// Minimum queue that is distinguished from noise, as a share of the BDP.
pub(super) const QUEUE_MIN: f64 = 0.01;
/// Share of the capacity below which less is delivered than expected. While caps limit all windows, this shows that caps
/// are too low.
const SHORTFALL_SHARE: f64 = 0.97;
/// Maximum factor of the target by which caps are raised then.
const COMPENSATION_MAX: f64 = 2.0;
/// Round trips that a shortfall must last before caps are raised.
const SHORTFALL_ROUNDS: u64 = 4;
/// Round trips between two probes: for one round trip the headroom is doubled, to see whether the link got faster.
const PROBE_ROUNDS: u64 = 10;
/// Losses are attributed to the longest queue of this many round trips before.
const LOSS_QUEUE_ROUNDS: u64 = 2;
/// Loss-free round trips in which headroom recovers 63 % of its reduction.
const RECOVERY_ROUNDS: f64 = 200.0;
/// Windows are limited by caps where their rate is at least this share of the budget.
const CAP_LIMITED_SHARE: f64 = 0.9;

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
    pub(super) fn new(headroom: f64, halves_without_queue: bool) -> Self {
        Self {
            headroom_max: headroom,
            headroom,
            halves_without_queue,
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
        let is_cap_limited =
            estimate.phase == Phase::Level && total_rate >= budget * CAP_LIMITED_SHARE;
        self.update_compensation(at, estimate, is_cap_limited);
        let round = at.now.as_nanos() / at.rtt.as_nanos().max(1);
        // Where a loss has shown a short buffer, there is no room for a probe.
        let is_deep = self.headroom >= 0.9 * self.headroom_max;
        let probes =
            estimate.phase == Phase::Level && is_deep && round.is_multiple_of(PROBE_ROUNDS);
        let headroom = self.headroom * if probes { 2.0 } else { 1.0 };
        estimate.capacity * self.compensation * (1.0 + headroom)
    }

    fn update_headroom(&mut self, at: Sample, queue: f64) {
        let max = self.headroom_max;
        if queue >= self.longest_queue.0
            || at.now.since(self.longest_queue.1) > at.rtt * LOSS_QUEUE_ROUNDS
        {
            self.longest_queue = (queue, at.now);
        }
        if at.losses > 0 && self.longest_queue.0 >= QUEUE_MIN {
            self.headroom = (self.longest_queue.0 / 2.0).clamp(HEADROOM_MIN.min(max), max);
        } else if at.losses > 0 && self.halves_without_queue {
            // Slow start may have overflowed the buffer too briefly for a queue to be observed.
            self.headroom = (self.headroom / 2.0).max(HEADROOM_MIN.min(max));
        } else {
            self.headroom += (max - self.headroom) * at.rounds / RECOVERY_ROUNDS;
        }
    }

    /// Raises the target if all windows are limited by caps and less is delivered than the link's capacity.
    fn update_compensation(&mut self, at: Sample, estimate: &Estimate, is_cap_limited: bool) {
        let has_shortfall =
            is_cap_limited && estimate.delivered < estimate.capacity * SHORTFALL_SHARE;
        self.shortfall_since = has_shortfall.then(|| self.shortfall_since.unwrap_or(at.now));
        // The present rate of the windows is delivered a round trip and a span later.
        let lasts = |since| at.now.since(since) >= at.rtt * SHORTFALL_ROUNDS;
        if at.losses > 0 {
            self.compensation = 1.0 + (self.compensation - 1.0) / 2.0;
        } else if self.shortfall_since.is_some_and(lasts) {
            let missing = (estimate.capacity / estimate.delivered.max(1.0) - 1.0).min(1.0);
            self.compensation =
                (self.compensation * (1.0 + missing * at.rounds)).min(COMPENSATION_MAX);
        }
    }
}
