// SPDX-License-Identifier: MIT OR Apache-2.0
//! Location of segments and ACKs in the unwrapped sequence space of a direction.
//!
//! A number of the wire is unwrapped to the value nearest to the next new number, if it lies within any window of that.
//! Otherwise it is damage, or the capture has a gap (`data/stray.rs`).

use super::direction::Direction;
use crate::data::{SequenceRange, stray::StrayNumber};
use crate::memory_budget::MemoryBudget;
use crate::segment::{Segment, WINDOW_MAX, unwrap_ahead, unwrap_near};

impl Direction {
    /// Returns the range of `segment`, which is at `range` by its number alone; `None` if that is out of any window,
    /// and no second segment confirms a gap of the capture.
    #[cold]
    pub(super) fn locate_out_of_order(
        &mut self,
        segment: &Segment,
        range: SequenceRange,
        budget: &mut MemoryBudget,
    ) -> Option<SequenceRange> {
        if self.is_out_of_window(segment, range) {
            return self.locate_stray(segment, budget);
        }
        if self.send_state.is_first_in_middle() {
            self.send_state.next = self.send_state.next.max(range.start);
        }
        Some(range)
    }

    /// Returns whether the numbers are further away than any window reaches, or are sent long after they were
    /// acknowledged.
    fn is_out_of_window(&self, segment: &Segment, range: SequenceRange) -> bool {
        let is_far = range.start.abs_diff(self.send_state.next) > WINDOW_MAX;
        is_far || self.is_long_acked(segment, range)
    }

    /// Returns whether numbers that were seen lie more than a window below the ACK number. Their sender has received
    /// that ACK by now and does not repeat them. A reordered or duplicated packet has an older TSval.
    fn is_long_acked(&self, segment: &Segment, range: SequenceRange) -> bool {
        let window = self.ack_state.window_max();
        window.is_some_and(|window| range.end + window < self.ack_state.acked)
            && self.round_trips.is_newest(segment)
            && !self
                .send_state
                .sequence_gaps
                .overlaps(range.start, range.end)
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

    /// Resumes after a gap of the capture before `first`: what was in flight there is unknown. Returns the end of the
    /// gap.
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

    /// Returns the unwrapped ACK number; `None` if it is out of any window, and no second one confirms a gap of the
    /// capture. Numbers below it that were not seen become a sequence gap.
    #[inline]
    pub(super) fn locate_ack(
        &mut self,
        segment: &Segment,
        budget: &mut MemoryBudget,
    ) -> Option<u64> {
        if self.send_state.next == 0 {
            self.send_state.set_initial_number(segment.ack);
        }
        let ack = unwrap_near(self.send_state.next, segment.ack);
        if self.send_state.next.wrapping_sub(ack) <= WINDOW_MAX {
            Some(ack)
        } else {
            self.locate_ack_beyond(ack, segment, budget)
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

    /// Extends the data to `to`, which is more than the capture point has seen.
    #[cold]
    pub(super) fn extend_to(&mut self, to: u64, at_ns: u64, budget: &mut MemoryBudget) {
        if self.send_state.data.packets > 0 {
            self.open_gap(to, at_ns, None, budget);
        } else {
            self.send_state.next = to;
        }
    }
}
