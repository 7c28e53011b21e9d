// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the analysis may use, and how finely it looks.

/// Bounds of [`super::Flows`], each with the memory that it costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Widths of the bins that go to [`super::Sink::bin`], in ns, each at least 1. Every one costs 368
    /// bytes a flow.
    pub bin_widths_ns: Vec<u64>,
    /// Data segments with gaps below this are one burst.
    pub burst_gap_ns: u64,
    /// Flows that are looked at at once; when one more begins, that which was seen longest ago is over.
    pub flows_max: usize,
    /// What these may take together, beside the tables below. A flow takes 5 kB and, typically, 5 kB of
    /// distributions, at most 98 kB. When it is used up, that which was seen longest ago is over.
    pub flows_max_bytes: usize,
    /// What the tables below may take together, over all flows; the bound of each is what it may have of
    /// that. When it is used up, tables stay as large as they are.
    pub tables_max_bytes: usize,
    /// Packets sent and not yet acknowledged that wait for their ACK, a direction; those beyond it have
    /// no RTT by pairs. 16 bytes each, when they are there.
    pub unacked_max: usize,
    /// Ranges of bytes that were SACKed, and as many that the tap has not seen, a direction. 16 and 32
    /// bytes each, when they are there.
    pub ranges_max: usize,
    /// TSvals that wait for their echo, a direction. 16 bytes each.
    pub timestamps_max: usize,
    /// Width of the bins that a [`super::course::Course`] begins with, in ns.
    pub time_series_width_ns: u64,
    /// Bins of a course, a direction. 168 bytes each; a flow of few packets has fewer where there are many
    /// flows, see [`Settings::course_bins`].
    pub time_series_bins_max: usize,
    /// Flows at once of which single segments are kept, the largest; 0 for none. An eighth of
    /// `tables_max_bytes` is theirs, at 24 bytes a segment and at most 8,192 a direction.
    pub packet_window_flows_max: usize,
}

impl Default for Settings {
    /// 1 ms and 1 s; every segment of a flow of 10 Gbit/s and 70 ms, 400 MB in all.
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

/// Bins of a course that every flow may have.
const TIME_SERIES_BINS_MIN: u64 = 64;
/// Packets that earn a flow one more.
const PACKETS_PER_BIN: u64 = 2;

impl Settings {
    /// Bins that the course of a flow of that many packets may have: many short ones, or long ones in which
    /// little happens, shall not take the memory of as many large ones. What else goes on has no say, or
    /// where a capture is cut into files would show.
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
    fn bins_are_as_large_as_said() {
        assert!(size_of::<Bin>() <= 168, "{}", size_of::<Bin>());
    }

    #[test]
    fn a_course_is_earned() {
        let bins = |packets| Settings::default().time_series_bins(packets);
        assert_eq!([0, 128, 1_000, 100_000].map(bins), [64, 64, 500, 4_096]);
    }
}
