// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of packet numbers as sorted ranges: what SACK reports, and what is lost.

use std::collections::VecDeque;

/// Disjoint ranges that don't touch, `start..end`, in order. Changes near either end are cheap,
/// and those are nearly all: SACKs come in order of transmission. At most one range for each
/// packet of a window.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges {
    list: VecDeque<(u64, u64)>,
    total: u64,
}

impl Ranges {
    /// How many packets are in it.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        self.list.front().copied()
    }

    /// The range that `packet` is in.
    pub(crate) fn around(&self, packet: u64) -> Option<(u64, u64)> {
        let range = *self.list.get(self.ending_after(packet))?;
        (range.0 <= packet).then_some(range)
    }

    /// Adds `start..end`; how many of it are new.
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

    /// Puts one range in the place of those from `from` to before `until`.
    fn replace(&mut self, from: usize, until: usize, with: (u64, u64)) {
        if from == until {
            return self.list.insert(from, with);
        }
        self.list[from] = with;
        if until > from + 1 {
            self.list.drain(from + 1..until);
        }
    }

    /// Removes `start..end`; how many of it were in.
    pub(crate) fn remove(&mut self, start: u64, end: u64) -> u64 {
        let before = self.total;
        let mut at = self.ending_after(start);
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

    /// Removes all below `end`; how many they were.
    pub(crate) fn remove_below(&mut self, end: u64) -> u64 {
        let before = self.total;
        while let Some((low, high)) = self.first().filter(|range| range.0 < end) {
            self.total -= high.min(end) - low;
            match high <= end {
                true => drop(self.list.pop_front()),
                false => self.list[0].0 = end,
            }
        }
        before - self.total
    }

    /// Calls `gap` for each range of `start..end` that is not in this set.
    pub(crate) fn gaps(&self, start: u64, end: u64, mut gap: impl FnMut(u64, u64)) {
        let mut next = start;
        for &(low, high) in self.list.range(self.ending_after(start)..) {
            if low >= end {
                break;
            }
            if low > next {
                gap(next, low);
            }
            next = high;
        }
        if next < end {
            gap(next, end);
        }
    }

    /// The first range that ends after `packet`.
    fn ending_after(&self, packet: u64) -> usize {
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
            for (what, start, len) in steps {
                let (span, before) = (start..start + len, set.len() as u64);
                let changed = match what {
                    0 | 1 => { set.extend(span.clone()); ranges.insert(span.start, span.end) }
                    2 => { set.retain(|n| !span.contains(n)); ranges.remove(span.start, span.end) }
                    _ => { set.retain(|n| *n >= start); ranges.remove_below(start) }
                };
                prop_assert_eq!(&as_set(&ranges), &set);
                prop_assert!(is_normal(&ranges));
                prop_assert_eq!(changed, before.abs_diff(set.len() as u64));
                prop_assert_eq!(ranges.total(), set.len() as u64);
                let mut gaps = BTreeSet::new();
                ranges.gaps(span.start, span.end, |low, high| gaps.extend(low..high));
                let missing: BTreeSet<u64> = span.filter(|n| !set.contains(n)).collect();
                prop_assert_eq!(gaps, missing);
                prop_assert_eq!(ranges.around(start).is_some(), set.contains(&start));
            }
        }
    }
}
