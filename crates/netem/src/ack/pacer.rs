// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACK pacing: a bounded queue that ACKs leave at intervals of at least 1/rate.

use super::{PureAck, flow_table::FlowTable};
use longhaul_units::Time;
use std::collections::VecDeque;

/// Decision on an offered ACK. The caller holds a queued ACK until its token is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacingDecision {
    /// Forward the new ACK now.
    Send,
    /// Hold the new ACK until [`Pacer::release`] or [`Pacer::flush`] returns its token.
    Queued,
    /// Hold the new ACK. Discard the one with this token, whose place in the queue it takes.
    Replaced(u64),
    /// Hold the new ACK. Forward the one with this token, the oldest of the queue, now and unpaced: the
    /// queue is full, and the new ACK may replace none.
    Evicted(u64),
}

/// ACK pacing for one direction of a link. No information is lost, and no flow is reordered. When the
/// queue is full, a new ACK replaces the latest queued one of its flow if it supersedes that.
/// Otherwise the oldest ACK leaves early.
#[derive(Debug, Clone)]
pub struct Pacer {
    /// ACKs a second.
    rate: u64,
    /// Start of the slots: slot k opens at `origin` + k seconds / rate. A second then holds exactly `rate`
    /// slots, without rounding errors that add up.
    origin: Time,
    /// Number of the next slot.
    slot: u64,
    queue: VecDeque<QueuedAck>,
    /// Most ACKs in the queue.
    buffer: usize,
    /// Latest ACK of each flow, to recognise duplicates; `None` after another segment.
    flows: FlowTable<Option<PureAck>>,
}

/// An ACK in the queue.
#[derive(Debug, Clone, Copy)]
struct QueuedAck {
    ack: PureAck,
    token: u64,
    /// Whether the ACK must be forwarded, because it does not supersede the one before: it repeats a
    /// number, is reordered, or opens or closes the window.
    must_forward: bool,
}

/// Flows whose duplicates are recognised. Memory: 40 bytes each. The first ACK of a flow that is not in
/// the table must be forwarded.
const FLOWS_MAX: usize = 1024;

impl Pacer {
    /// A pacer of `packets_per_second` with a queue of `buffer_packets`; 0 becomes 1 for both. Memory: 32
    /// bytes a packet, beside the segments.
    #[must_use]
    pub fn new(packets_per_second: u64, buffer_packets: usize) -> Self {
        let buffer = buffer_packets.max(1);
        Self {
            rate: packets_per_second.max(1),
            origin: Time::ZERO,
            slot: 0,
            queue: VecDeque::with_capacity(buffer),
            buffer,
            flows: FlowTable::new(FLOWS_MAX),
        }
    }

    /// Decides on a pure ACK, which the caller identifies by `token`.
    pub fn offer(&mut self, now: Time, ack: &PureAck, token: u64) -> PacingDecision {
        let must_forward = self.record_latest(now, ack);
        self.enqueue(
            now,
            QueuedAck {
                ack: *ack,
                token,
                must_forward,
            },
        )
    }

    /// Time for the next call of [`release`](Self::release); `None` while the queue is empty.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.queue.front().map(|_| self.next_slot())
    }

    /// Releases the oldest ACK if a slot opens at or before `now`, to be forwarded. Call it until it returns
    /// `None`.
    pub fn release(&mut self, now: Time) -> Option<u64> {
        self.next_deadline().filter(|at| *at <= now)?;
        self.slot += 1;
        self.queue.pop_front().map(|queued| queued.token)
    }

    /// Releases the oldest queued ACK of `flow`, to be forwarded unpaced before another segment of the
    /// flow. Call it until it returns `None`. Costs a walk of the queue.
    pub fn flush(&mut self, flow: u64) -> Option<u64> {
        if let Some(last) = self
            .flows
            .find(flow)
            .and_then(|at| self.flows.get_mut(at, flow))
        {
            *last = None;
        }
        let same_flow = |queued: &QueuedAck| queued.ack.flow == flow;
        let at = self.queue.iter().position(same_flow)?;
        self.queue.remove(at).map(|queued| queued.token)
    }

    fn enqueue(&mut self, now: Time, new: QueuedAck) -> PacingDecision {
        if self.queue.is_empty() && self.next_slot() <= now {
            self.take_slot(now);
            return PacingDecision::Send;
        }
        if self.queue.len() < self.buffer {
            self.queue.push_back(new);
            return PacingDecision::Queued;
        }
        self.replace(new).unwrap_or_else(|| self.evict_oldest(new))
    }

    /// Records the flow's latest ACK, and returns whether it must be forwarded, because it does not
    /// supersede the one before.
    fn record_latest(&mut self, now: Time, ack: &PureAck) -> bool {
        let slot_index = self.flows.find(ack.flow);
        let Some(last) =
            slot_index.and_then(|slot_index| self.flows.touch(slot_index, ack.flow, now))
        else {
            self.flows.insert(ack.flow, now, Some(*ack), |_| true);
            return true;
        };
        last.replace(*ack).is_none_or(|last| !ack.supersedes(&last))
    }

    /// Replaces the latest queued ACK of the flow by `new`, if both permit that. Walks the queue from
    /// its end, so that a single flow finds its latest ACK at once.
    fn replace(&mut self, new: QueuedAck) -> Option<PacingDecision> {
        let same_flow = |queued: &&mut QueuedAck| queued.ack.flow == new.ack.flow;
        let latest = self.queue.iter_mut().rev().find(same_flow)?;
        (!new.must_forward && !latest.must_forward && new.ack.supersedes(&latest.ack))
            .then(|| PacingDecision::Replaced(std::mem::replace(latest, new).token))
    }

    /// Queues `new` in a full queue, and evicts the oldest ACK.
    fn evict_oldest(&mut self, new: QueuedAck) -> PacingDecision {
        let Some(oldest) = self.queue.pop_front() else {
            return PacingDecision::Send;
        };
        self.queue.push_back(new);
        PacingDecision::Evicted(oldest.token)
    }

    /// Time at which the next slot opens.
    fn next_slot(&self) -> Time {
        let nanos = u128::from(self.slot) * 1_000_000_000;
        self.origin + Time::from_nanos(nanos.div_ceil(u128::from(self.rate)) as u64)
    }

    /// Uses a slot at `now` while the queue is empty. If the slot opened earlier, the slots start again at
    /// `now`, because unused slots are not saved up.
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

    fn ms(count: u64) -> Time {
        Time::from_millis(count)
    }

    fn ack(flow: u64, ack: u32) -> PureAck {
        PureAck {
            flow,
            ack,
            window: 100,
        }
    }

    #[test]
    fn spaces_a_burst() {
        let mut pacer = Pacer::new(1000, 10);
        assert_eq!(pacer.offer(ms(5), &ack(1, 1), 1), PacingDecision::Send);
        assert_eq!(pacer.offer(ms(5), &ack(1, 2), 2), PacingDecision::Queued);
        assert_eq!(pacer.offer(ms(5), &ack(1, 3), 3), PacingDecision::Queued);
        assert_eq!(pacer.next_deadline(), Some(ms(6)));
        assert_eq!(pacer.release(Time::from_nanos(5_999_999)), None);
        assert_eq!(pacer.release(ms(6)), Some(2));
        assert_eq!(pacer.release(ms(6)), None);
        assert_eq!(pacer.release(ms(7)), Some(3));
        assert_eq!(pacer.next_deadline(), None);
    }

    #[test]
    fn saves_up_no_slots_while_idle() {
        let mut pacer = Pacer::new(1000, 10);
        assert_eq!(pacer.offer(ms(0), &ack(1, 1), 1), PacingDecision::Send);
        assert_eq!(pacer.offer(ms(500), &ack(1, 2), 2), PacingDecision::Send);
        assert_eq!(pacer.offer(ms(500), &ack(1, 3), 3), PacingDecision::Queued);
        assert_eq!(pacer.next_deadline(), Some(ms(501)));
    }

    #[test]
    fn replaces_a_superseded_ack_in_a_full_queue() {
        let mut pacer = Pacer::new(1, 2);
        pacer.offer(ms(0), &ack(1, 1), 1);
        pacer.offer(ms(0), &ack(1, 2), 2);
        pacer.offer(ms(0), &ack(1, 3), 3);
        assert_eq!(
            pacer.offer(ms(0), &ack(1, 4), 4),
            PacingDecision::Replaced(3)
        );
        assert_eq!(pacer.release(ms(1000)), Some(2));
        assert_eq!(pacer.release(ms(2000)), Some(4));
    }

    #[test]
    fn replaces_no_duplicates_or_other_flows_in_a_full_queue() {
        let mut pacer = Pacer::new(1, 2);
        pacer.offer(ms(0), &ack(1, 1), 1);
        pacer.offer(ms(0), &ack(1, 2), 2);
        pacer.offer(ms(0), &ack(1, 2), 3);
        assert_eq!(
            pacer.offer(ms(0), &ack(1, 3), 4),
            PacingDecision::Evicted(2)
        );
        assert_eq!(
            pacer.offer(ms(0), &ack(2, 9), 5),
            PacingDecision::Evicted(3)
        );
        assert_eq!(
            pacer.offer(ms(0), &ack(3, 10), 6),
            PacingDecision::Evicted(4)
        );
    }

    #[test]
    fn flushes_a_flow_in_order() {
        let mut pacer = Pacer::new(1, 9);
        for (flow, n) in [(1, 1), (1, 2), (2, 3), (1, 4)] {
            pacer.offer(ms(0), &ack(flow, n), u64::from(n));
        }
        assert_eq!([(); 3].map(|()| pacer.flush(1)), [Some(2), Some(4), None]);
        assert_eq!(pacer.flush(2), Some(3));
    }
}
