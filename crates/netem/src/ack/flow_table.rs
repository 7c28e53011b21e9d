// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bounded table of state for each flow, which allocates all its memory at the start.

use longhaul_units::Time;

/// An eight-way set-associative table of flows. A flow's hash selects a set of eight slots. A new flow
/// takes the slot of the least recently used flow whose state may be evicted. Memory: the size of
/// `S` plus 16 bytes a flow.
#[derive(Debug, Clone)]
pub(super) struct FlowTable<S> {
    slots: Vec<Option<Slot<S>>>,
}

/// A flow with its state.
#[derive(Debug, Clone)]
struct Slot<S> {
    flow: u64,
    last_used: Time,
    state: S,
}

/// Slots of a set.
const WAYS: usize = 8;

/// Index of the slot of a flow, until another flow takes the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotIndex(u32);

impl<S> FlowTable<S> {
    /// An empty table for `flows`, rounded up to whole sets of eight.
    pub(super) fn new(flows: usize) -> Self {
        let slots = flows.max(1).next_multiple_of(WAYS);
        Self {
            slots: std::iter::repeat_with(|| None).take(slots).collect(),
        }
    }

    /// Number of slots.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The slot of `flow`; `None` if the table does not hold it.
    pub(super) fn find(&self, flow: u64) -> Option<SlotIndex> {
        let is_flow = |at: &usize| {
            self.slots[*at]
                .as_ref()
                .is_some_and(|slot| slot.flow == flow)
        };
        self.set(flow).find(is_flow).map(|at| SlotIndex(at as u32))
    }

    /// The state of `flow` in `slot_index`; `None` if another flow has taken the slot.
    pub(super) fn get(&self, slot_index: SlotIndex, flow: u64) -> Option<&S> {
        let slot = self.slots[slot_index.0 as usize].as_ref()?;
        (slot.flow == flow).then_some(&slot.state)
    }

    /// The mutable state of `flow` in `slot_index`; `None` if another flow has taken the slot.
    pub(super) fn get_mut(&mut self, slot_index: SlotIndex, flow: u64) -> Option<&mut S> {
        let slot = self.slots[slot_index.0 as usize].as_mut()?;
        (slot.flow == flow).then_some(&mut slot.state)
    }

    /// Does as [`get_mut`](Self::get_mut), and marks the slot as used at `now`.
    pub(super) fn touch(&mut self, slot_index: SlotIndex, flow: u64, now: Time) -> Option<&mut S> {
        let slot = self.slots[slot_index.0 as usize].as_mut()?;
        slot.last_used = now;
        (slot.flow == flow).then_some(&mut slot.state)
    }

    /// Inserts `flow`, which the table must not hold. Takes a free slot of its set, or evicts the least
    /// recently used flow whose state `may_evict` accepts. Returns false, and inserts nothing, if there
    /// is none.
    pub(super) fn insert(
        &mut self,
        flow: u64,
        now: Time,
        state: S,
        may_evict: impl Fn(&S) -> bool,
    ) -> bool {
        let is_available =
            |slot: &Option<Slot<S>>| slot.as_ref().is_none_or(|slot| may_evict(&slot.state));
        let oldest = self
            .set(flow)
            .filter(|at| is_available(&self.slots[*at]))
            .min_by_key(|at| self.slots[*at].as_ref().map(|slot| slot.last_used));
        let Some(at) = oldest else {
            return false;
        };
        self.slots[at] = Some(Slot {
            flow,
            last_used: now,
            state,
        });
        true
    }

    /// The slots of the set of `flow`. The high bits of a product with an odd constant (Fibonacci
    /// hashing) spread hashes that differ in few bits.
    fn set(&self, flow: u64) -> std::ops::Range<usize> {
        let sets = self.slots.len() / WAYS;
        let mixed = u128::from(flow.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let first = ((mixed * sets as u128) >> 64) as usize * WAYS;
        first..first + WAYS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(count: u64) -> Time {
        Time::from_nanos(count)
    }

    #[test]
    fn evicts_the_least_recently_used_flow() {
        let mut flows = FlowTable::new(1);
        for flow in 0..8 {
            assert!(flows.insert(flow, ns(flow), flow, |_| true));
        }
        let first = flows.find(0).unwrap();
        flows.touch(first, 0, ns(9));
        assert!(flows.insert(8, ns(10), 8, |_| true));
        assert_eq!(flows.find(1), None);
        assert_eq!(flows.get(first, 0), Some(&0));
    }

    #[test]
    fn evicts_only_states_that_may_be_evicted() {
        let mut flows = FlowTable::new(8);
        for flow in 0..8 {
            flows.insert(flow, ns(flow), flow, |_| true);
        }
        assert!(flows.insert(8, ns(8), 8, |state| *state == 5));
        assert_eq!(flows.find(5), None);
        assert!(!flows.insert(9, ns(9), 9, |_| false));
        assert_eq!(flows.find(9), None);
    }

    #[test]
    fn finds_all_flows_of_a_large_table() {
        let mut flows = FlowTable::new(1000);
        assert_eq!(flows.len(), 1000);
        for flow in 0..100u64 {
            flows.insert(flow << 40, ns(flow), flow, |_| true);
        }
        let found = (0..100u64).filter(|flow| {
            let slot_index = flows.find(flow << 40);
            slot_index.is_some_and(|slot_index| flows.get(slot_index, flow << 40) == Some(flow))
        });
        assert_eq!(found.count(), 100);
    }
}
