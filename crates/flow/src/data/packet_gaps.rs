// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gaps between data packets, and the bursts that small gaps make: what pacing changes.

use crate::distribution::Histogram;

/// Gaps and bursts of one direction. Gaps lie between captured packets; what was one super-packet has
/// none inside.
#[derive(Debug, Default)]
pub(crate) struct PacketGaps {
    last_ns: u64,
    /// The last SYN or FIN without data.
    syn_fin_ns: u64,
    /// Wire segments of the burst so far; 0 before the first packet.
    burst: u64,
    gaps: Histogram,
    bursts: Histogram,
}

impl PacketGaps {
    /// A packet with payload: `segments` on the wire. Time that runs backwards is a gap of 0. Whether a
    /// burst begins with it.
    #[inline]
    pub(crate) fn record_data(&mut self, at_ns: u64, segments: u64, burst_gap_ns: u64) -> bool {
        if self.burst > 0 {
            let gap = at_ns.saturating_sub(self.last_ns);
            self.gaps.record(gap);
            if gap >= burst_gap_ns {
                self.bursts.record(self.burst);
                self.burst = 0;
            }
        }
        let begins = self.burst == 0;
        self.burst += segments;
        self.last_ns = self.last_ns.max(at_ns);
        begins
    }

    /// A SYN or a FIN without data, which ends a silence and no burst.
    #[cold]
    pub(crate) fn record_syn_fin(&mut self, at_ns: u64) {
        self.syn_fin_ns = self.syn_fin_ns.max(at_ns);
    }

    /// How long nothing was sent that is acknowledged; 0 before the first.
    pub(crate) fn silence_ns(&self, at_ns: u64) -> u64 {
        match self.last_ns.max(self.syn_fin_ns) {
            0 => 0,
            last_ns => at_ns.saturating_sub(last_ns),
        }
    }

    /// Memory of the distributions.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.gaps.bytes() + self.bursts.bytes()
    }

    /// Gaps, and bursts with the last one among them.
    pub(crate) fn finish(mut self) -> (Histogram, Histogram) {
        if self.burst > 0 {
            self.bursts.record(self.burst);
        }
        (self.gaps, self.bursts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_as_long_as_the_burst_gap_ends_a_burst() {
        let mut gaps = PacketGaps::default();
        for (at, segments) in [(0, 1), (9, 2), (19, 4), (28, 8)] {
            gaps.record_data(at, segments, 10);
        }
        let (gaps, bursts) = gaps.finish();
        assert_eq!(gaps.summary().buckets, [(9, 2), (10, 1)]);
        assert_eq!(bursts.summary().buckets, [(3, 1), (12, 1)]);
    }

    #[test]
    fn a_fin_ends_a_silence_and_no_burst() {
        let mut gaps = PacketGaps::default();
        gaps.record_data(100, 1, 1_000);
        gaps.record_syn_fin(700);
        assert_eq!(gaps.silence_ns(900), 200);
        gaps.record_data(900, 1, 1_000);
        assert_eq!(gaps.finish().0.summary().buckets, [(800, 1)]);
    }

    #[test]
    fn time_that_runs_backwards_is_no_gap() {
        let mut gaps = PacketGaps::default();
        for at in [100, 90, 130] {
            gaps.record_data(at, 1, 1_000);
        }
        let (gaps, bursts) = gaps.finish();
        assert_eq!(gaps.summary().buckets, [(0, 1), (30, 1)]);
        assert_eq!(bursts.summary().max, 3);
    }
}
