// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spacing of ACKs at both capture points.

use crate::{distribution::Histogram, record};

/// Pure ACKs seen at both points; array index 0 is the left one.
#[derive(Debug, Default)]
pub(super) struct AckSpacing {
    last: Option<[u64; 2]>,
    gaps: [Histogram; 2],
    /// Number of pairs whose spacing at this point is less than half of that at the other.
    closer: [u64; 2],
}

impl AckSpacing {
    /// Records an ACK with its time at each point. A reordered ACK has no spacing.
    pub(super) fn record(&mut self, times: [u64; 2]) {
        let gaps = self.last.replace(times).and_then(|last| {
            let gap = |side: usize| times[side].checked_sub(last[side]);
            Some([gap(0)?, gap(1)?])
        });
        let Some(gaps) = gaps else {
            return;
        };
        for side in [0, 1] {
            self.gaps[side].record(gaps[side]);
            self.closer[side] += u64::from(gaps[side] < gaps[1 - side] / 2);
        }
    }

    pub(super) fn finish(self, from_left: bool) -> record::AckSpacing {
        let (from, to) = if from_left { (0, 1) } else { (1, 0) };
        record::AckSpacing {
            sent: self.gaps[from].summary(),
            arrived: self.gaps[to].summary(),
            compressed: self.closer[to],
            stretched: self.closer[from],
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
