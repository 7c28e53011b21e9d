// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resource bounds and resolution of the analysis.

/// Settings of [`super::Flows`]. The description of each bound names the memory that it costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Widths of the bins that go to [`super::Sink::receive_bin`], ns, each at least 1. Each one costs 416 bytes a flow.
    pub bin_widths_ns: Vec<u64>,
    /// Data segments with inter-packet gaps below this are one burst, ns.
    pub burst_gap_ns: u64,
    /// Most active flows. When one more begins, the flow with the oldest last packet ends.
    pub flows_max: usize,
    /// Most memory of all flows, without the tables below, bytes. A flow takes 6 kB and, typically, 5 kB of
    /// distributions, at most 98 kB. When the memory is used up, the flow with the oldest last packet ends.
    pub flows_max_bytes: usize,
    /// Most memory of the tables below, over all flows, bytes. Each table also has a bound of its own, below. When the
    /// memory is used up, tables stop growing.
    pub tables_max_bytes: usize,
    /// Most unacknowledged packets that await their ACK, a direction. Packets beyond this bound have no RTT by data and
    /// ACK. Each takes 16 bytes, allocated when needed.
    pub unacked_max: usize,
    /// Most SACKed ranges, and most sequence gaps, a direction. A range takes 16 bytes and a gap 32, allocated when
    /// needed.
    pub ranges_max: usize,
    /// Most TSvals that await their echo, a direction. 16 bytes each.
    pub timestamps_max: usize,
    /// Initial width of the bins of a [`super::time_series::TimeSeries`], ns.
    pub time_series_width_ns: u64,
    /// Most bins of a time series, a direction. 200 bytes each. A flow of few packets has fewer, see
    /// [`Settings::time_series_bins`].
    pub time_series_bins_max: usize,
    /// Number of flows, the largest active ones, that have packet windows; 0 for none. Windows take an eighth of
    /// `tables_max_bytes`, at 24 bytes a segment and at most 8,192 a direction.
    pub packet_window_flows_max: usize,
}

impl Default for Settings {
    /// Returns bins of 1 ms and 1 s, and room for every segment of a flow of 10 Gbit/s and 70 ms; 400 MB in all.
    fn default() -> Self {
        Self {
            bin_widths_ns: vec![1_000_000, 1_000_000_000],
            burst_gap_ns: 100_000,
            flows_max: 1 << 14,
            flows_max_bytes: 160 << 20,
            tables_max_bytes: 256 << 20,
            unacked_max: 1 << 16,
            ranges_max: 1 << 10,
            timestamps_max: 1 << 11,
            time_series_width_ns: 1_000_000,
            time_series_bins_max: 1 << 12,
            packet_window_flows_max: 16,
        }
    }
}

/// Bins of a time series that every flow may have, however short.
const TIME_SERIES_BINS_MIN: u64 = 64;
/// Packets that a flow needs for each further bin.
const PACKETS_PER_BIN: u64 = 2;

impl Settings {
    /// Returns how many bins the time series of a flow with `packets` packets may have. Many short flows, or long ones
    /// with little traffic, must not take the memory of as many large ones. Other flows do not count: otherwise the
    /// results would depend on how a capture is cut into files.
    #[must_use]
    pub fn time_series_bins(&self, packets: u64) -> usize {
        let earned = TIME_SERIES_BINS_MIN.max(packets / PACKETS_PER_BIN);
        let earned = usize::try_from(earned).unwrap_or(usize::MAX);
        earned.min(self.time_series_bins_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_series::bin::Bin;

    #[test]
    fn bin_has_documented_size() {
        assert!(size_of::<Bin>() <= 200, "{}", size_of::<Bin>());
    }

    #[test]
    fn bins_grow_with_packets() {
        let bins = |packets| Settings::default().time_series_bins(packets);
        assert_eq!([0, 128, 1_000, 100_000].map(bins), [64, 64, 500, 4_096]);
    }
}
