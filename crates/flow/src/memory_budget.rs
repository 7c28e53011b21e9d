// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory budget of a shard, and what its flows and their tables have used of it. If no memory is left for tables, they
//! stop growing. If flows without their tables use too much, the flows that were idle longest are ended.

use super::{Settings, packet_windows::PacketWindows};
use std::collections::VecDeque;
use std::mem::size_of;

/// Number of entries of a table when it first grows.
const INITIAL_ENTRIES: usize = 8;

/// Number of bins that a time series may have even if no memory is left.
const SERIES_BINS_MIN: usize = 2;

/// Memory budget of a shard.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    pub(super) settings: Settings,
    /// Memory left for tables, bytes. Below zero by at most [`SERIES_BINS_MIN`] bins of each time series.
    tables_left_bytes: isize,
    /// Number of active flows.
    flows: usize,
    /// Memory of the active flows without their tables, bytes.
    flows_bytes: usize,
    pub(super) packet_windows: PacketWindows,
}

impl MemoryBudget {
    /// Creates the budget, with nothing used.
    pub(super) fn new(settings: Settings) -> Self {
        let tables_max = settings.tables_max_bytes - PacketWindows::bytes_max(&settings);
        Self {
            tables_left_bytes: isize::try_from(tables_max).unwrap_or(isize::MAX),
            flows: 0,
            flows_bytes: 0,
            packet_windows: PacketWindows::new(&settings),
            settings,
        }
    }

    /// Counts a new flow.
    pub(super) fn begin_flow(&mut self) {
        self.flows += 1;
    }

    /// Records that a flow, without its tables, uses `after` bytes and no longer `before` bytes.
    #[inline]
    pub(super) fn resize_flow(&mut self, before: usize, after: usize) {
        self.flows_bytes = self.flows_bytes + after - before;
    }

    /// Removes a flow that used `bytes` without its tables, and `tables_bytes` for its tables.
    pub(super) fn end_flow(&mut self, bytes: usize, tables_bytes: usize) {
        self.flows -= 1;
        self.flows_bytes -= bytes;
        self.tables_left_bytes += tables_bytes.cast_signed();
    }

    /// Returns whether there is no room for another flow: too many flows, or too much memory.
    pub(super) fn is_full(&self) -> bool {
        self.flows >= self.settings.flows_max.max(1) || self.is_exceeded()
    }

    /// Returns whether the flows without their tables use more memory than they may.
    #[inline]
    pub(super) fn is_exceeded(&self) -> bool {
        self.flows_bytes > self.settings.flows_max_bytes
    }

    /// Returns the memory of all flows, tables included, bytes.
    pub(super) fn used_bytes(&self) -> usize {
        let left = self.tables_left_bytes;
        let tables = self.settings.tables_max_bytes.saturating_add_signed(-left);
        self.flows_bytes + tables
    }

    /// Returns whether `table` has room for one more entry, after growing it if needed. It never has more than
    /// `entries_max` entries.
    #[inline]
    pub(super) fn ensure_room<T>(&mut self, table: &mut VecDeque<T>, entries_max: usize) -> bool {
        let length = table.len();
        length < entries_max && (length < table.capacity() || self.grow(table, entries_max))
    }

    #[cold]
    fn grow<T>(&mut self, table: &mut VecDeque<T>, entries_max: usize) -> bool {
        let before = table.capacity();
        let more = self.growth::<T>(before, before + 1, entries_max);
        table.reserve_exact(more);
        self.tables_left_bytes -= (more * size_of::<T>()).cast_signed();
        more > 0
    }

    /// Frees the memory of `table`.
    pub(super) fn free<T>(&mut self, table: &mut VecDeque<T>) {
        self.tables_left_bytes += capacity_bytes(table).cast_signed();
        *table = VecDeque::new();
    }

    /// Makes room for `wanted` bins in `table`, as far as memory is left, and for [`SERIES_BINS_MIN`] in any case.
    /// Returns how many bins it may have: `bins_max`, or what it has room for if it may not grow.
    pub(super) fn reserve_bins<T>(
        &mut self,
        table: &mut Vec<T>,
        wanted: usize,
        bins_max: usize,
    ) -> usize {
        let before = table.capacity();
        if wanted <= before || before >= bins_max {
            return bins_max;
        }
        let more = self.growth::<T>(before, wanted.min(bins_max), bins_max);
        let to = (before + more).max(SERIES_BINS_MIN);
        table.reserve_exact(to - table.len());
        self.tables_left_bytes -= ((to - before) * size_of::<T>()).cast_signed();
        if more > 0 { bins_max } else { to }
    }

    /// Returns by how many entries a table with room for `capacity` grows if it needs `wanted`. It at least doubles, up
    /// to `entries_max`. Returns 0 if too little memory is left.
    fn growth<T>(&self, capacity: usize, wanted: usize, entries_max: usize) -> usize {
        let to = (2 * capacity)
            .max(INITIAL_ENTRIES)
            .max(wanted)
            .min(entries_max);
        let more = to.saturating_sub(capacity);
        let has_room = (more * size_of::<T>()).cast_signed() <= self.tables_left_bytes;
        if has_room { more } else { 0 }
    }
}

/// Returns the memory that `table` has allocated, bytes.
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
    fn table_grows_until_memory_is_used_up() {
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
    fn table_stops_at_its_own_bound() {
        let (mut budget, mut table) = (budget(10_000), VecDeque::<u32>::new());
        while budget.ensure_room(&mut table, 21) {
            table.push_back(0);
        }
        assert_eq!((table.len(), table.capacity()), (21, 21));
    }

    #[test]
    fn grants_and_counts_two_bins_without_memory() {
        let (mut budget, mut list) = (budget(0), Vec::<u32>::new());
        assert_eq!(budget.reserve_bins(&mut list, 1, 40), 2);
        assert_eq!((list.capacity(), budget.used_bytes()), (2, 8));
        assert_eq!(budget.reserve_bins(&mut list, 9, 40), 2);
        assert_eq!(budget.used_bytes(), 8);
    }

    #[test]
    fn returns_current_capacity_if_growth_is_refused() {
        let (mut budget, mut list) = (budget(100), Vec::<u32>::new());
        assert_eq!(budget.reserve_bins(&mut list, 3, 40), 40);
        assert_eq!(list.capacity(), 8);
        assert_eq!(budget.reserve_bins(&mut list, 8, 40), 40);
        assert_eq!(budget.reserve_bins(&mut list, 30, 40), 8);
        assert_eq!(budget.reserve_bins(&mut list, 9, 40), 40);
        assert_eq!(list.capacity(), 16);
    }
}
