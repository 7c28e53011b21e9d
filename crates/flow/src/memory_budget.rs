// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings, and what all flows of a shard may still grow by: their tables, which are refused more when
//! there is nothing left, and all the rest of them, for which flows must end.

use super::{Settings, packet_windows::PacketWindows};
use std::collections::VecDeque;
use std::mem::size_of;

/// Entries that a table gets first.
const INITIAL_ENTRIES: usize = 8;

/// Bins that a course always has.
const SERIES_BINS_MIN: usize = 2;

/// The bounds of a shard.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    pub(super) settings: Settings,
    /// For tables. Less than zero by no more than the bins that courses always have.
    tables_left_bytes: isize,
    /// Flows that go on.
    flows: usize,
    /// What they take beside their tables.
    flows_bytes: usize,
    pub(super) excerpts: PacketWindows,
}

impl MemoryBudget {
    /// No table has grown yet.
    pub(super) fn new(settings: Settings) -> Self {
        let tables_max = settings.tables_max_bytes - PacketWindows::bytes_max(&settings);
        Self {
            tables_left_bytes: isize::try_from(tables_max).unwrap_or(isize::MAX),
            flows: 0,
            flows_bytes: 0,
            excerpts: PacketWindows::new(&settings),
            settings,
        }
    }

    /// A flow begins.
    pub(super) fn begin_flow(&mut self) {
        self.flows += 1;
    }

    /// A flow that took `before` takes `now`.
    #[inline]
    pub(super) fn account(&mut self, before: usize, now: usize) {
        self.flows_bytes = self.flows_bytes + now - before;
    }

    /// A flow is over that took `bytes`, and `tables` for its tables.
    pub(super) fn end_flow(&mut self, bytes: usize, tables: usize) {
        self.flows -= 1;
        self.flows_bytes -= bytes;
        self.tables_left_bytes += tables.cast_signed();
    }

    /// Whether there is no room for another flow: too many, or they take too much.
    pub(super) fn is_full(&self) -> bool {
        self.flows >= self.settings.flows_max.max(1) || self.is_exceeded()
    }

    /// Whether flows take more than they may.
    #[inline]
    pub(super) fn is_exceeded(&self) -> bool {
        self.flows_bytes > self.settings.flows_max_bytes
    }

    /// What flows take, tables included.
    pub(super) fn used_bytes(&self) -> usize {
        let left = self.tables_left_bytes;
        let tables = self.settings.tables_max_bytes.saturating_add_signed(-left);
        self.flows_bytes + tables
    }

    /// Whether `table` has room for one more, now or because it may grow: never beyond `most` entries.
    #[inline]
    pub(super) fn ensure_room<T>(&mut self, table: &mut VecDeque<T>, most: usize) -> bool {
        let length = table.len();
        length < most && (length < table.capacity() || self.grow(table, most))
    }

    #[cold]
    fn grow<T>(&mut self, table: &mut VecDeque<T>, most: usize) -> bool {
        let before = table.capacity();
        let more = self.growth::<T>(before, before + 1, most);
        table.reserve_exact(more);
        self.tables_left_bytes -= (more * size_of::<T>()).cast_signed();
        more > 0
    }

    /// How many bins of those that a course may have at `most` it can have, if it shall have `wanted`;
    /// makes room for them, and for two in any case.
    pub(super) fn reserve_bins<T>(
        &mut self,
        table: &mut Vec<T>,
        wanted: usize,
        most: usize,
    ) -> usize {
        let before = table.capacity();
        if wanted <= before || before >= most {
            return most;
        }
        let more = self.growth::<T>(before, wanted.min(most), most);
        let to = (before + more).max(SERIES_BINS_MIN);
        table.reserve_exact(to - table.len());
        self.tables_left_bytes -= ((to - before) * size_of::<T>()).cast_signed();
        if more > 0 { most } else { to }
    }

    /// By how many a table of `length` grows that needs `wanted`: to twice as many, if that is enough and
    /// there is memory left, or not at all.
    fn growth<T>(&self, length: usize, wanted: usize, most: usize) -> usize {
        let to = (2 * length).max(INITIAL_ENTRIES).max(wanted).min(most);
        let more = to.saturating_sub(length);
        let has_room = (more * size_of::<T>()).cast_signed() <= self.tables_left_bytes;
        if has_room { more } else { 0 }
    }
}

/// What `table` has taken.
pub(super) fn capacity_bytes<T>(table: &VecDeque<T>) -> usize {
    table.capacity() * size_of::<T>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(tables_max_bytes: usize) -> MemoryBudget {
        MemoryBudget::new(Settings {
            tables_max_bytes,
            packet_window_flows_max: 0,
            ..Settings::default()
        })
    }

    #[test]
    fn a_table_grows_until_the_memory_is_gone() {
        let (mut budget, mut table) = (budget(200), VecDeque::<u32>::new());
        while budget.ensure_room(&mut table, 1_000) {
            table.push_back(0);
        }
        assert_eq!((table.len(), budget.tables_left_bytes), (32, 200 - 128));
        table.pop_front();
        assert!(budget.ensure_room(&mut table, 1_000));
        budget.begin_flow();
        budget.end_flow(0, capacity_bytes(&table));
        assert_eq!((budget.tables_left_bytes, budget.used_bytes()), (200, 0));
    }

    #[test]
    fn a_table_has_a_bound_of_its_own() {
        let (mut budget, mut table) = (budget(10_000), VecDeque::<u32>::new());
        while budget.ensure_room(&mut table, 21) {
            table.push_back(0);
        }
        assert_eq!((table.len(), table.capacity()), (21, 21));
    }

    #[test]
    fn two_bins_are_there_without_memory_and_are_counted() {
        let (mut budget, mut list) = (budget(0), Vec::<u32>::new());
        assert_eq!(budget.reserve_bins(&mut list, 1, 40), 2);
        assert_eq!((list.capacity(), budget.used_bytes()), (2, 8));
        assert_eq!(budget.reserve_bins(&mut list, 9, 40), 2);
        assert_eq!(budget.used_bytes(), 8);
    }

    #[test]
    fn a_list_that_may_not_grow_says_what_it_has() {
        let (mut budget, mut list) = (budget(100), Vec::<u32>::new());
        assert_eq!(budget.reserve_bins(&mut list, 3, 40), 40);
        assert_eq!(list.capacity(), 8);
        assert_eq!(budget.reserve_bins(&mut list, 8, 40), 40);
        assert_eq!(budget.reserve_bins(&mut list, 30, 40), 8);
        assert_eq!(budget.reserve_bins(&mut list, 9, 40), 40);
        assert_eq!(list.capacity(), 16);
    }
}
