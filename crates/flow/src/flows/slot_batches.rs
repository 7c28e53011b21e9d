// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups the items of a batch by the slot of their flow, so that a flow's state is loaded into the cache once a batch
//! and not once a packet.

/// End of a list.
const NONE: u32 = u32::MAX;

/// Lists of items in two arrays: 8 bytes a slot, 4 an item.
#[derive(Debug, Default)]
pub(super) struct SlotBatches {
    /// Next item of the same slot, by item.
    next: Vec<u32>,
    /// First and last item, by slot.
    lists: Vec<List>,
    /// Slots with items, in the order in which they got their first one.
    slots: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

impl SlotBatches {
    /// Starts a batch of `items` items. All items of the batch before must have been taken.
    pub(super) fn start_batch(&mut self, items: usize) {
        self.next.clear();
        self.next.resize(items, NONE);
        self.slots.clear();
    }

    /// Appends `item` to the list of `slot`.
    #[inline]
    pub(super) fn add(&mut self, slot: u32, item: u32) {
        if slot as usize >= self.lists.len() {
            self.make_list(slot);
        }
        let list = &mut self.lists[slot as usize];
        match list.first {
            NONE => {
                list.first = item;
                self.slots.push(slot);
            }
            _ => self.next[list.last as usize] = item,
        }
        list.last = item;
    }

    #[cold]
    fn make_list(&mut self, slot: u32) {
        let none = List {
            first: NONE,
            last: NONE,
        };
        self.lists.resize(slot as usize + 1, none);
    }

    /// Returns the slot that got its first item as the `at`th. Its list may be empty by now.
    pub(super) fn slot(&self, at: usize) -> Option<u32> {
        self.slots.get(at).copied()
    }

    /// Takes the first item of `slot`.
    #[inline]
    pub(super) fn take(&mut self, slot: u32) -> Option<u32> {
        let list = self.lists.get_mut(slot as usize)?;
        if list.first == NONE {
            return None;
        }
        let item = list.first;
        list.first = self.next[item as usize];
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(batches: &mut SlotBatches, slot: u32) -> Vec<u32> {
        std::iter::from_fn(|| batches.take(slot)).collect()
    }

    #[test]
    fn returns_items_of_each_slot_in_order() {
        let mut batches = SlotBatches::default();
        for _ in 0..2 {
            batches.start_batch(6);
            for (item, slot) in [7, 2, 7, 7, 2, 0].into_iter().enumerate() {
                batches.add(slot, item as u32);
            }
            let slots: Vec<_> = (0..4).map_while(|at| batches.slot(at)).collect();
            assert_eq!(slots, [7, 2, 0]);
            assert_eq!(all(&mut batches, 7), [0, 2, 3]);
            assert_eq!(all(&mut batches, 2), [1, 4]);
            assert_eq!(all(&mut batches, 0), [5]);
        }
    }

    #[test]
    fn returns_each_item_once() {
        let mut batches = SlotBatches::default();
        batches.start_batch(3);
        batches.add(1, 0);
        assert_eq!(all(&mut batches, 1), [0]);
        batches.add(1, 1);
        batches.add(1, 2);
        assert_eq!(all(&mut batches, 1), [1, 2]);
        assert!(all(&mut batches, 9).is_empty());
    }
}
