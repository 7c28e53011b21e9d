// SPDX-License-Identifier: MIT OR Apache-2.0
//! Histograms of the durations of a listener's connections. Any thread adds, one thread reads.

use longhaul_admin::record::{Distribution, ListenerTimes};
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Upper bounds in seconds, for paths from a local network to several hundred milliseconds.
const SHORT_BOUNDS_S: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 2.5, 5.0,
    10.0, 30.0,
];
/// Upper bounds in seconds, up to a day.
const LONG_BOUNDS_S: &[f64] = &[
    0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0, 86400.0,
];

/// The three histograms of one listener: about 400 bytes.
#[derive(Debug)]
pub(crate) struct Times {
    /// Time from a request until its upstream leg is connected.
    pub(crate) connect: Histogram,
    /// Time from a request until the first byte of its answer.
    pub(crate) first_byte: Histogram,
    /// Time from accept to end.
    pub(crate) duration: Histogram,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            connect: Histogram::new(SHORT_BOUNDS_S),
            first_byte: Histogram::new(SHORT_BOUNDS_S),
            duration: Histogram::new(LONG_BOUNDS_S),
        }
    }
}

impl Times {
    /// Returns the histograms, labelled with the listener's name.
    pub(crate) fn read(&self, listener: String) -> ListenerTimes {
        ListenerTimes {
            listener,
            connect: self.connect.read(),
            first_byte: self.first_byte.read(),
            duration: self.duration.read(),
        }
    }
}

/// Histogram of durations: each counts at the smallest bound that it does not exceed.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds_s: &'static [f64],
    /// One counter for each bound, and one for longer durations.
    counts: Box<[AtomicU64]>,
    sum_us: AtomicU64,
}

impl Histogram {
    fn new(bounds_s: &'static [f64]) -> Self {
        Self {
            bounds_s,
            counts: (0..=bounds_s.len()).map(|_| AtomicU64::new(0)).collect(),
            sum_us: AtomicU64::new(0),
        }
    }

    pub(crate) fn add(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = self.bounds_s.partition_point(|bound| *bound < seconds);
        self.counts[bucket].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(time.as_micros() as u64, Relaxed);
    }

    fn read(&self) -> Distribution {
        Distribution {
            bounds_s: self.bounds_s.to_vec(),
            counts: self
                .counts
                .iter()
                .map(|count| count.load(Relaxed))
                .collect(),
            sum_s: self.sum_us.load(Relaxed) as f64 / 1e6,
        }
    }
}

/// Timer of one client's wait for the first byte of an answer.
#[derive(Debug)]
pub(crate) struct FirstByteTimer {
    begin: Instant,
    /// Microseconds from `begin` to the open request, plus one; 0 is no open request.
    started_at: AtomicU64,
}

impl FirstByteTimer {
    pub(crate) fn new(begin: Instant) -> Self {
        Self {
            begin,
            started_at: AtomicU64::new(0),
        }
    }

    /// Starts the wait for a request's answer.
    pub(crate) fn start(&self) {
        let now = self.begin.elapsed().as_micros() as u64;
        self.started_at.store(now + 1, Relaxed);
    }

    /// Starts the wait unless one is running: a request may take several connections.
    pub(crate) fn start_unless_running(&self) {
        if self.started_at.load(Relaxed) == 0 {
            self.start();
        }
    }

    /// Records the first byte of an answer, once per request.
    pub(crate) fn record_first_byte(&self, times: &Times) {
        // This is called for each piece of an answer: a load is cheaper than a swap.
        if self.started_at.load(Relaxed) == 0 {
            return;
        }
        let started_at = self.started_at.swap(0, Relaxed);
        if let Some(started_at) = started_at.checked_sub(1) {
            let wait = self.begin.elapsed().as_micros() as u64;
            let wait = Duration::from_micros(wait.saturating_sub(started_at));
            times.first_byte.add(wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_equal_to_bound_counts_below_it() {
        let histogram = Histogram::new(&[0.001, 1.0]);
        for us in [0, 1000, 1001, 1_000_000, 1_000_001] {
            histogram.add(Duration::from_micros(us));
        }
        let found = histogram.read();
        assert_eq!(found.counts, [2, 2, 1]);
        assert!((found.sum_s - 2.002_002).abs() < 1e-9);
    }

    #[test]
    fn counts_first_byte_once_per_request() {
        let (times, wait) = (Times::default(), FirstByteTimer::new(Instant::now()));
        let counted = || times.first_byte.read().counts.iter().sum::<u64>();
        wait.record_first_byte(&times);
        assert_eq!(counted(), 0, "no open request");
        wait.start();
        wait.record_first_byte(&times);
        wait.record_first_byte(&times);
        assert_eq!(counted(), 1);
        wait.start();
        wait.record_first_byte(&times);
        assert_eq!(counted(), 2);
    }
}
