// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bounded table of state per flow, with all its memory taken at the start.

use longhaul_units::Time;

/// An eight-way set-associative table: a flow's hash names a set of eight slots, and a newcomer
/// takes the slot whose flow was seen longest ago, if its state may go. Costs the size of `S` plus
/// 16 bytes a flow.
#[derive(Debug, Clone)]
pub(super) struct Flows<S> {
    slots: Vec<Option<Slot<S>>>,
}

#[derive(Debug, Clone)]
struct Slot<S> {
    flow: u64,
    seen: Time,
    state: S,
}

const WAYS: usize = 8;

/// The place of a flow, until another flow takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u32);

impl<S> Flows<S> {
    /// Room for `flows`, rounded up to whole sets of eight.
    pub(super) fn new(flows: usize) -> Self {
        let slots = flows.max(1).next_multiple_of(WAYS);
        Self {
            slots: std::iter::repeat_with(|| None).take(slots).collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Where `flow` is, if it is known.
    pub(super) fn find(&self, flow: u64) -> Option<Place> {
        let known = |at: &usize| {
            self.slots[*at]
                .as_ref()
                .is_some_and(|slot| slot.flow == flow)
        };
        self.set(flow).find(known).map(|at| Place(at as u32))
    }

    /// The state at `place` if `flow` still has it.
    pub(super) fn get(&self, place: Place, flow: u64) -> Option<&S> {
        let slot = self.slots[place.0 as usize].as_ref()?;
        (slot.flow == flow).then_some(&slot.state)
    }

    /// The state at `place`, to be changed, if `flow` still has it.
    pub(super) fn get_mut(&mut self, place: Place, flow: u64) -> Option<&mut S> {
        let slot = self.slots[place.0 as usize].as_mut()?;
        (slot.flow == flow).then_some(&mut slot.state)
    }

    /// Like [`get_mut`](Self::get_mut), and the flow counts as seen at `now`.
    pub(super) fn touch(&mut self, place: Place, flow: u64, now: Time) -> Option<&mut S> {
        let slot = self.slots[place.0 as usize].as_mut()?;
        slot.seen = now;
        (slot.flow == flow).then_some(&mut slot.state)
    }

    /// Gives `flow`, which must be unknown, the place of the flow that was seen longest ago among
    /// those of its set that `may_go`. Returns false, and remembers nothing, if none may.
    pub(super) fn insert(
        &mut self,
        flow: u64,
        now: Time,
        state: S,
        may_go: impl Fn(&S) -> bool,
    ) -> bool {
        let free = |slot: &Option<Slot<S>>| slot.as_ref().is_none_or(|slot| may_go(&slot.state));
        let oldest = self
            .set(flow)
            .filter(|at| free(&self.slots[*at]))
            .min_by_key(|at| self.slots[*at].as_ref().map(|slot| slot.seen));
        let Some(at) = oldest else {
            return false;
        };
        self.slots[at] = Some(Slot {
            flow,
            seen: now,
            state,
        });
        true
    }

    /// The slots that `flow` may have. The high bits of a product with an odd constant (Fibonacci
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

    const NS: fn(u64) -> Time = Time::from_nanos;

    #[test]
    fn the_flow_seen_longest_ago_makes_room() {
        let mut flows = Flows::new(1);
        for flow in 0..8 {
            assert!(flows.insert(flow, NS(flow), flow, |_| true));
        }
        let first = flows.find(0).unwrap();
        flows.touch(first, 0, NS(9));
        assert!(flows.insert(8, NS(10), 8, |_| true));
        assert_eq!(flows.find(1), None);
        assert_eq!(flows.get(first, 0), Some(&0));
    }

    #[test]
    fn a_state_that_may_not_go_stays() {
        let mut flows = Flows::new(8);
        for flow in 0..8 {
            flows.insert(flow, NS(flow), flow, |_| true);
        }
        assert!(flows.insert(8, NS(8), 8, |state| *state == 5));
        assert_eq!(flows.find(5), None);
        assert!(!flows.insert(9, NS(9), 9, |_| false));
        assert_eq!(flows.find(9), None);
    }

    #[test]
    fn a_large_table_finds_what_it_holds() {
        let mut flows = Flows::new(1000);
        assert_eq!(flows.len(), 1000);
        for flow in 0..100u64 {
            flows.insert(flow << 40, NS(flow), flow, |_| true);
        }
        let found = (0..100u64).filter(|flow| {
            let place = flows.find(flow << 40);
            place.is_some_and(|place| flows.get(place, flow << 40) == Some(flow))
        });
        assert_eq!(found.count(), 100);
    }
}
