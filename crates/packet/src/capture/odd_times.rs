// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of packets that a pcap file has in another way than its format says.

/// Counts of odd times in a file. A file of pcapng has none: its times are single numbers of a unit that it names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OddTimes {
    /// The magic number says microseconds, but most of the first 16 packets have fractions of 1,000,000 or more. All
    /// fractions are read as nanoseconds.
    pub in_nanoseconds: bool,
    /// Packets whose fraction is a second or more. Their time is the sum of seconds and fraction.
    pub long_fractions: u64,
    /// Packets whose date is more than a day from those of the packets before and after, which agree. Their time is halfway
    /// between theirs; for the first packet of a file, that of the next. The last packet of a file gets the time of the one
    /// before, if its own is earlier by a day or later by a year. [`Run::has_estimated_time`](super::Run::has_estimated_time)
    /// marks them.
    pub far_off: u64,
}
