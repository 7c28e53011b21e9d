// SPDX-License-Identifier: MIT OR Apache-2.0
//! LRU list of slots: a linked list in one array, 8 bytes a slot.

/// End of the list.
const NONE: u32 = u32::MAX;

/// Slots in order of their last use.
#[derive(Debug)]
pub(super) struct LruList {
    links: Vec<Link>,
    newest: u32,
    oldest: u32,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
}

impl LruList {
    /// Creates an empty list.
    pub(super) fn new() -> Self {
        Self {
            links: Vec::new(),
            newest: NONE,
            oldest: NONE,
        }
    }

    /// Returns the slot used longest ago.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Inserts a slot that is not in the list, as the newest. New slots are numbered from 0 without a gap.
    pub(super) fn insert(&mut self, slot: u32) {
        let none = Link {
            newer: NONE,
            older: NONE,
        };
        if slot as usize == self.links.len() {
            self.links.push(none);
        }
        self.links[slot as usize] = none;
        self.link_as_newest(slot);
    }

    /// Makes a slot of the list the newest.
    #[inline]
    pub(super) fn touch(&mut self, slot: u32) {
        if slot != self.newest {
            self.remove(slot);
            self.link_as_newest(slot);
        }
    }

    /// Removes a slot from the list.
    pub(super) fn remove(&mut self, slot: u32) {
        let Link { newer, older } = self.links[slot as usize];
        match newer {
            NONE => self.newest = older,
            _ => self.links[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            _ => self.links[older as usize].newer = newer,
        }
    }

    fn link_as_newest(&mut self, slot: u32) {
        self.links[slot as usize] = Link {
            newer: NONE,
            older: self.newest,
        };
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.links[newest as usize].newer = slot,
        }
        self.newest = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn matches_a_sorted_list(steps in prop::collection::vec((0usize..8, prop::bool::ANY), 0..100)) {
            let mut list = LruList::new();
            let mut order: Vec<u32> = (0..8).collect();
            (0..8).for_each(|slot| list.insert(slot));
            for (slot, is_reinserted) in steps {
                let slot = slot as u32;
                order.retain(|&s| s != slot);
                order.push(slot);
                if is_reinserted {
                    list.remove(slot);
                    list.insert(slot);
                } else {
                    list.touch(slot);
                }
                prop_assert_eq!(list.oldest(), Some(order[0]));
            }
            for slot in order {
                prop_assert_eq!(list.oldest(), Some(slot));
                list.remove(slot);
            }
            prop_assert_eq!(list.oldest(), None);
        }
    }
}
