// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers that were passed over: the tap has seen later ones, or ACKs for them, but not them.

use crate::memory_budget::{MemoryBudget, capacity_bytes};
use std::collections::VecDeque;

/// Numbers that the tap has not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SequenceGap {
    /// First number.
    pub(crate) start: u64,
    /// Number behind the last.
    pub(crate) end: u64,
    /// When something beyond it was seen.
    pub(crate) at_ns: u64,
    /// TSval of what was seen beyond it, of the same sender.
    pub(crate) tsval: Option<u32>,
}

/// Holes apart from each other, in order. A hole stays when its numbers are acknowledged: captures put
/// both directions out of order too, and only the end says that it was never seen.
#[derive(Debug, Default)]
pub(crate) struct SequenceGaps {
    gaps: VecDeque<SequenceGap>,
    /// Of holes that had to be forgotten and were acknowledged by then.
    forgotten_acked: u64,
}

impl SequenceGaps {
    /// A hole behind all others. When there are too many, the first is forgotten.
    pub(crate) fn open(&mut self, gap: SequenceGap, acked: u64, budget: &mut MemoryBudget) {
        let most = budget.settings.ranges_max;
        if !budget.ensure_room(&mut self.gaps, most)
            && let Some(first) = self.gaps.pop_front()
        {
            self.forgotten_acked += below(&first, acked);
        }
        if self.gaps.len() < self.gaps.capacity() {
            self.gaps.push_back(gap);
        }
    }

    /// The last one, if it ends there.
    pub(crate) fn last_ending_at(&self, end: u64) -> Option<&SequenceGap> {
        self.gaps.back().filter(|hole| hole.end == end)
    }

    /// `start..end` was seen after all: how many of these numbers had not been, and the first hole that
    /// they were in.
    pub(crate) fn fill(
        &mut self,
        start: u64,
        end: u64,
        budget: &mut MemoryBudget,
    ) -> (u64, Option<SequenceGap>) {
        let (mut filled, mut first) = (0, None);
        let mut at = self.gaps.partition_point(|hole| hole.end <= start);
        while let Some(&hole) = self.gaps.get(at).filter(|hole| hole.start < end) {
            first = first.or(Some(hole));
            filled += hole.end.min(end) - hole.start.max(start);
            at = self.retain_outside(at, hole, start, end, budget);
        }
        (filled, first)
    }

    /// Whether anything of `start..end` is in a hole.
    pub(crate) fn overlaps(&self, start: u64, end: u64) -> bool {
        let at = self.gaps.partition_point(|hole| hole.end <= start);
        self.gaps.get(at).is_some_and(|hole| hole.start < end)
    }

    /// Leaves of the hole at `at` what is outside of `start..end`; where the next one is.
    fn retain_outside(
        &mut self,
        at: usize,
        gap: SequenceGap,
        start: u64,
        end: u64,
        budget: &mut MemoryBudget,
    ) -> usize {
        let before = SequenceGap { end: start, ..gap };
        let behind = SequenceGap { start: end, ..gap };
        match (gap.start < start, end < gap.end) {
            (false, false) => {
                self.gaps.remove(at);
                at
            }
            (true, false) => {
                self.gaps[at] = before;
                at + 1
            }
            (false, true) => {
                self.gaps[at] = behind;
                at + 1
            }
            (true, true) => {
                self.gaps[at] = before;
                let most = budget.settings.ranges_max;
                if budget.ensure_room(&mut self.gaps, most) {
                    self.gaps.insert(at + 1, behind);
                }
                at + 2
            }
        }
    }

    /// Memory of the table.
    pub(crate) fn table_bytes(&self) -> usize {
        capacity_bytes(&self.gaps)
    }

    /// Numbers that were acknowledged, everything below `acked` being so, and were never seen.
    pub(crate) fn acked_unseen(&self, acked: u64) -> u64 {
        self.forgotten_acked + self.gaps.iter().map(|hole| below(hole, acked)).sum::<u64>()
    }
}

fn below(gap: &SequenceGap, acked: u64) -> u64 {
    gap.end.min(acked).saturating_sub(gap.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn budget(ranges_max: usize) -> MemoryBudget {
        MemoryBudget::new(Settings {
            ranges_max,
            ..Settings::default()
        })
    }

    fn hole(start: u64, end: u64) -> SequenceGap {
        SequenceGap {
            start,
            end,
            at_ns: start,
            tsval: None,
        }
    }

    fn with(ranges: &[(u64, u64)], max: usize) -> SequenceGaps {
        let mut holes = SequenceGaps::default();
        for &(start, end) in ranges {
            holes.open(hole(start, end), 1_000, &mut budget(max));
        }
        holes
    }

    #[test]
    fn is_filled_from_both_ends_and_the_middle() {
        let mut holes = with(&[(10, 40)], 8);
        assert_eq!(holes.fill(20, 25, &mut budget(8)), (5, Some(hole(10, 40))));
        assert_eq!(holes.fill(0, 15, &mut budget(8)).0, 5);
        assert_eq!(holes.fill(30, 50, &mut budget(8)).0, 10);
        assert_eq!(holes.acked_unseen(1_000), 5 + 5);
        assert_eq!(holes.fill(0, 100, &mut budget(8)).0, 10);
        assert_eq!(holes.fill(0, 100, &mut budget(8)), (0, None));
    }

    #[test]
    fn only_what_is_acknowledged_is_missed() {
        let holes = with(&[(10, 20), (30, 40)], 8);
        assert_eq!(
            [5, 15, 35, 99].map(|acked| holes.acked_unseen(acked)),
            [0, 5, 15, 20]
        );
    }

    #[test]
    fn a_forgotten_hole_is_missed() {
        let holes = with(&[(10, 20), (30, 40), (50, 60)], 2);
        assert_eq!(holes.gaps.len(), 2);
        assert_eq!(holes.acked_unseen(1_000), 30);
    }
}
