// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a link has been seen to carry.

use super::look::Moment;
use longhaul_units::Time;
use std::collections::VecDeque;

/// Looks that are kept at most: 24 B each. Of more, the oldest are forgotten early.
const LOOKS_MAX: usize = 1024;

/// The greatest delivery rate of late, each rate measured over a span of some looks.
#[derive(Debug, Default)]
pub struct Capacity {
    /// When a look was, and the bytes delivered since the look before.
    delivered: VecDeque<(Time, u64)>,
    /// Rates that no later one exceeds, oldest (and greatest) first.
    rates: VecDeque<(Time, f64)>,
}

impl Capacity {
    /// Learns that `bytes` were delivered between the last look and `now`. A rate is the mean over the
    /// shortest time of at least `span` and two looks; it counts for `horizon`.
    pub fn learn(&mut self, now: Time, bytes: u64, span: Time, horizon: Time) {
        if self.delivered.len() == LOOKS_MAX {
            self.delivered.pop_front();
        }
        self.delivered.push_back((now, bytes));
        if let Some(rate) = self.rate(span) {
            while self.rates.back().is_some_and(|(_, last)| *last <= rate) {
                self.rates.pop_back();
            }
            self.rates.push_back((now, rate));
        }
        while self.rates.len() > LOOKS_MAX
            || self
                .rates
                .front()
                .is_some_and(|(at, _)| now.since(*at) > horizon)
        {
            self.rates.pop_front();
        }
    }

    /// Bytes a second over the newest looks, once there are enough of them; older ones are forgotten.
    fn rate(&mut self, span: Time) -> Option<f64> {
        let newest = self.delivered.back()?.0;
        let covers = |at: &(Time, u64)| newest.since(at.0) >= span;
        // The last look that lies far enough back: what came after it counts.
        let from = self
            .delivered
            .iter()
            .rposition(covers)?
            .min(self.delivered.len().checked_sub(3)?);
        self.delivered.drain(..from);
        let since = self.delivered.front()?.0;
        let bytes: u64 = self.delivered.iter().skip(1).map(|(_, bytes)| bytes).sum();
        Some(bytes as f64 / newest.since(since).as_secs_f64())
    }

    /// The greatest rate of the horizon, bytes a second; 0 before the first.
    #[must_use]
    pub fn greatest(&self) -> f64 {
        self.rates.front().map_or(0.0, |(_, rate)| *rate)
    }

    /// The newest rate, bytes a second; 0 before the first.
    #[must_use]
    pub fn newest(&self) -> f64 {
        self.rates.back().map_or(0.0, |(_, rate)| *rate)
    }
}

/// Capacity that has grown by this share is no link's yet: connections are still finding out.
const GROWTH: f64 = 1.1;

/// A capacity when it last had grown, and when that was.
#[derive(Debug, Default)]
pub(super) struct Growth(f64, Time);

impl Growth {
    pub(super) fn learn(&mut self, now: Time, capacity: f64) {
        if capacity >= self.0 * GROWTH {
            *self = Self(capacity, now);
        }
        self.0 = self.0.min(capacity);
    }

    /// Whether it has not grown for so many round trips.
    pub(super) fn has_ended(&self, at: Moment, rounds: u64) -> bool {
        self.0 > 0.0 && at.is_past(self.1, rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Time = Time::from_millis(400);
    const HORIZON: Time = Time::from_secs(2);

    fn learn(capacity: &mut Capacity, looks: impl IntoIterator<Item = (u64, u64)>) {
        for (ms, bytes) in looks {
            capacity.learn(Time::from_millis(ms), bytes, SPAN, HORIZON);
        }
    }

    #[test]
    fn one_late_look_is_no_higher_rate() {
        let mut capacity = Capacity::default();
        learn(&mut capacity, [(0, 0), (200, 200), (400, 200)]);
        assert_eq!(capacity.greatest(), 1000.0);
        // Held up by 100 ms, then two close together.
        learn(&mut capacity, [(700, 300), (800, 100)]);
        assert_eq!(capacity.greatest(), 1000.0);
    }

    #[test]
    fn a_greater_rate_counts_at_once_and_is_forgotten_after_the_horizon() {
        let mut capacity = Capacity::default();
        learn(&mut capacity, (0..5).map(|look| (look * 200, 200)));
        learn(&mut capacity, [(1000, 400), (1200, 400)]);
        assert_eq!(capacity.greatest(), 2000.0);
        learn(&mut capacity, (7..=16).map(|look| (look * 200, 200)));
        assert_eq!((capacity.greatest(), capacity.newest()), (2000.0, 1000.0));
        learn(&mut capacity, [(3400, 200), (3600, 200)]);
        assert_eq!(capacity.greatest(), 1000.0);
    }

    #[test]
    fn memory_is_bounded() {
        let mut capacity = Capacity::default();
        for look in 0..10_000 {
            capacity.learn(
                Time::from_millis(look),
                100_000 - look,
                Time::from_secs(600),
                Time::MAX,
            );
        }
        assert!(capacity.delivered.len() <= LOOKS_MAX + 1 && capacity.rates.len() <= LOOKS_MAX);
    }
}
