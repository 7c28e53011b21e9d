// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where segments and ACKs of a direction lie in its sequence space, which is without wrap-around.
//!
//! A number of the wire is that which is nearest to the next one to be sent, if it lies in any window of that. Else it is
//! damage, or the capture has a gap (`data/stray.rs`).

use super::direction::Direction;
use crate::data::{SequenceRange, stray::StrayNumber};
use crate::memory_budget::MemoryBudget;
use crate::segment::{Segment, WINDOW_MAX, unwrap_ahead, unwrap_near};

impl Direction {
    /// Where `segment` lies, which is at `numbers` by its number alone; none if that is too far away, and nothing says
    /// that the flow went on there.
    #[cold]
    pub(super) fn locate_out_of_order(
        &mut self,
        segment: &Segment,
        numbers: SequenceRange,
        budget: &mut MemoryBudget,
    ) -> Option<SequenceRange> {
        match self.is_out_of_window(segment, numbers) {
            false => Some(numbers),
            true => self.locate_stray(segment, budget),
        }
    }

    /// Whether numbers are further away than any window reaches, or are sent long after they were acknowledged.
    fn is_out_of_window(&self, segment: &Segment, numbers: SequenceRange) -> bool {
        let is_far = numbers.start.abs_diff(self.send_state.next) > WINDOW_MAX;
        is_far || self.is_long_acked(segment, numbers)
    }

    /// Whether numbers that were seen lie more than a window below what is acknowledged: their sender knows that by
    /// now and repeats none of them. A packet that was overtaken, or is in the capture twice, has an older TSval.
    fn is_long_acked(&self, segment: &Segment, numbers: SequenceRange) -> bool {
        let window = self.ack_state.window_max();
        window.is_some_and(|window| numbers.end + window < self.ack_state.acked)
            && self.round_trips.is_newest(segment)
            && !self
                .send_state
                .sequence_gaps
                .overlaps(numbers.start, numbers.end)
    }

    fn locate_stray(
        &mut self,
        segment: &Segment,
        budget: &mut MemoryBudget,
    ) -> Option<SequenceRange> {
        let next = self.send_state.next;
        if SequenceRange::of(segment, next).len() == 0 {
            return None;
        }
        let first = (self.stray_number).confirm(segment.seq, segment.payload, next)?;
        self.resume_after_gap(first, segment.at_ns, budget);
        Some(SequenceRange::of(segment, unwrap_ahead(next, segment.seq)))
    }

    /// The capture has a gap before `first`: of what was in flight there, nothing is known any more. Returns where it
    /// ends.
    fn resume_after_gap(
        &mut self,
        first: StrayNumber,
        at_ns: u64,
        budget: &mut MemoryBudget,
    ) -> u64 {
        let start = unwrap_ahead(self.send_state.next, first.number);
        self.extend_to(start, at_ns, budget);
        self.send_state.next += u64::from(first.payload);
        self.send_state.data.unique_bytes += u64::from(first.payload);
        self.ack_state.reset();
        self.round_trips.reset();
        start
    }

    /// The number that is acknowledged; none if it is too far away, and nothing says that the flow went on there.
    /// What it is beyond all data seen has been passed over.
    #[inline]
    pub(super) fn locate_ack(
        &mut self,
        segment: &Segment,
        budget: &mut MemoryBudget,
    ) -> Option<u64> {
        if self.send_state.next == 0 {
            self.send_state.init(segment.ack);
        }
        let ack = unwrap_near(self.send_state.next, segment.ack);
        match self.send_state.next.wrapping_sub(ack) <= WINDOW_MAX {
            true => Some(ack),
            false => self.locate_ack_beyond(ack, segment, budget),
        }
    }

    #[cold]
    fn locate_ack_beyond(
        &mut self,
        ack: u64,
        segment: &Segment,
        budget: &mut MemoryBudget,
    ) -> Option<u64> {
        if self.awaits_syn_ack() {
            return None; // It answers an older connection.
        }
        let (next, at_ns) = (self.send_state.next, segment.at_ns);
        let mut to = ack;
        if ack.abs_diff(next) > WINDOW_MAX {
            let first = self.stray_number.confirm(segment.ack, 0, next)?;
            self.ack_state.acked = self.resume_after_gap(first, at_ns, budget);
            to = unwrap_ahead(next, segment.ack);
        }
        if to > self.send_state.next {
            self.extend_to(to, at_ns, budget);
        }
        Some(to)
    }

    /// There is data up to `to`, which is more than the tap has seen.
    #[cold]
    pub(super) fn extend_to(&mut self, to: u64, at_ns: u64, budget: &mut MemoryBudget) {
        if self.send_state.data.packets > 0 {
            self.open_gap(to, at_ns, None, budget);
        } else {
            self.send_state.next = to;
        }
    }
}
