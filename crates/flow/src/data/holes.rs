// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers that were passed over: the tap has seen later ones, or ACKs for them, but not them.

use crate::bounds::{Bounds, bytes_of};
use std::collections::VecDeque;

/// Numbers that the tap has not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hole {
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
pub(crate) struct Holes {
    holes: VecDeque<Hole>,
    /// Of holes that had to be forgotten and were acknowledged by then.
    missed: u64,
}

impl Holes {
    /// A hole behind all others. When there are too many, the first is forgotten.
    pub(crate) fn open(&mut self, hole: Hole, acked: u64, bounds: &mut Bounds) {
        let most = bounds.settings.ranges_max;
        if !bounds.has_room(&mut self.holes, most)
            && let Some(first) = self.holes.pop_front()
        {
            self.missed += below(&first, acked);
        }
        if self.holes.len() < self.holes.capacity() {
            self.holes.push_back(hole);
        }
    }

    /// The last one, if it ends there.
    pub(crate) fn ends_at(&self, end: u64) -> Option<&Hole> {
        self.holes.back().filter(|hole| hole.end == end)
    }

    /// `start..end` was seen after all: how many of these numbers had not been, and the first hole that
    /// they were in.
    pub(crate) fn fill(
        &mut self,
        start: u64,
        end: u64,
        bounds: &mut Bounds,
    ) -> (u64, Option<Hole>) {
        let (mut filled, mut first) = (0, None);
        let mut at = self.holes.partition_point(|hole| hole.end <= start);
        while let Some(&hole) = self.holes.get(at).filter(|hole| hole.start < end) {
            first = first.or(Some(hole));
            filled += hole.end.min(end) - hole.start.max(start);
            at = self.keep_rest(at, hole, start, end, bounds);
        }
        (filled, first)
    }

    /// Whether anything of `start..end` is in a hole.
    pub(crate) fn touch(&self, start: u64, end: u64) -> bool {
        let at = self.holes.partition_point(|hole| hole.end <= start);
        self.holes.get(at).is_some_and(|hole| hole.start < end)
    }

    /// Leaves of the hole at `at` what is outside of `start..end`; where the next one is.
    fn keep_rest(
        &mut self,
        at: usize,
        hole: Hole,
        start: u64,
        end: u64,
        bounds: &mut Bounds,
    ) -> usize {
        let before = Hole { end: start, ..hole };
        let behind = Hole { start: end, ..hole };
        match (hole.start < start, end < hole.end) {
            (false, false) => {
                self.holes.remove(at);
                at
            }
            (true, false) => {
                self.holes[at] = before;
                at + 1
            }
            (false, true) => {
                self.holes[at] = behind;
                at + 1
            }
            (true, true) => {
                self.holes[at] = before;
                let most = bounds.settings.ranges_max;
                if bounds.has_room(&mut self.holes, most) {
                    self.holes.insert(at + 1, behind);
                }
                at + 2
            }
        }
    }

    /// Memory of the table.
    pub(crate) fn table_bytes(&self) -> usize {
        bytes_of(&self.holes)
    }

    /// Numbers that were acknowledged, everything below `acked` being so, and were never seen.
    pub(crate) fn missed(&self, acked: u64) -> u64 {
        self.missed
            + self
                .holes
                .iter()
                .map(|hole| below(hole, acked))
                .sum::<u64>()
    }
}

fn below(hole: &Hole, acked: u64) -> u64 {
    hole.end.min(acked).saturating_sub(hole.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn room(ranges_max: usize) -> Bounds {
        Bounds::new(Settings {
            ranges_max,
            ..Settings::default()
        })
    }

    fn hole(start: u64, end: u64) -> Hole {
        Hole {
            start,
            end,
            at_ns: start,
            tsval: None,
        }
    }

    fn with(ranges: &[(u64, u64)], max: usize) -> Holes {
        let mut holes = Holes::default();
        for &(start, end) in ranges {
            holes.open(hole(start, end), 1_000, &mut room(max));
        }
        holes
    }

    #[test]
    fn is_filled_from_both_ends_and_the_middle() {
        let mut holes = with(&[(10, 40)], 8);
        assert_eq!(holes.fill(20, 25, &mut room(8)), (5, Some(hole(10, 40))));
        assert_eq!(holes.fill(0, 15, &mut room(8)).0, 5);
        assert_eq!(holes.fill(30, 50, &mut room(8)).0, 10);
        assert_eq!(holes.missed(1_000), 5 + 5);
        assert_eq!(holes.fill(0, 100, &mut room(8)).0, 10);
        assert_eq!(holes.fill(0, 100, &mut room(8)), (0, None));
    }

    #[test]
    fn only_what_is_acknowledged_is_missed() {
        let holes = with(&[(10, 20), (30, 40)], 8);
        assert_eq!(
            [5, 15, 35, 99].map(|acked| holes.missed(acked)),
            [0, 5, 15, 20]
        );
    }

    #[test]
    fn a_forgotten_hole_is_missed() {
        let holes = with(&[(10, 20), (30, 40), (50, 60)], 2);
        assert_eq!(holes.holes.len(), 2);
        assert_eq!(holes.missed(1_000), 30);
    }
}
