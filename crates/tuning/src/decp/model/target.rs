// SPDX-License-Identifier: MIT OR Apache-2.0
//! T: what windows may ask for together where caps are kept.

use super::look::{Moment, Outlook, Phase};
use longhaul_units::Time;

/// Least headroom, and the least queue that is told from noise.
const HEADROOM_MIN: f64 = 0.02;
pub(super) const QUEUE_MIN: f64 = 0.01;
/// Delivery below this share of capacity, while caps hold all windows, says that caps are too low …
const SHORT: f64 = 0.97;
/// … and they are raised, up to so many times the target …
const MAKE_UP_MAX: f64 = 2.0;
/// … if that lasts for so many round trips.
const SHORT_ROUNDS: u64 = 4;
/// One round trip in so many, the sum may be once more the headroom higher: has the link got faster?
const PROBE_ROUNDS: u64 = 10;
/// Losses are put down to the longest queue of so many round trips before.
const BLAME_ROUNDS: u64 = 2;
/// Loss-free round trips in which headroom makes up 63 % of what it has lost.
const RECOVERY_ROUNDS: f64 = 200.0;
/// Windows are held where they ask for at least this share of what they may.
const HELD: f64 = 0.9;

/// What is learnt of the link's buffer and of what its round trips hide.
#[derive(Debug)]
pub(super) struct Target {
    headroom_max: f64,
    headroom: f64,
    /// Whether a loss without a queue halves the headroom too.
    blames_itself: bool,
    /// The longest queue of late, and when it stood.
    longest: (f64, Time),
    /// What the target is multiplied with because less was delivered than the link carries: round trips
    /// are longer than the least one without a queue too, on a busy host or a radio link.
    make_up: f64,
    short_since: Option<Time>,
}

impl Target {
    pub(super) fn new(headroom: f64, blames_itself: bool) -> Self {
        Self {
            headroom_max: headroom,
            headroom,
            blames_itself,
            longest: (0.0, Time::ZERO),
            make_up: 1.0,
            short_since: None,
        }
    }

    /// h.
    pub(super) fn headroom(&self) -> f64 {
        self.headroom
    }

    /// Learns from a look at which windows asked for `asked` and might ask for `budget`; returns T,
    /// bytes a second.
    pub(super) fn learn(&mut self, at: Moment, seen: &Outlook, asked: f64, budget: f64) -> f64 {
        self.learn_headroom(at, seen.queue);
        let is_held = seen.phase == Phase::Level && asked >= budget * HELD;
        self.learn_shortage(at, seen, is_held);
        let round = at.now.as_nanos() / at.rtt.as_nanos().max(1);
        // Where a loss has shown a short buffer, there is no room for it.
        let is_deep = self.headroom >= 0.9 * self.headroom_max;
        let probes = seen.phase == Phase::Level && is_deep && round.is_multiple_of(PROBE_ROUNDS);
        let headroom = self.headroom * if probes { 2.0 } else { 1.0 };
        seen.capacity * self.make_up * (1.0 + headroom)
    }

    fn learn_headroom(&mut self, at: Moment, queue: f64) {
        let most = self.headroom_max;
        if queue >= self.longest.0 || at.now.since(self.longest.1) > at.rtt * BLAME_ROUNDS {
            self.longest = (queue, at.now);
        }
        if at.losses > 0 && self.longest.0 >= QUEUE_MIN {
            self.headroom = (self.longest.0 / 2.0).clamp(HEADROOM_MIN.min(most), most);
        } else if at.losses > 0 && self.blames_itself {
            // Perhaps what was filled up ran over, too shortly for a queue to be seen.
            self.headroom = (self.headroom / 2.0).max(HEADROOM_MIN.min(most));
        } else {
            self.headroom += (most - self.headroom) * at.rounds / RECOVERY_ROUNDS;
        }
    }

    /// If all windows are held and less comes out than the link carries, it is the caps.
    fn learn_shortage(&mut self, at: Moment, seen: &Outlook, is_held: bool) {
        let is_short = is_held && seen.delivered < seen.capacity * SHORT;
        self.short_since = is_short.then(|| self.short_since.unwrap_or(at.now));
        // What windows ask for now is delivered a round trip and a span later.
        let stays_short = |since| at.now.since(since) >= at.rtt * SHORT_ROUNDS;
        if at.losses > 0 {
            self.make_up = 1.0 + (self.make_up - 1.0) / 2.0;
        } else if self.short_since.is_some_and(stays_short) {
            let missing = (seen.capacity / seen.delivered.max(1.0) - 1.0).min(1.0);
            self.make_up = (self.make_up * (1.0 + missing * at.rounds)).min(MAKE_UP_MAX);
        }
    }
}
