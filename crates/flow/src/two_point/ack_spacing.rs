// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far apart ACKs are at each place.

use crate::{distribution::Histogram, record};

/// Pure ACKs that were seen at both places; arrays are left and right.
#[derive(Debug, Default)]
pub(super) struct AckSpacing {
    last: Option<[u64; 2]>,
    gaps: [Histogram; 2],
    /// Pairs that are less than half as far apart at this place as at the other.
    closer: [u64; 2],
}

impl AckSpacing {
    /// An ACK, and when each place saw it. One that was overtaken has no distance.
    pub(super) fn record(&mut self, times: [u64; 2]) {
        let gaps = self.last.replace(times).and_then(|last| {
            let gap = |side: usize| times[side].checked_sub(last[side]);
            Some([gap(0)?, gap(1)?])
        });
        let Some(gaps) = gaps else {
            return;
        };
        for place in [0, 1] {
            self.gaps[place].record(gaps[place]);
            self.closer[place] += u64::from(gaps[place] < gaps[1 - place] / 2);
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

    /// Ten ACKs, 1 ms apart, of which every two come together.
    #[test]
    fn acks_that_come_together_are_compressed() {
        let mut spacing = AckSpacing::default();
        for n in 0..10 {
            let sent = n * 1_000_000;
            let held = (n / 2 * 2 + 1) * 1_000_000 + n % 2 * 1_000;
            spacing.record([held, sent]);
        }
        let found = spacing.finish(false);
        assert_eq!((found.sent.min, found.sent.max), (1_000_000, 1_000_000));
        assert_eq!((found.arrived.count, found.arrived.min), (9, 1_000));
        assert_eq!((found.compressed, found.stretched), (5, 0));
    }
}
