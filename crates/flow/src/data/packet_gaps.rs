// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inter-packet gaps of data, and the bursts between longer gaps: what pacing changes.

use crate::distribution::Histogram;

/// Gaps and bursts of one direction. Gaps lie between captured packets; the segments of one super-packet have no gaps
/// between them.
#[derive(Debug, Default)]
pub(crate) struct PacketGaps {
    last_ns: u64,
    /// Time of the last SYN or FIN without data, ns.
    syn_fin_ns: u64,
    /// Wire segments of the burst so far; 0 before the first packet.
    burst: u64,
    gaps: Histogram,
    bursts: Histogram,
}

impl PacketGaps {
    /// Records a data packet of `segments` segments on the wire. Returns whether it begins a burst. Time that runs
    /// backwards is a gap of 0.
    #[inline(always)]
    pub(crate) fn record_data(&mut self, at_ns: u64, segments: u64, burst_gap_ns: u64) -> bool {
        if self.burst > 0 {
            let gap = at_ns.saturating_sub(self.last_ns);
            self.gaps.record(gap);
            if gap >= burst_gap_ns {
                self.end_burst();
            }
        }
        let begins = self.burst == 0;
        self.burst += segments;
        self.last_ns = self.last_ns.max(at_ns);
        begins
    }

    #[inline(never)]
    fn end_burst(&mut self) {
        self.bursts.record(std::mem::take(&mut self.burst));
    }

    /// Records a SYN or a FIN without data, which ends a silence but no burst.
    #[cold]
    pub(crate) fn record_syn_fin(&mut self, at_ns: u64) {
        self.syn_fin_ns = self.syn_fin_ns.max(at_ns);
    }

    /// Returns the time since the last packet that needs an ACK, ns; 0 before the first one.
    pub(crate) fn silence_ns(&self, at_ns: u64) -> u64 {
        match self.last_ns.max(self.syn_fin_ns) {
            0 => 0,
            last_ns => at_ns.saturating_sub(last_ns),
        }
    }

    /// Returns the memory of the distributions, bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.gaps.bytes() + self.bursts.bytes()
    }

    /// Returns the gaps and the bursts, the last burst included.
    pub(crate) fn finish(&mut self) -> (&Histogram, &Histogram) {
        if self.burst > 0 {
            self.bursts.record(self.burst);
        }
        (&self.gaps, &self.bursts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_equal_to_burst_gap_ends_burst() {
        let mut gaps = PacketGaps::default();
        for (at, segments) in [(0, 1), (9, 2), (19, 4), (28, 8)] {
            gaps.record_data(at, segments, 10);
        }
        let (gaps, bursts) = gaps.finish();
        assert_eq!(gaps.summary().buckets, [(9, 2), (10, 1)]);
        assert_eq!(bursts.summary().buckets, [(3, 1), (12, 1)]);
    }

    #[test]
    fn fin_ends_silence_but_not_burst() {
        let mut gaps = PacketGaps::default();
        gaps.record_data(100, 1, 1_000);
        gaps.record_syn_fin(700);
        assert_eq!(gaps.silence_ns(900), 200);
        gaps.record_data(900, 1, 1_000);
        assert_eq!(gaps.finish().0.summary().buckets, [(800, 1)]);
    }

    #[test]
    fn backward_time_is_zero_gap() {
        let mut gaps = PacketGaps::default();
        for at in [100, 90, 130] {
            gaps.record_data(at, 1, 1_000);
        }
        let (gaps, bursts) = gaps.finish();
        assert_eq!(gaps.summary().buckets, [(0, 1), (30, 1)]);
        assert_eq!(bursts.summary().max, 3);
    }
}
