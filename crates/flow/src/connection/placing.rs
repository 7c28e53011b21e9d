// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where segments and ACKs of a direction lie in its sequence space, which is without wrap-around.
//!
//! A number of the wire is that which is nearest to the next one to be sent, if it lies in any window of that. Else it is
//! damage, or the capture has a gap (`data/stray.rs`).

use super::direction::Direction;
use crate::bounds::Bounds;
use crate::data::{Numbers, stray::Stray};
use crate::segment::{Segment, WINDOW_MAX, unwrap_ahead, unwrap_near};

impl Direction {
    /// Where `segment` lies, which is at `numbers` by its number alone; none if that is too far away, and nothing says
    /// that the flow went on there.
    #[cold]
    pub(super) fn place_elsewhere(
        &mut self,
        segment: &Segment,
        numbers: Numbers,
        bounds: &mut Bounds,
    ) -> Option<Numbers> {
        match self.strays(segment, numbers) {
            false => Some(numbers),
            true => self.place_stray(segment, bounds),
        }
    }

    /// Whether numbers are further away than any window reaches, or are sent long after they were acknowledged.
    fn strays(&self, segment: &Segment, numbers: Numbers) -> bool {
        let is_far = numbers.start.abs_diff(self.sending.next) > WINDOW_MAX;
        is_far || self.is_over(segment, numbers)
    }

    /// Whether numbers that were seen lie more than a window below what is acknowledged: their sender knows that by
    /// now and repeats none of them. A packet that was overtaken, or is in the capture twice, has an older TSval.
    fn is_over(&self, segment: &Segment, numbers: Numbers) -> bool {
        let window = self.acking.window_max();
        window.is_some_and(|window| numbers.end + window < self.acking.acked)
            && self.round_trips.is_newest(segment)
            && !self.sending.holes.touch(numbers.start, numbers.end)
    }

    fn place_stray(&mut self, segment: &Segment, bounds: &mut Bounds) -> Option<Numbers> {
        let next = self.sending.next;
        if Numbers::of(segment, next).len() == 0 {
            return None;
        }
        let first = (self.stray).follows(segment.seq, segment.payload, next)?;
        self.go_on_from(first, segment.at_ns, bounds);
        Some(Numbers::of(segment, unwrap_ahead(next, segment.seq)))
    }

    /// The capture has a gap before `first`: of what was in flight there, nothing is known any more. Returns where it
    /// ends.
    fn go_on_from(&mut self, first: Stray, at_ns: u64, bounds: &mut Bounds) -> u64 {
        let start = unwrap_ahead(self.sending.next, first.number);
        self.catch_up(start, at_ns, bounds);
        self.sending.next += u64::from(first.payload);
        self.sending.data.unique_bytes += u64::from(first.payload);
        self.acking.begin_anew();
        self.round_trips.begin_anew();
        start
    }

    /// The number that is acknowledged; none if it is too far away, and nothing says that the flow went on there.
    /// What it is beyond all data seen has been passed over.
    #[inline]
    pub(super) fn place_ack(&mut self, segment: &Segment, bounds: &mut Bounds) -> Option<u64> {
        if self.sending.next == 0 {
            self.sending.begin(segment.ack);
        }
        let ack = unwrap_near(self.sending.next, segment.ack);
        match self.sending.next.wrapping_sub(ack) <= WINDOW_MAX {
            true => Some(ack),
            false => self.place_ack_beyond(ack, segment, bounds),
        }
    }

    #[cold]
    fn place_ack_beyond(
        &mut self,
        ack: u64,
        segment: &Segment,
        bounds: &mut Bounds,
    ) -> Option<u64> {
        if self.awaits_syn_ack() {
            return None; // It answers an older connection.
        }
        let (next, at_ns) = (self.sending.next, segment.at_ns);
        let mut to = ack;
        if ack.abs_diff(next) > WINDOW_MAX {
            let first = self.stray.follows(segment.ack, 0, next)?;
            self.acking.acked = self.go_on_from(first, at_ns, bounds);
            to = unwrap_ahead(next, segment.ack);
        }
        if to > self.sending.next {
            self.catch_up(to, at_ns, bounds);
        }
        Some(to)
    }

    /// There is data up to `to`, which is more than the tap has seen.
    #[cold]
    pub(super) fn catch_up(&mut self, to: u64, at_ns: u64, bounds: &mut Bounds) {
        if self.sending.data.packets > 0 {
            self.pass_over(to, at_ns, None, bounds);
        } else {
            self.sending.next = to;
        }
    }
}
