// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequence gaps: numbers that the capture point has not seen, although it has seen later ones or ACKs for them.

use crate::memory_budget::{MemoryBudget, capacity_bytes};
use std::collections::VecDeque;

/// A range of numbers that the capture point has not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SequenceGap {
    /// First number.
    pub(crate) start: u64,
    /// End (exclusive).
    pub(crate) end: u64,
    /// Time when the packet that opened the gap was seen, ns.
    pub(crate) at_ns: u64,
    /// TSval of that packet, if the data's sender sent it.
    pub(crate) tsval: Option<u32>,
}

/// Disjoint gaps, in order. A gap stays when its numbers are acknowledged: captures may reorder both directions, so
/// only at the end of the flow is it certain that they were never seen.
#[derive(Debug, Default)]
pub(crate) struct SequenceGaps {
    gaps: VecDeque<SequenceGap>,
    /// Acknowledged bytes of gaps that were removed to make room.
    forgotten_acked: u64,
}

impl SequenceGaps {
    /// Adds a gap behind all others. If there are too many, the first one is removed.
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

    /// Removes all gaps, after a break of the sequence numbers: later ones may be less. Numbers below `acked` were never
    /// seen.
    pub(crate) fn clear(&mut self, acked: u64) {
        let unseen = self.gaps.drain(..).map(|gap| below(&gap, acked));
        self.forgotten_acked += unseen.sum::<u64>();
    }

    /// Returns the last gap, if it ends at `end`.
    pub(crate) fn last_ending_at(&self, end: u64) -> Option<&SequenceGap> {
        self.gaps.back().filter(|gap| gap.end == end)
    }

    /// Removes `start..end` from the gaps, because these numbers were seen. Returns how many of them were in gaps, and
    /// the first such gap.
    pub(crate) fn fill(
        &mut self,
        start: u64,
        end: u64,
        budget: &mut MemoryBudget,
    ) -> (u64, Option<SequenceGap>) {
        let (mut filled, mut first) = (0, None);
        let mut at = self.gaps.partition_point(|gap| gap.end <= start);
        while let Some(&gap) = self.gaps.get(at).filter(|gap| gap.start < end) {
            first = first.or(Some(gap));
            filled += gap.end.min(end) - gap.start.max(start);
            at = self.retain_outside(at, gap, start, end, budget);
        }
        (filled, first)
    }

    /// Returns whether any of `start..end` is in a gap.
    pub(crate) fn overlaps(&self, start: u64, end: u64) -> bool {
        let at = self.gaps.partition_point(|gap| gap.end <= start);
        self.gaps.get(at).is_some_and(|gap| gap.start < end)
    }

    /// Cuts `start..end` out of the gap at index `at` and returns the index of the next gap.
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

    /// Returns the memory of the table, bytes.
    pub(crate) fn table_bytes(&self) -> usize {
        capacity_bytes(&self.gaps)
    }

    /// Returns how many numbers below `acked` were never seen, in gaps opened after `from_ns`.
    pub(crate) fn acked_unseen(&self, acked: u64, from_ns: u64) -> u64 {
        let counted = self.gaps.iter().filter(|gap| gap.at_ns > from_ns);
        self.forgotten_acked + counted.map(|gap| below(gap, acked)).sum::<u64>()
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

    fn sequence_gap(start: u64, end: u64) -> SequenceGap {
        SequenceGap {
            start,
            end,
            at_ns: start,
            tsval: None,
        }
    }

    fn with(ranges: &[(u64, u64)], max: usize) -> SequenceGaps {
        let mut sequence_gaps = SequenceGaps::default();
        for &(start, end) in ranges {
            sequence_gaps.open(sequence_gap(start, end), 1_000, &mut budget(max));
        }
        sequence_gaps
    }

    #[test]
    fn fills_gap_from_both_ends_and_middle() {
        let mut sequence_gaps = with(&[(10, 40)], 8);
        assert_eq!(
            sequence_gaps.fill(20, 25, &mut budget(8)),
            (5, Some(sequence_gap(10, 40)))
        );
        assert_eq!(sequence_gaps.fill(0, 15, &mut budget(8)).0, 5);
        assert_eq!(sequence_gaps.fill(30, 50, &mut budget(8)).0, 10);
        assert_eq!(sequence_gaps.acked_unseen(1_000, 0), 5 + 5);
        assert_eq!(sequence_gaps.fill(0, 100, &mut budget(8)).0, 10);
        assert_eq!(sequence_gaps.fill(0, 100, &mut budget(8)), (0, None));
    }

    #[test]
    fn counts_only_acknowledged_numbers_as_unseen() {
        let sequence_gaps = with(&[(10, 20), (30, 40)], 8);
        assert_eq!(
            [5, 15, 35, 99].map(|acked| sequence_gaps.acked_unseen(acked, 0)),
            [0, 5, 15, 20]
        );
        assert_eq!(sequence_gaps.acked_unseen(99, 10), 10);
    }

    #[test]
    fn counts_gaps_before_a_break_as_unseen() {
        let mut sequence_gaps = with(&[(10, 20), (30, 40)], 2);
        sequence_gaps.clear(35);
        assert_eq!(sequence_gaps.acked_unseen(1_000, 0), 15);
        assert_eq!(sequence_gaps.fill(0, 100, &mut budget(2)), (0, None));
    }

    #[test]
    fn counts_removed_gap_as_unseen() {
        let sequence_gaps = with(&[(10, 20), (30, 40), (50, 60)], 2);
        assert_eq!(sequence_gaps.gaps.len(), 2);
        assert_eq!(sequence_gaps.acked_unseen(1_000, 0), 30);
    }
}
