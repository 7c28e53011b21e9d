// SPDX-License-Identifier: MIT OR Apache-2.0
//! Estimate of a link's capacity from delivery rates.

use super::sample::Sample;
use longhaul_units::Time;
use std::collections::VecDeque;

/// Maximum number of samples that are stored, 24 bytes each. Beyond it, the oldest are dropped before the horizon.
const SAMPLES_MAX: usize = 1024;

/// Windowed maximum of the delivery rate; each rate is measured over several samples.
#[derive(Debug, Default)]
pub struct Capacity {
    /// Time of each sample, and the bytes delivered since the previous one.
    delivered: VecDeque<(Time, u64)>,
    /// Rates that no later rate exceeds, oldest and highest first.
    rates: VecDeque<(Time, f64)>,
}

impl Capacity {
    /// Records that `bytes` were delivered between the last sample and `now`. A rate is the mean over the
    /// shortest time of at least `span` and two samples; it counts for `horizon`.
    pub fn record(&mut self, now: Time, bytes: u64, span: Time, horizon: Time) {
        if self.delivered.len() == SAMPLES_MAX {
            self.delivered.pop_front();
        }
        self.delivered.push_back((now, bytes));
        if let Some(rate) = self.rate(span) {
            while self.rates.back().is_some_and(|(_, last)| *last <= rate) {
                self.rates.pop_back();
            }
            self.rates.push_back((now, rate));
        }
        while self.rates.len() > SAMPLES_MAX
            || self
                .rates
                .front()
                .is_some_and(|(at, _)| now.since(*at) > horizon)
        {
            self.rates.pop_front();
        }
    }

    /// Returns bytes a second over the newest samples, once there are enough of them; drops older ones.
    fn rate(&mut self, span: Time) -> Option<f64> {
        let newest = self.delivered.back()?.0;
        let covers = |at: &(Time, u64)| newest.since(at.0) >= span;
        // The last sample that is old enough: those after it count.
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

    /// Returns the maximum rate of the horizon, in bytes a second. It is 0 before the first rate.
    #[must_use]
    pub fn max_rate(&self) -> f64 {
        self.rates.front().map_or(0.0, |(_, rate)| *rate)
    }

    /// Returns the newest rate, in bytes a second. It is 0 before the first rate.
    #[must_use]
    pub fn newest_rate(&self) -> f64 {
        self.rates.back().map_or(0.0, |(_, rate)| *rate)
    }
}

/// Minimum factor of growth that shows that connections are still probing for the link's capacity.
const GROWTH_MIN: f64 = 1.1;

/// Capacity at its last growth, and the time of that.
#[derive(Debug, Default)]
pub(super) struct Growth(f64, Time);

impl Growth {
    pub(super) fn update(&mut self, now: Time, capacity: f64) {
        if capacity >= self.0 * GROWTH_MIN {
            *self = Self(capacity, now);
        }
        self.0 = self.0.min(capacity);
    }

    /// Whether the capacity has not grown for `rounds` round trips.
    pub(super) fn has_ended(&self, at: Sample, rounds: u64) -> bool {
        self.0 > 0.0 && at.has_elapsed(self.1, rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Time = Time::from_millis(400);
    const HORIZON: Time = Time::from_secs(2);

    fn record_all(capacity: &mut Capacity, samples: impl IntoIterator<Item = (u64, u64)>) {
        for (ms, bytes) in samples {
            capacity.record(Time::from_millis(ms), bytes, SPAN, HORIZON);
        }
    }

    #[test]
    fn late_sample_does_not_raise_rate() {
        let mut capacity = Capacity::default();
        record_all(&mut capacity, [(0, 0), (200, 200), (400, 200)]);
        assert_eq!(capacity.max_rate(), 1000.0);
        // Delayed by 100 ms, then two close together.
        record_all(&mut capacity, [(700, 300), (800, 100)]);
        assert_eq!(capacity.max_rate(), 1000.0);
    }

    #[test]
    fn greater_rate_counts_at_once_and_expires_after_horizon() {
        let mut capacity = Capacity::default();
        record_all(&mut capacity, (0..5).map(|sample| (sample * 200, 200)));
        record_all(&mut capacity, [(1000, 400), (1200, 400)]);
        assert_eq!(capacity.max_rate(), 2000.0);
        record_all(&mut capacity, (7..=16).map(|sample| (sample * 200, 200)));
        assert_eq!(
            (capacity.max_rate(), capacity.newest_rate()),
            (2000.0, 1000.0)
        );
        record_all(&mut capacity, [(3400, 200), (3600, 200)]);
        assert_eq!(capacity.max_rate(), 1000.0);
    }

    #[test]
    fn bounds_memory() {
        let mut capacity = Capacity::default();
        for sample in 0..10_000 {
            capacity.record(
                Time::from_millis(sample),
                100_000 - sample,
                Time::from_secs(600),
                Time::MAX,
            );
        }
        assert!(capacity.delivered.len() <= SAMPLES_MAX + 1 && capacity.rates.len() <= SAMPLES_MAX);
    }
}
