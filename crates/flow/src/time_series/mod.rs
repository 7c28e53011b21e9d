// SPDX-License-Identifier: MIT OR Apache-2.0
//! A direction's whole course in a bounded number of bins, however long it lasts.

pub mod bin;
pub(super) mod change_points;
pub(super) mod rtt_windows;
pub(super) mod spans;

use bin::Bin;
use serde::{Deserialize, Serialize};

/// Bins of equal width, one after the other from the beginning of the flow; empty ones are there too.
///
/// When time runs past the last bin that there may be, pairs of bins become one. Nothing is lost by
/// that but resolution, because bins are sums, least and greatest values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeSeries {
    /// Width of a bin.
    pub width_ns: u64,
    /// Where the first begins, ns since 1970.
    pub from_ns: u64,
    /// The bins; none for a direction in which nothing happened.
    pub bins: Vec<Bin>,
}

impl TimeSeries {
    /// A course that begins with the bin of `from_ns`.
    #[must_use]
    pub fn new(from_ns: u64, width_ns: u64) -> Self {
        let width_ns = width_ns.max(1);
        Self {
            width_ns,
            from_ns: from_ns - from_ns % width_ns,
            bins: Vec::new(),
        }
    }

    /// Whether it has no bin: nothing happened, or it was left out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bins.is_empty()
    }

    /// Where bin `index` begins, ns since 1970.
    #[must_use]
    pub fn bin_start_ns(&self, index: usize) -> u64 {
        self.from_ns
            .saturating_add(self.width_ns.saturating_mul(index as u64))
    }

    /// Takes in what happened at `at_ns` or shortly after it, and keeps to `bins_max` (at least 2). What
    /// is before the first bin goes into that.
    pub fn add(&mut self, at_ns: u64, bin: &Bin, bins_max: usize) {
        while self.index_of(at_ns) >= bins_max.max(2) as u64 {
            self.double_width();
        }
        let index = self.index_of(at_ns) as usize;
        if index >= self.bins.len() {
            self.bins.resize(index + 1, Bin::default());
        }
        self.bins[index].merge(bin);
    }

    /// How many bins it would have with what happened at `at_ns`, `bins_max` at most.
    pub(super) fn len_with(&self, at_ns: u64, bins_max: usize) -> usize {
        let index = usize::try_from(self.index_of(at_ns)).unwrap_or(usize::MAX);
        index.saturating_add(1).min(bins_max).max(self.bins.len())
    }

    fn index_of(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.from_ns) / self.width_ns
    }

    fn double_width(&mut self) {
        let pairs = self.bins.len().div_ceil(2);
        for pair in 0..pairs {
            let mut merged = self.bins[2 * pair];
            if let Some(second) = self.bins.get(2 * pair + 1) {
                merged.merge(second);
            }
            self.bins[pair] = merged;
        }
        self.bins.truncate(pairs);
        self.width_ns = self.width_ns.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(data_bytes: u64) -> Bin {
        Bin {
            data_bytes,
            in_flight_max: data_bytes,
            ..Bin::default()
        }
    }

    #[test]
    fn doubling_keeps_sums_and_extremes() {
        let mut series = TimeSeries::new(1_500, 1_000);
        for i in 0..10 {
            series.add(1_500 + i * 1_000, &bytes(i + 1), 4);
        }
        assert_eq!((series.from_ns, series.width_ns), (1_000, 4_000));
        let sums: Vec<_> = series.bins.iter().map(|b| b.data_bytes).collect();
        assert_eq!(sums, [1 + 2 + 3 + 4, 5 + 6 + 7 + 8, 9 + 10]);
        assert_eq!(series.bins[1].in_flight_max, 8);
        assert_eq!(series.bin_start_ns(2), 9_000);
    }

    #[test]
    fn the_end_of_time_is_no_trouble() {
        let mut series = TimeSeries::new(0, 1);
        series.add(0, &bytes(1), 2);
        series.add(u64::MAX, &bytes(2), 2);
        series.add(5, &bytes(4), 2);
        let sums: Vec<_> = series.bins.iter().map(|b| b.data_bytes).collect();
        assert_eq!(sums, [5, 2]);
    }

    #[test]
    fn a_gap_is_empty_bins() {
        let mut series = TimeSeries::new(0, 10);
        series.add(0, &bytes(1), 8);
        series.add(35, &bytes(1), 8);
        assert_eq!(series.bins.len(), 4);
        assert!(series.bins[1].is_empty() && series.bins[2].is_empty());
    }
}
