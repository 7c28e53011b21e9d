// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time series of a direction in a bounded number of bins, for any duration.

pub mod bin;
pub(super) mod change_points;
pub(super) mod rtt_windows;
pub mod sender_view;
pub(super) mod spans;

use bin::Bin;
use serde::{Deserialize, Serialize};

/// Bins of equal width, without gaps, from the beginning of the flow; empty bins are stored too.
///
/// When time passes the last possible bin, pairs of bins are merged. This only loses resolution, because bins are sums
/// and extremes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeSeries {
    /// Width of a bin, ns.
    pub width_ns: u64,
    /// Start of the first bin, ns since 1970.
    pub from_ns: u64,
    /// Bins; empty for a direction without packets.
    pub bins: Vec<Bin>,
}

impl TimeSeries {
    /// Creates a series that begins with the bin of `from_ns`.
    #[must_use]
    pub fn new(from_ns: u64, width_ns: u64) -> Self {
        let width_ns = width_ns.max(1);
        Self {
            width_ns,
            from_ns: from_ns - from_ns % width_ns,
            bins: Vec::new(),
        }
    }

    /// Returns whether it has no bins: there were no packets, or the bins were dropped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bins.is_empty()
    }

    /// Returns the start of bin `index`, ns since 1970.
    #[must_use]
    pub fn bin_start_ns(&self, index: usize) -> u64 {
        self.from_ns
            .saturating_add(self.width_ns.saturating_mul(index as u64))
    }

    /// Adds the events of `at_ns` or shortly after it, within `bins_max` bins (at least 2). Events before the first bin
    /// go into that.
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

    /// Returns how many bins it would have with events at `at_ns`, at most `bins_max`.
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
    fn merging_pairs_keeps_sums_and_extremes() {
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
    fn accepts_greatest_time() {
        let mut series = TimeSeries::new(0, 1);
        series.add(0, &bytes(1), 2);
        series.add(u64::MAX, &bytes(2), 2);
        series.add(5, &bytes(4), 2);
        let sums: Vec<_> = series.bins.iter().map(|b| b.data_bytes).collect();
        assert_eq!(sums, [5, 2]);
    }

    #[test]
    fn stores_empty_bins_for_gap() {
        let mut series = TimeSeries::new(0, 10);
        series.add(0, &bytes(1), 8);
        series.add(35, &bytes(1), 8);
        assert_eq!(series.bins.len(), 4);
        assert!(series.bins[1].is_empty() && series.bins[2].is_empty());
    }
}
