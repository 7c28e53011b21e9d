// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a bench went over time, at one of its ends.

use longhaul_udt::{Counts, Stats, socket::Stream};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// An hour of tenths of a second, 40 bytes each. Whatever comes later is counted in the last one.
pub(super) const INTERVALS_MAX: usize = 36_000;

/// What happened in one interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Interval {
    /// Read by who receives, written by who sends.
    pub(super) bytes: u64,
    #[serde(rename = "packets_sent_again")]
    pub(super) packets_retransmitted: u64,
    /// Smoothed, when the interval began.
    pub(super) rtt_ms: f64,
    /// What the sender's control asks for, and what it was told that the link could carry, when the interval began. Whole packets.
    #[serde(default)]
    pub(super) paced_bits_per_second: u64,
    #[serde(default)]
    pub(super) link_bits_per_second: u64,
}

impl Interval {
    /// Nothing has passed since then.
    fn starting_with(report: &Stats, packet_len: usize) -> Self {
        let bits = |packets: f64| (packets * packet_len as f64 * 8.0) as u64;
        Self {
            rtt_ms: report.rtt.as_secs_f64() * 1e3,
            paced_bits_per_second: bits(report.pacing_rate),
            link_bits_per_second: bits(report.capacity),
            ..Self::default()
        }
    }
}

/// The intervals of a connection since its bench began.
#[derive(Debug)]
pub(super) struct TimeSeries {
    started_at: Instant,
    /// None: nobody asked.
    interval: Option<Duration>,
    /// When the last interval began.
    interval_start: Counts,
    intervals: Vec<Interval>,
}

impl TimeSeries {
    pub(super) fn new(began: Instant, every: Option<Duration>) -> Self {
        Self {
            started_at: began,
            interval: every,
            interval_start: Counts::default(),
            intervals: Vec::new(),
        }
    }

    /// So many bytes have just passed.
    pub(super) fn record(&mut self, bytes: u64, stream: &Stream) {
        let Some(every) = self.interval else { return };
        let number = self.started_at.elapsed().as_nanos() / every.as_nanos();
        self.count(
            number.min(INTERVALS_MAX as u128 - 1) as usize,
            bytes,
            || {
                let report = stream.stats().unwrap_or_default();
                (report, stream.packet_len().unwrap_or_default())
            },
        );
    }

    fn count(&mut self, number: usize, bytes: u64, look: impl FnOnce() -> (Stats, usize)) {
        if number >= self.intervals.len() {
            let (report, packet_len) = look();
            self.end_interval(&report.counts);
            let quiet = Interval::starting_with(&report, packet_len);
            self.intervals.resize(number + 1, quiet);
        }
        self.intervals[number].bytes += bytes;
    }

    fn end_interval(&mut self, counts: &Counts) {
        if let Some(last) = self.intervals.last_mut() {
            last.packets_retransmitted += counts.retransmitted - self.interval_start.retransmitted;
        }
        self.interval_start = *counts;
    }

    /// All of them; these are the connection's last counts.
    pub(super) fn finish(mut self, counts: &Counts) -> Vec<Interval> {
        self.end_interval(counts);
        self.intervals
    }
}

/// Puts those of another connection beside them.
pub(super) fn add(all: &mut Vec<Interval>, more: Vec<Interval>) {
    all.resize(all.len().max(more.len()), Interval::default());
    for (sum, one) in all.iter_mut().zip(more) {
        sum.bytes += one.bytes;
        sum.packets_retransmitted += one.packets_retransmitted;
        sum.rtt_ms = sum.rtt_ms.max(one.rtt_ms);
        sum.paced_bits_per_second += one.paced_bits_per_second;
        sum.link_bits_per_second = sum.link_bits_per_second.max(one.link_bits_per_second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Time;

    fn counts(sent_again: u64) -> Counts {
        Counts {
            retransmitted: sent_again,
            ..Counts::default()
        }
    }

    fn report(sent_again: u64, rtt_ms: u64) -> (Stats, usize) {
        let report = Stats {
            counts: counts(sent_again),
            rtt: Time::from_millis(rtt_ms),
            pacing_rate: 100.0,
            capacity: 1000.0,
            ..Stats::default()
        };
        (report, 1500)
    }

    fn sample_series() -> Vec<Interval> {
        let mut course = TimeSeries::new(Instant::now(), Some(Duration::from_secs(1)));
        course.count(0, 10, || report(0, 1));
        course.count(0, 10, || panic!("once an interval"));
        course.count(2, 30, || report(4, 2));
        course.finish(&counts(5))
    }

    #[test]
    fn what_happened_is_in_its_interval() {
        let bytes: Vec<u64> = sample_series().iter().map(|one| one.bytes).collect();
        let again: Vec<u64> = sample_series()
            .iter()
            .map(|one| one.packets_retransmitted)
            .collect();
        assert_eq!((bytes, again), (vec![20, 0, 30], vec![4, 0, 1]));
    }

    #[test]
    fn connections_stand_beside_each_other() {
        let mut all = vec![Interval::default()];
        add(&mut all, sample_series());
        add(&mut all, sample_series());
        let bytes: Vec<u64> = all.iter().map(|one| one.bytes).collect();
        assert_eq!((bytes, all[2].rtt_ms), (vec![40, 0, 60], 2.0));
        assert_eq!(all[2].paced_bits_per_second, 2_400_000, "together");
        assert_eq!(all[2].link_bits_per_second, 12_000_000, "it is one");
    }
}
