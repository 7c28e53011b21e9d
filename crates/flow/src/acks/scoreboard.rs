// SPDX-License-Identifier: MIT OR Apache-2.0
//! The SACK scoreboard: ranges received above the ACK number (RFC 2018, RFC 6675 §4).

use crate::memory_budget::{MemoryBudget, capacity_bytes};
use std::collections::VecDeque;

/// Disjoint ranges of SACKed numbers, in order.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    ranges: VecDeque<(u64, u64)>,
    bytes: u64,
}

impl Scoreboard {
    /// Returns how many numbers are SACKed.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the end of the last range; 0 without ranges.
    pub(crate) fn highest(&self) -> u64 {
        self.ranges.back().map_or(0, |range| range.1)
    }

    /// Returns whether all of `start..end` is SACKed.
    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.1 < end);
        self.ranges.get(at).is_some_and(|range| range.0 <= start)
    }

    /// Inserts the SACKed range `start..end`. A range beyond the bound is dropped, so the scoreboard knows of fewer
    /// received bytes than there are.
    pub(crate) fn insert(&mut self, start: u64, end: u64, budget: &mut MemoryBudget) {
        // The first range that touches the new one or lies behind it.
        let at = self.ranges.partition_point(|range| range.1 < start);
        match self.ranges.get(at) {
            Some(range) if range.0 <= start && end <= range.1 => {}
            Some(range) if range.0 <= end => self.merge_from(at, start, end),
            _ => self.insert_separate(at, start, end, budget),
        }
    }

    fn insert_separate(&mut self, at: usize, start: u64, end: u64, budget: &mut MemoryBudget) {
        let most = budget.settings.ranges_max;
        if budget.ensure_room(&mut self.ranges, most) {
            self.ranges.insert(at, (start, end));
            self.bytes += end - start;
        }
    }

    /// Removes all ranges.
    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
        self.bytes = 0;
    }

    /// Returns the memory of the table, bytes.
    pub(crate) fn table_bytes(&self) -> usize {
        capacity_bytes(&self.ranges)
    }

    /// Merges `start..end` with all ranges from index `at` on that touch it.
    fn merge_from(&mut self, at: usize, start: u64, end: u64) {
        let mut joined = (start.min(self.ranges[at].0), end);
        let mut behind = at;
        while let Some(range) = self.ranges.get(behind).filter(|range| range.0 <= end) {
            joined.1 = joined.1.max(range.1);
            self.bytes -= range.1 - range.0;
            behind += 1;
        }
        self.ranges[at] = joined;
        self.ranges.drain(at + 1..behind);
        self.bytes += joined.1 - joined.0;
    }

    /// Removes all numbers below `ack`.
    #[inline]
    pub(crate) fn remove_acked(&mut self, ack: u64) {
        while let Some(range) = self.ranges.front_mut() {
            if range.0 >= ack {
                break;
            }
            let below = range.1.min(ack) - range.0;
            self.bytes -= below;
            range.0 += below;
            if range.0 == range.1 {
                self.ranges.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn budget(ranges_max: usize) -> MemoryBudget {
        MemoryBudget::new(Settings {
            ranges_max,
            ..Settings::default()
        })
    }

    fn with(ranges: &[(u64, u64)]) -> Scoreboard {
        let mut scoreboard = Scoreboard::default();
        for &(start, end) in ranges {
            scoreboard.insert(start, end, &mut budget(8));
        }
        scoreboard
    }

    #[test]
    fn merges_adjacent_ranges() {
        let scoreboard = with(&[(10, 20), (30, 40), (20, 30)]);
        assert_eq!(scoreboard.ranges, [(10, 40)]);
        assert!(
            scoreboard.covers(10, 40) && !scoreboard.covers(9, 40) && !scoreboard.covers(10, 41)
        );
    }

    #[test]
    fn removes_acknowledged_ranges() {
        let mut scoreboard = with(&[(10, 20), (30, 40)]);
        scoreboard.remove_acked(35);
        assert_eq!((scoreboard.bytes(), scoreboard.highest()), (5, 40));
        scoreboard.remove_acked(40);
        assert_eq!((scoreboard.bytes(), scoreboard.highest()), (0, 0));
    }

    #[test]
    fn drops_range_beyond_bound() {
        let mut scoreboard = Scoreboard::default();
        for i in 0..4 {
            scoreboard.insert(i * 10, i * 10 + 5, &mut budget(3));
        }
        assert_eq!(scoreboard.ranges.len(), 3);
        scoreboard.insert(20, 28, &mut budget(3));
        assert_eq!(scoreboard.highest(), 28);
    }

    proptest! {
        #[test]
        fn matches_a_set(steps in prop::collection::vec((0u64..200, 1u64..30, prop::bool::weighted(0.2)), 0..60)) {
            let (mut scoreboard, mut set, mut acked) = (Scoreboard::default(), BTreeSet::new(), 0);
            for (start, length, ack) in steps {
                if ack {
                    acked = acked.max(start);
                    scoreboard.remove_acked(acked);
                    set = set.split_off(&acked);
                } else if start >= acked {
                    scoreboard.insert(start, start + length, &mut budget(1_000));
                    set.extend(start..start + length);
                }
                prop_assert_eq!(scoreboard.bytes(), set.len() as u64);
                prop_assert_eq!(scoreboard.highest(), set.last().map_or(0, |n| n + 1));
                let covered = (start..start + length).all(|n| set.contains(&n));
                prop_assert_eq!(scoreboard.covers(start, start + length), covered);
            }
        }
    }
}
