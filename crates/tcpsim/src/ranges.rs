// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of packet numbers as sorted ranges: SACKed packets, and lost ones.

use std::collections::VecDeque;

/// Disjoint ranges `start..end` in order, none touching the next. At most one range for each packet of a
/// window.
///
/// Changes near either end are cheap. Nearly all changes are there, because SACKs arrive in order of
/// transmission.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges {
    list: VecDeque<(u64, u64)>,
    total: u64,
}

impl Ranges {
    /// Returns the number of packets in the set.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        self.list.front().copied()
    }

    /// Returns the range that contains `packet`.
    pub(crate) fn containing(&self, packet: u64) -> Option<(u64, u64)> {
        let range = *self.list.get(self.index_ending_after(packet))?;
        (range.0 <= packet).then_some(range)
    }

    /// Adds `start..end` and returns how many packets are new.
    pub(crate) fn insert(&mut self, start: u64, end: u64) -> u64 {
        let before = self.total;
        let from = self.list.partition_point(|range| range.1 < start);
        let (mut low, mut high, mut until) = (start, end, from);
        while let Some(range) = self.list.get(until).filter(|range| range.0 <= end) {
            low = low.min(range.0);
            high = high.max(range.1);
            self.total -= range.1 - range.0;
            until += 1;
        }
        self.total += high - low;
        self.replace(from, until, (low, high));
        self.total - before
    }

    /// Replaces the ranges with the indices `from..until` by one range.
    fn replace(&mut self, from: usize, until: usize, with: (u64, u64)) {
        if from == until {
            return self.list.insert(from, with);
        }
        self.list[from] = with;
        if until > from + 1 {
            self.list.drain(from + 1..until);
        }
    }

    /// Removes `start..end` and returns how many packets were in the set.
    pub(crate) fn remove(&mut self, start: u64, end: u64) -> u64 {
        let before = self.total;
        let mut at = self.index_ending_after(start);
        while let Some(&(low, high)) = self.list.get(at).filter(|range| range.0 < end) {
            self.total -= high.min(end) - low.max(start);
            match (low < start, high > end) {
                (true, true) => {
                    self.list[at].1 = start;
                    self.list.insert(at + 1, (end, high));
                    at += 2;
                }
                (true, false) => {
                    self.list[at].1 = start;
                    at += 1;
                }
                (false, true) => {
                    self.list[at].0 = end;
                    at += 1;
                }
                (false, false) => drop(self.list.remove(at)),
            }
        }
        before - self.total
    }

    /// Removes all packets below `end` and returns how many there were.
    pub(crate) fn remove_below(&mut self, end: u64) -> u64 {
        let before = self.total;
        while let Some((low, high)) = self.first().filter(|range| range.0 < end) {
            self.total -= high.min(end) - low;
            if high <= end {
                self.list.pop_front();
            } else {
                self.list[0].0 = end;
            }
        }
        before - self.total
    }

    /// Calls `visit` for each range of `start..end` that is not in the set.
    pub(crate) fn for_each_gap(&self, start: u64, end: u64, mut visit: impl FnMut(u64, u64)) {
        let mut next = start;
        for &(low, high) in self.list.range(self.index_ending_after(start)..) {
            if low >= end {
                break;
            }
            if low > next {
                visit(next, low);
            }
            next = high;
        }
        if next < end {
            visit(next, end);
        }
    }

    /// Returns the index of the first range that ends after `packet`.
    fn index_ending_after(&self, packet: u64) -> usize {
        self.list.partition_point(|range| range.1 <= packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn as_set(ranges: &Ranges) -> BTreeSet<u64> {
        ranges
            .list
            .iter()
            .flat_map(|(low, high)| *low..*high)
            .collect()
    }

    fn is_normal(ranges: &Ranges) -> bool {
        let list: Vec<_> = ranges.list.iter().collect();
        list.iter().all(|range| range.0 < range.1) && list.windows(2).all(|two| two[0].1 < two[1].0)
    }

    proptest! {
        #[test]
        fn behaves_as_a_set(steps in prop::collection::vec((0u8..4, 0u64..60, 1u64..12), 1..80)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (operation, start, len) in steps {
                let (span, before) = (start..start + len, set.len() as u64);
                let changed = match operation {
                    0 | 1 => { set.extend(span.clone()); ranges.insert(span.start, span.end) }
                    2 => { set.retain(|n| !span.contains(n)); ranges.remove(span.start, span.end) }
                    _ => { set.retain(|n| *n >= start); ranges.remove_below(start) }
                };
                prop_assert_eq!(&as_set(&ranges), &set);
                prop_assert!(is_normal(&ranges));
                prop_assert_eq!(changed, before.abs_diff(set.len() as u64));
                prop_assert_eq!(ranges.total(), set.len() as u64);
                let mut gaps = BTreeSet::new();
                ranges.for_each_gap(span.start, span.end, |low, high| gaps.extend(low..high));
                let missing: BTreeSet<u64> = span.filter(|n| !set.contains(n)).collect();
                prop_assert_eq!(gaps, missing);
                prop_assert_eq!(ranges.containing(start).is_some(), set.contains(&start));
            }
        }
    }
}
