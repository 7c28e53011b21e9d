// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time series of a benchmark at one endpoint.

use longhaul_udt::{Counts, Stats, socket::Stream};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Maximum number of intervals: an hour in tenths of a second, 40 bytes each. The last interval counts all later
/// data.
pub(super) const INTERVALS_MAX: usize = 36_000;

/// Data of one interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Interval {
    /// Bytes that the receiver read or the sender wrote.
    pub(super) bytes: u64,
    pub(super) packets_retransmitted: u64,
    /// Smoothed round-trip time at the start of the interval, in ms.
    pub(super) rtt_ms: f64,
    /// Sending rate of the congestion control at the start of the interval. Counts whole packets.
    #[serde(default)]
    pub(super) paced_bits_per_second: u64,
    /// Link capacity that the receiver reports, at the start of the interval. Counts whole packets.
    #[serde(default)]
    pub(super) link_bits_per_second: u64,
}

impl Interval {
    /// Creates an empty interval with the rates at its start.
    fn starting_with(stats: &Stats, packet_len: usize) -> Self {
        let bits = |packets: f64| (packets * packet_len as f64 * 8.0) as u64;
        Self {
            rtt_ms: stats.rtt.as_secs_f64() * 1e3,
            paced_bits_per_second: bits(stats.pacing_rate),
            link_bits_per_second: bits(stats.capacity),
            ..Self::default()
        }
    }
}

/// Intervals of a connection since the benchmark started.
#[derive(Debug)]
pub(super) struct TimeSeries {
    started_at: Instant,
    /// Length of an interval; `None` if no intervals were requested.
    interval: Option<Duration>,
    /// Packet counters at the start of the last interval.
    counts_at_start: Counts,
    intervals: Vec<Interval>,
}

impl TimeSeries {
    pub(super) fn new(started_at: Instant, interval: Option<Duration>) -> Self {
        Self {
            started_at,
            interval,
            counts_at_start: Counts::default(),
            intervals: Vec::new(),
        }
    }

    /// Counts bytes that were just read or written.
    pub(super) fn record(&mut self, bytes: u64, stream: &Stream) {
        let Some(interval) = self.interval else {
            return;
        };
        let number = self.started_at.elapsed().as_nanos() / interval.as_nanos();
        self.count(
            number.min(INTERVALS_MAX as u128 - 1) as usize,
            bytes,
            || {
                let stats = stream.stats().unwrap_or_default();
                (stats, stream.packet_len().unwrap_or_default())
            },
        );
    }

    fn count(&mut self, number: usize, bytes: u64, read_stats: impl FnOnce() -> (Stats, usize)) {
        if number >= self.intervals.len() {
            let (stats, packet_len) = read_stats();
            self.end_interval(&stats.counts);
            let empty = Interval::starting_with(&stats, packet_len);
            self.intervals.resize(number + 1, empty);
        }
        self.intervals[number].bytes += bytes;
    }

    fn end_interval(&mut self, counts: &Counts) {
        if let Some(last) = self.intervals.last_mut() {
            last.packets_retransmitted += counts.retransmitted - self.counts_at_start.retransmitted;
        }
        self.counts_at_start = *counts;
    }

    /// Ends the last interval with the connection's final counters. Returns all intervals.
    pub(super) fn finish(mut self, counts: &Counts) -> Vec<Interval> {
        self.end_interval(counts);
        self.intervals
    }
}

/// Adds the intervals of another connection to the sums.
pub(super) fn add(sums: &mut Vec<Interval>, intervals: Vec<Interval>) {
    sums.resize(sums.len().max(intervals.len()), Interval::default());
    for (sum, interval) in sums.iter_mut().zip(intervals) {
        sum.bytes += interval.bytes;
        sum.packets_retransmitted += interval.packets_retransmitted;
        sum.rtt_ms = sum.rtt_ms.max(interval.rtt_ms);
        sum.paced_bits_per_second += interval.paced_bits_per_second;
        sum.link_bits_per_second = sum.link_bits_per_second.max(interval.link_bits_per_second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Time;

    fn counts(retransmitted: u64) -> Counts {
        Counts {
            retransmitted,
            ..Counts::default()
        }
    }

    fn stats(retransmitted: u64, rtt_ms: u64) -> (Stats, usize) {
        let stats = Stats {
            counts: counts(retransmitted),
            rtt: Time::from_millis(rtt_ms),
            pacing_rate: 100.0,
            capacity: 1000.0,
            ..Stats::default()
        };
        (stats, 1500)
    }

    fn sample_series() -> Vec<Interval> {
        let mut time_series = TimeSeries::new(Instant::now(), Some(Duration::from_secs(1)));
        time_series.count(0, 10, || stats(0, 1));
        time_series.count(0, 10, || panic!("read twice in an interval"));
        time_series.count(2, 30, || stats(4, 2));
        time_series.finish(&counts(5))
    }

    #[test]
    fn counts_data_in_its_interval() {
        let bytes: Vec<u64> = sample_series().iter().map(|one| one.bytes).collect();
        let retransmitted: Vec<u64> = sample_series()
            .iter()
            .map(|one| one.packets_retransmitted)
            .collect();
        assert_eq!((bytes, retransmitted), (vec![20, 0, 30], vec![4, 0, 1]));
    }

    #[test]
    fn adds_the_intervals_of_connections() {
        let mut all = vec![Interval::default()];
        add(&mut all, sample_series());
        add(&mut all, sample_series());
        let bytes: Vec<u64> = all.iter().map(|one| one.bytes).collect();
        assert_eq!((bytes, all[2].rtt_ms), (vec![40, 0, 60], 2.0));
        assert_eq!(all[2].paced_bits_per_second, 2_400_000, "rates are summed");
        assert_eq!(
            all[2].link_bits_per_second, 12_000_000,
            "the link is shared"
        );
    }
}
