// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of sequence numbers.

use std::ops::Range;

/// Set of numbers, as sorted ranges that do not touch each other.
#[derive(Debug, Default)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Returns how many of these numbers are in the set.
    pub(crate) fn overlap(&self, numbers: &Range<u64>) -> u64 {
        let common = |range: &Range<u64>| {
            let end = range.end.min(numbers.end);
            end.saturating_sub(range.start.max(numbers.start))
        };
        self.0.iter().rev().map(common).sum()
    }

    pub(crate) fn insert(&mut self, numbers: Range<u64>) {
        let disjoint = |range: &Range<u64>| range.end < numbers.start || numbers.end < range.start;
        let (mut ranges, joined): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.0).into_iter().partition(disjoint);
        let start = joined.iter().map(|range| range.start).min();
        let end = joined.iter().map(|range| range.end).max();
        let whole = numbers.start.min(start.unwrap_or(u64::MAX))..numbers.end.max(end.unwrap_or(0));
        let at = ranges.partition_point(|range| range.start < whole.start);
        if !whole.is_empty() {
            ranges.insert(at, whole);
        }
        self.0 = ranges;
    }
}

#[test]
fn merges_adjacent_ranges() {
    let mut ranges = Ranges::default();
    [10..20, 30..40, 20..25, 38..50, 7..7]
        .into_iter()
        .for_each(|numbers| ranges.insert(numbers));
    assert_eq!(ranges.0, [10..25, 30..50]);
    assert_eq!(ranges.overlap(&(0..35)), 20);
    ranges.insert(0..100);
    assert_eq!(ranges.0.as_slice(), std::slice::from_ref(&(0..100)));
}
