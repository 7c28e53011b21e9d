// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACK pacing: ACKs leave no closer than 1/rate apart, through a bounded queue.

use super::{PureAck, flows::Flows};
use longhaul_units::Time;
use std::collections::VecDeque;

/// What to do with an ACK that was offered. The ACK keeps its token until it comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pacing {
    /// Forward it now.
    Send,
    /// Keep it until [`Pacer::release`] returns its token.
    Queued,
    /// Keep it; discard the one named here, whose place in the queue it takes.
    Replaced(u64),
    /// The queue is full and nothing in it is superseded: forward the one named here, its oldest,
    /// now and unpaced, and keep the new one.
    Expelled(u64),
}

/// Paces the ACKs of one direction of a link. Nothing is ever lost or reordered: when the queue is
/// full, an ACK replaces the latest queued one of its flow if it supersedes that, else the oldest
/// leaves early.
#[derive(Debug, Clone)]
pub struct Pacer {
    rate: u64,
    /// The slot grid: slot k opens at `origin` + k seconds / rate, so that a second holds exactly
    /// `rate` slots however the division comes out.
    origin: Time,
    slot: u64,
    queue: VecDeque<Queued>,
    buffer: usize,
    /// The last ACK of each flow, by which a duplicate is known; `None` after another segment.
    flows: Flows<Option<PureAck>>,
}

#[derive(Debug, Clone, Copy)]
struct Queued {
    ack: PureAck,
    token: u64,
    /// Repeats or reorders something, or opens or closes the window: may not be replaced.
    firm: bool,
}

/// Flows whose duplicates are told apart; 40 bytes each. An ACK of a flow that is forgotten counts
/// as firm.
const FLOWS_MAX: usize = 1024;

impl Pacer {
    /// `packets_per_second` of at least 1, through a queue of `buffer_packets` (32 bytes each,
    /// beside the segments; 0 becomes 1).
    #[must_use]
    pub fn new(packets_per_second: u64, buffer_packets: usize) -> Self {
        let buffer = buffer_packets.max(1);
        Self {
            rate: packets_per_second.max(1),
            origin: Time::ZERO,
            slot: 0,
            queue: VecDeque::with_capacity(buffer),
            buffer,
            flows: Flows::new(FLOWS_MAX),
        }
    }

    /// Decides on a pure ACK that its owner calls `token`.
    pub fn offer(&mut self, now: Time, ack: &PureAck, token: u64) -> Pacing {
        let firm = self.note(now, ack);
        self.enqueue(
            now,
            Queued {
                ack: *ack,
                token,
                firm,
            },
        )
    }

    /// When [`release`](Self::release) has something to give; `None` while nothing is queued.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.queue.front().map(|_| self.next_slot())
    }

    /// An ACK whose turn has come, to be forwarded. Call it until it returns `None`.
    pub fn release(&mut self, now: Time) -> Option<u64> {
        self.next_deadline().filter(|at| *at <= now)?;
        self.slot += 1;
        self.queue.pop_front().map(|queued| queued.token)
    }

    /// The oldest queued ACK of `flow`, to be forwarded unpaced before another segment of the flow.
    /// Call it until it returns `None`. Walks the queue.
    pub fn flush(&mut self, flow: u64) -> Option<u64> {
        if let Some(last) = self
            .flows
            .find(flow)
            .and_then(|at| self.flows.get_mut(at, flow))
        {
            *last = None;
        }
        let same = |queued: &Queued| queued.ack.flow == flow;
        let at = self.queue.iter().position(same)?;
        self.queue.remove(at).map(|queued| queued.token)
    }

    fn enqueue(&mut self, now: Time, new: Queued) -> Pacing {
        if self.queue.is_empty() && self.next_slot() <= now {
            self.take_slot(now);
            return Pacing::Send;
        }
        if self.queue.len() < self.buffer {
            self.queue.push_back(new);
            return Pacing::Queued;
        }
        self.replace(new).unwrap_or_else(|| self.expel(new))
    }

    /// Notes the flow's latest ACK and returns whether it says something that the one before it
    /// leaves open.
    fn note(&mut self, now: Time, ack: &PureAck) -> bool {
        let place = self.flows.find(ack.flow);
        let Some(last) = place.and_then(|place| self.flows.touch(place, ack.flow, now)) else {
            self.flows.insert(ack.flow, now, Some(*ack), |_| true);
            return true;
        };
        last.replace(*ack).is_none_or(|last| !ack.supersedes(&last))
    }

    /// Puts `new` in the place of the latest queued ACK of its flow, if that may go. Walks the
    /// queue from its end, so one flow alone finds it at once.
    fn replace(&mut self, new: Queued) -> Option<Pacing> {
        let same = |queued: &&mut Queued| queued.ack.flow == new.ack.flow;
        let latest = self.queue.iter_mut().rev().find(same)?;
        (!new.firm && !latest.firm && new.ack.supersedes(&latest.ack))
            .then(|| Pacing::Replaced(std::mem::replace(latest, new).token))
    }

    fn expel(&mut self, new: Queued) -> Pacing {
        let Some(oldest) = self.queue.pop_front() else {
            return Pacing::Send;
        };
        self.queue.push_back(new);
        Pacing::Expelled(oldest.token)
    }

    /// When the next slot opens.
    fn next_slot(&self) -> Time {
        let nanos = u128::from(self.slot) * 1_000_000_000;
        self.origin + Time::from_nanos(nanos.div_ceil(u128::from(self.rate)) as u64)
    }

    /// Uses a slot with an empty queue: if it opened before `now`, the grid starts again here,
    /// because unused slots are not saved up.
    fn take_slot(&mut self, now: Time) {
        if self.next_slot() < now || self.slot == 0 {
            self.origin = now;
            self.slot = 0;
        }
        self.slot += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    fn ack(flow: u64, ack: u32) -> PureAck {
        PureAck {
            flow,
            ack,
            window: 100,
        }
    }

    #[test]
    fn a_burst_is_spread() {
        let mut pacer = Pacer::new(1000, 10);
        assert_eq!(pacer.offer(MS(5), &ack(1, 1), 1), Pacing::Send);
        assert_eq!(pacer.offer(MS(5), &ack(1, 2), 2), Pacing::Queued);
        assert_eq!(pacer.offer(MS(5), &ack(1, 3), 3), Pacing::Queued);
        assert_eq!(pacer.next_deadline(), Some(MS(6)));
        assert_eq!(pacer.release(Time::from_nanos(5_999_999)), None);
        assert_eq!(pacer.release(MS(6)), Some(2));
        assert_eq!(pacer.release(MS(6)), None);
        assert_eq!(pacer.release(MS(7)), Some(3));
        assert_eq!(pacer.next_deadline(), None);
    }

    #[test]
    fn silence_saves_nothing_up() {
        let mut pacer = Pacer::new(1000, 10);
        assert_eq!(pacer.offer(MS(0), &ack(1, 1), 1), Pacing::Send);
        assert_eq!(pacer.offer(MS(500), &ack(1, 2), 2), Pacing::Send);
        assert_eq!(pacer.offer(MS(500), &ack(1, 3), 3), Pacing::Queued);
        assert_eq!(pacer.next_deadline(), Some(MS(501)));
    }

    #[test]
    fn a_full_queue_replaces_what_is_superseded() {
        let mut pacer = Pacer::new(1, 2);
        pacer.offer(MS(0), &ack(1, 1), 1);
        pacer.offer(MS(0), &ack(1, 2), 2);
        pacer.offer(MS(0), &ack(1, 3), 3);
        assert_eq!(pacer.offer(MS(0), &ack(1, 4), 4), Pacing::Replaced(3));
        assert_eq!(pacer.release(MS(1000)), Some(2));
        assert_eq!(pacer.release(MS(2000)), Some(4));
    }

    #[test]
    fn a_full_queue_never_eats_duplicates_or_other_flows() {
        let mut pacer = Pacer::new(1, 2);
        pacer.offer(MS(0), &ack(1, 1), 1);
        pacer.offer(MS(0), &ack(1, 2), 2);
        pacer.offer(MS(0), &ack(1, 2), 3);
        assert_eq!(pacer.offer(MS(0), &ack(1, 3), 4), Pacing::Expelled(2));
        assert_eq!(pacer.offer(MS(0), &ack(2, 9), 5), Pacing::Expelled(3));
        assert_eq!(pacer.offer(MS(0), &ack(3, 10), 6), Pacing::Expelled(4));
    }

    #[test]
    fn other_segments_push_the_flow_out_in_order() {
        let mut pacer = Pacer::new(1, 9);
        for (flow, n) in [(1, 1), (1, 2), (2, 3), (1, 4)] {
            pacer.offer(MS(0), &ack(flow, n), u64::from(n));
        }
        assert_eq!([(); 3].map(|()| pacer.flush(1)), [Some(2), Some(4), None]);
        assert_eq!(pacer.flush(2), Some(3));
    }
}
