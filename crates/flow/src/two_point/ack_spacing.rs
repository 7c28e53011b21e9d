// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spacing of ACKs at both capture points.

use super::Side;
use crate::{distribution::Histogram, record};

/// Spacing of the pure ACKs that both points saw. Arrays are in the order of [`Side`].
#[derive(Debug, Default)]
pub(super) struct AckSpacing {
    /// Times of the last ACK, ns.
    last_ns: Option<[u64; 2]>,
    gaps_ns: [Histogram; 2],
    /// Number of pairs of ACKs whose gap at this point is less than half of that at the other.
    narrow_gaps: [u64; 2],
}

impl AckSpacing {
    /// Records an ACK with its time at each point. A reordered ACK has no spacing.
    pub(super) fn record(&mut self, times_ns: [u64; 2]) {
        let gaps = self.last_ns.replace(times_ns).and_then(|last_ns| {
            let gap = |side: usize| times_ns[side].checked_sub(last_ns[side]);
            Some([gap(0)?, gap(1)?])
        });
        let Some(gaps) = gaps else {
            return;
        };
        for side in [0, 1] {
            self.gaps_ns[side].record(gaps[side]);
            self.narrow_gaps[side] += u64::from(gaps[side] < gaps[1 - side] / 2);
        }
    }

    pub(super) fn finish(self, from_left: bool) -> record::AckSpacing {
        let from = if from_left { Side::Left } else { Side::Right };
        let (from, to) = (from as usize, from.other() as usize);
        record::AckSpacing {
            sent: self.gaps_ns[from].summary(),
            arrived: self.gaps_ns[to].summary(),
            compressed: self.narrow_gaps[to],
            stretched: self.narrow_gaps[from],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten ACKs, 1 ms apart; every two arrive together.
    #[test]
    fn detects_ack_compression() {
        let mut spacing = AckSpacing::default();
        for n in 0..10 {
            let sent = n * 1_000_000;
            let arrived = (n / 2 * 2 + 1) * 1_000_000 + n % 2 * 1_000;
            spacing.record([arrived, sent]);
        }
        let found = spacing.finish(false);
        assert_eq!((found.sent.min, found.sent.max), (1_000_000, 1_000_000));
        assert_eq!((found.arrived.count, found.arrived.min), (9, 1_000));
        assert_eq!((found.compressed, found.stretched), (5, 0));
    }
}
