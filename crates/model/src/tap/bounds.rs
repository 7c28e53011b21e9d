// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings, and what the tables of all flows of a shard may still grow by.

use super::{Settings, excerpts::Excerpts};
use std::collections::VecDeque;
use std::mem::size_of;

/// Entries that a table gets first.
const FIRST: usize = 8;

/// The bounds of a shard.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) settings: Settings,
    left_bytes: usize,
    pub(super) excerpts: Excerpts,
}

impl Bounds {
    /// No table has grown yet.
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            left_bytes: settings.tables_max_bytes - Excerpts::bytes_max(&settings),
            excerpts: Excerpts::new(&settings),
            settings,
        }
    }

    /// Whether `table` has room for one more, now or because it may grow: never beyond `most` entries.
    #[inline]
    pub(super) fn has_room<T>(&mut self, table: &mut VecDeque<T>, most: usize) -> bool {
        let length = table.len();
        length < most && (length < table.capacity() || self.grow(table, most))
    }

    #[cold]
    fn grow<T>(&mut self, table: &mut VecDeque<T>, most: usize) -> bool {
        let before = table.capacity();
        let more = self.growth::<T>(before, before + 1, most);
        table.reserve_exact(more);
        self.left_bytes = (self.left_bytes).saturating_sub(more * size_of::<T>());
        more > 0
    }

    /// How many entries of those that `table` may have at `most` it can have, if it shall have `wanted`;
    /// makes room for them.
    pub(super) fn length_of<T>(&mut self, table: &mut Vec<T>, wanted: usize, most: usize) -> usize {
        let before = table.capacity();
        if wanted <= before || before >= most {
            return most;
        }
        let more = self.growth::<T>(before, wanted.min(most), most);
        table.reserve_exact(before + more - table.len());
        self.left_bytes = (self.left_bytes).saturating_sub(more * size_of::<T>());
        if more > 0 { most } else { before }
    }

    /// By how many a table of `length` grows that needs `wanted`: to twice as many, if that is enough and
    /// there is memory left, or not at all.
    fn growth<T>(&self, length: usize, wanted: usize, most: usize) -> usize {
        let to = (2 * length).max(FIRST).max(wanted).min(most);
        let more = to.saturating_sub(length);
        if more * size_of::<T>() <= self.left_bytes {
            more
        } else {
            0
        }
    }

    /// Tables of so many bytes are gone.
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.left_bytes += bytes;
    }
}

/// What `table` has taken.
pub(super) fn bytes_of<T>(table: &VecDeque<T>) -> usize {
    table.capacity() * size_of::<T>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(tables_max_bytes: usize) -> Bounds {
        Bounds::new(Settings {
            tables_max_bytes,
            excerpts_flows_max: 0,
            ..Settings::default()
        })
    }

    #[test]
    fn a_table_grows_until_the_memory_is_gone() {
        let (mut bounds, mut table) = (bounds(200), VecDeque::<u32>::new());
        while bounds.has_room(&mut table, 1_000) {
            table.push_back(0);
        }
        assert_eq!((table.len(), bounds.left_bytes), (32, 200 - 128));
        table.pop_front();
        assert!(bounds.has_room(&mut table, 1_000));
        bounds.give_back(bytes_of(&table));
        assert_eq!(bounds.left_bytes, 200);
    }

    #[test]
    fn a_table_has_a_bound_of_its_own() {
        let (mut bounds, mut table) = (bounds(10_000), VecDeque::<u32>::new());
        while bounds.has_room(&mut table, 21) {
            table.push_back(0);
        }
        assert_eq!((table.len(), table.capacity()), (21, 21));
    }

    #[test]
    fn a_list_that_may_not_grow_says_what_it_has() {
        let (mut bounds, mut list) = (bounds(100), Vec::<u32>::new());
        assert_eq!(bounds.length_of(&mut list, 3, 40), 40);
        assert_eq!(list.capacity(), 8);
        assert_eq!(bounds.length_of(&mut list, 8, 40), 40);
        assert_eq!(bounds.length_of(&mut list, 30, 40), 8);
        assert_eq!(bounds.length_of(&mut list, 9, 40), 40);
        assert_eq!(list.capacity(), 16);
    }
}
