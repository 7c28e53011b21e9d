// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACK thinning: one pure ACK in 2ⁿ is forwarded.
//!
//! The thinner holds the latest ACK of each flow, and a later one replaces it. An ACK is forwarded when
//! it is the 2ⁿth, when it covers enough data, or when its flow sends another segment. A held ACK is
//! also forwarded at its deadline, so that the last ACK of a burst is never lost.

use super::{
    PureAck,
    flow_table::{FlowTable, SlotIndex},
};
use longhaul_units::Time;
use std::collections::VecDeque;

/// Limits of ACK thinning: how many ACKs it holds back, how long, and for how many flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThinningLimits {
    /// Exponent n: one ACK in 2ⁿ is forwarded. From 0, which forwards all, to 16.
    pub shift: u32,
    /// Longest time for which an ACK is held. Should be well below the RTT and the sender's smallest
    /// retransmission time-out (200 ms on Linux).
    pub hold_max: Time,
    /// Bytes newly acknowledged since the last forwarded ACK; an ACK that covers as many is forwarded at once.
    pub covered_max: u32,
    /// Flows in the table. Memory: 88 bytes a flow, and 64 for its deadlines. A flow without a slot in
    /// the table is not thinned.
    pub flows_max: usize,
}

impl ThinningLimits {
    /// Largest useful [`shift`](Self::shift): 65,536 ACKs are more than any window holds.
    pub const SHIFT_MAX: u32 = 16;

    /// Limits for flows with segments of `mss` bytes, 1,024 flows at most. An ACK may cover two full
    /// segments (RFC 5681 §4.2), so 2ⁿ ACKs cover 2·2ⁿ·`mss` bytes.
    #[must_use]
    pub fn new(shift: u32, hold_max: Time, mss: u32) -> Self {
        let shift = shift.min(Self::SHIFT_MAX);
        Self {
            shift,
            hold_max,
            covered_max: mss.saturating_mul(2 << shift),
            flows_max: 1024,
        }
    }
}

/// Decision on an offered ACK. Tokens name ACKs that were held before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinningDecision {
    /// Forward the new ACK. Discard the held one, which it supersedes.
    Pass {
        /// Token of the ACK to discard; `None` if none was held.
        discard: Option<u64>,
    },
    /// Forward the held ACK with this token, then the new one.
    PassBoth(u64),
    /// Hold the new ACK until its token is returned. Discard the one held before, which it supersedes.
    Hold {
        /// Token of the ACK to discard; `None` if none was held.
        discard: Option<u64>,
    },
}

/// ACK thinning for one direction of a link.
///
/// Call [`next_deadline`](Self::next_deadline) again after each other call.
#[derive(Debug, Clone)]
pub struct AckThinner {
    limits: ThinningLimits,
    flows: FlowTable<FlowState>,
    /// Deadlines in order of time: one for each time that a flow began to hold an ACK. A deadline is stale once the
    /// flow has forwarded an ACK. At most twice the number of flows.
    deadlines: VecDeque<Deadline>,
    /// How often a flow has begun to hold an ACK, over all flows.
    hold_count: u64,
}

/// Thinning state of a flow.
#[derive(Debug, Clone)]
struct FlowState {
    /// Latest ACK that was offered.
    latest: PureAck,
    /// Whether another segment of the flow has passed since `latest`. The next ACK may repeat its number.
    interrupted: bool,
    /// Number of the last forwarded ACK.
    forwarded_ack: u32,
    /// Time of the last forwarded ACK.
    forwarded_at: Time,
    /// ACKs held since the last forwarded one.
    suppressed: u32,
    /// The ACK that is held, if any.
    held: Option<HeldAck>,
}

/// A held ACK.
#[derive(Debug, Clone, Copy)]
struct HeldAck {
    token: u64,
    deadline: Time,
    /// Number of this hold. Its entry in the queue of deadlines has the same number.
    hold_number: u64,
}

/// Deadline of a held ACK.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Time,
    hold_number: u64,
    flow: u64,
    slot_index: SlotIndex,
}

impl AckThinner {
    /// A thinner without flows. Allocates all its memory here.
    #[must_use]
    pub fn new(limits: ThinningLimits) -> Self {
        let flows = FlowTable::new(limits.flows_max);
        let deadlines = VecDeque::with_capacity(2 * flows.len());
        Self {
            limits,
            flows,
            deadlines,
            hold_count: 0,
        }
    }

    /// Decides on a pure ACK, which the caller identifies by `token`.
    pub fn offer(&mut self, now: Time, ack: &PureAck, token: u64) -> ThinningDecision {
        let Some(slot_index) = self.flows.find(ack.flow) else {
            // Without a free slot the flow is not inserted, and all its ACKs pass.
            self.flows
                .insert(ack.flow, now, FlowState::new(now, *ack), |flow| {
                    flow.held.is_none()
                });
            return ThinningDecision::Pass { discard: None };
        };
        let Some(flow) = self.flows.touch(slot_index, ack.flow, now) else {
            return ThinningDecision::Pass { discard: None };
        };
        if let Some(decision) = flow.forward_if_required(now, ack, &self.limits) {
            return decision;
        }
        let deadline = now + self.limits.hold_max;
        let held = HeldAck {
            token,
            deadline,
            hold_number: self.hold_count + 1,
        };
        let discard = flow.hold(held);
        if discard.is_none() {
            self.add_deadline(held, ack.flow, slot_index);
        }
        ThinningDecision::Hold { discard }
    }

    /// Releases the held ACK of `flow`, to be forwarded before another segment of the flow. Call it for
    /// each segment of the direction that is not passed to [`offer`](Self::offer). The next ACK of the flow is forwarded too,
    /// because it may repeat the number of that segment.
    pub fn flush(&mut self, now: Time, flow: u64) -> Option<u64> {
        let slot_index = self.flows.find(flow)?;
        let flow = self.flows.touch(slot_index, flow, now)?;
        flow.interrupted = true;
        flow.record_forwarded(now)
    }

    /// Time for the next call of [`release`](Self::release); `None` while no ACK is held.
    pub fn next_deadline(&mut self) -> Option<Time> {
        while let Some(first) = self.deadlines.front() {
            if is_live(&self.flows, first) {
                return Some(first.at);
            }
            self.deadlines.pop_front();
        }
        None
    }

    /// Releases an ACK whose deadline is at or before `now`, to be forwarded. Call it until it returns
    /// `None`.
    pub fn release(&mut self, now: Time) -> Option<u64> {
        self.next_deadline().filter(|at| *at <= now)?;
        let Deadline {
            flow, slot_index, ..
        } = self.deadlines.pop_front()?;
        self.flows
            .touch(slot_index, flow, now)?
            .record_forwarded(now)
    }

    /// Adds the deadline of an ACK that `flow` begins to hold.
    fn add_deadline(&mut self, held: HeldAck, flow: u64, slot_index: SlotIndex) {
        // Each flow has at most one live entry, so at least half of a full queue is stale.
        if self.deadlines.len() == 2 * self.flows.len() {
            self.deadlines.retain(|entry| is_live(&self.flows, entry));
        }
        self.hold_count = held.hold_number;
        self.deadlines.push_back(Deadline {
            at: held.deadline,
            hold_number: held.hold_number,
            flow,
            slot_index,
        });
    }
}

/// Whether the ACK of this deadline is still held.
fn is_live(flows: &FlowTable<FlowState>, entry: &Deadline) -> bool {
    let held = flows
        .get(entry.slot_index, entry.flow)
        .and_then(|flow| flow.held);
    held.is_some_and(|held| held.hold_number == entry.hold_number)
}

impl FlowState {
    /// A flow whose first ACK is forwarded.
    fn new(now: Time, ack: PureAck) -> Self {
        Self {
            latest: ack,
            interrupted: false,
            forwarded_ack: ack.ack,
            forwarded_at: now,
            suppressed: 0,
            held: None,
        }
    }

    /// Forwards `ack` if it must not be held, and returns that decision. Returns `None` if it may be held.
    fn forward_if_required(
        &mut self,
        now: Time,
        ack: &PureAck,
        limits: &ThinningLimits,
    ) -> Option<ThinningDecision> {
        let supersedes = ack.supersedes(&self.latest) && !self.interrupted;
        let due = self.is_due(now, ack, limits);
        self.latest = *ack;
        self.interrupted = false;
        match supersedes {
            true if !due => None,
            true => Some(ThinningDecision::Pass {
                discard: self.record_forwarded(now),
            }),
            false => Some(match self.record_forwarded(now) {
                Some(held) => ThinningDecision::PassBoth(held),
                None => ThinningDecision::Pass { discard: None },
            }),
        }
    }

    /// Whether `ack` must be forwarded although it supersedes the latest one.
    fn is_due(&self, now: Time, ack: &PureAck, limits: &ThinningLimits) -> bool {
        self.suppressed + 1 >= 1 << limits.shift
            || ack.covered_since(self.forwarded_ack) >= limits.covered_max
            || now.since(self.forwarded_at) >= limits.hold_max
            || self.held.is_some_and(|held| held.deadline <= now)
    }

    /// Records that the latest ACK is forwarded, and returns the token of the held one.
    fn record_forwarded(&mut self, now: Time) -> Option<u64> {
        self.forwarded_ack = self.latest.ack;
        self.forwarded_at = now;
        self.suppressed = 0;
        self.held.take().map(|held| held.token)
    }

    /// Holds `new`, and returns the token of the ACK that it replaces. The deadline of a replaced ACK
    /// applies to `new`, too.
    fn hold(&mut self, new: HeldAck) -> Option<u64> {
        self.suppressed += 1;
        let before = self.held;
        self.held = Some(before.map_or(new, |held| HeldAck {
            token: new.token,
            ..held
        }));
        before.map(|held| held.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Time {
        Time::from_millis(count)
    }

    fn thinner(shift: u32) -> AckThinner {
        AckThinner::new(ThinningLimits::new(shift, ms(10), 1000))
    }

    fn ack(flow: u64, ack: u32) -> PureAck {
        PureAck {
            flow,
            ack,
            window: 100,
        }
    }

    const PASS: ThinningDecision = ThinningDecision::Pass { discard: None };
    const HOLD: ThinningDecision = ThinningDecision::Hold { discard: None };

    #[test]
    fn forwards_one_in_four() {
        let mut thinner = thinner(2);
        let mut offer = |n: u32| thinner.offer(ms(0), &ack(1, n * 1000), u64::from(n));
        assert_eq!(offer(0), PASS);
        for n in [1, 5, 9] {
            assert_eq!(offer(n), HOLD);
            let discard = Some(u64::from(n));
            assert_eq!(offer(n + 1), ThinningDecision::Hold { discard });
            assert_eq!(
                offer(n + 2),
                ThinningDecision::Hold {
                    discard: Some(u64::from(n + 1))
                }
            );
            assert_eq!(
                offer(n + 3),
                ThinningDecision::Pass {
                    discard: Some(u64::from(n + 2))
                }
            );
        }
    }

    #[test]
    fn forwards_all_at_shift_zero() {
        let mut thinner = thinner(0);
        for n in 0..100 {
            assert_eq!(thinner.offer(ms(0), &ack(1, n * 1000), 0), PASS);
        }
    }

    #[test]
    fn forwards_a_duplicate_behind_the_held_ack() {
        let mut thinner = thinner(4);
        assert_eq!(thinner.offer(ms(0), &ack(1, 1000), 1), PASS);
        assert_eq!(thinner.offer(ms(0), &ack(1, 2000), 2), HOLD);
        assert_eq!(
            thinner.offer(ms(0), &ack(1, 2000), 3),
            ThinningDecision::PassBoth(2)
        );
        assert_eq!(thinner.offer(ms(0), &ack(1, 2000), 4), PASS);
    }

    #[test]
    fn forwards_window_changes_at_once() {
        let mut thinner = thinner(4);
        thinner.offer(ms(0), &ack(1, 1000), 1);
        let closed = PureAck {
            window: 0,
            ..ack(1, 2000)
        };
        assert_eq!(thinner.offer(ms(0), &closed, 2), PASS);
        assert_eq!(thinner.offer(ms(0), &ack(1, 3000), 3), PASS);
    }

    #[test]
    fn forwards_at_once_when_enough_data_is_covered() {
        let mut thinner = thinner(2);
        thinner.offer(ms(0), &ack(1, 0), 1);
        assert_eq!(thinner.offer(ms(0), &ack(1, 7999), 2), HOLD);
        assert_eq!(
            thinner.offer(ms(0), &ack(1, 8000), 3),
            ThinningDecision::Pass { discard: Some(2) }
        );
    }

    #[test]
    fn releases_at_the_deadline_of_the_first_held_ack() {
        let mut thinner = thinner(8);
        thinner.offer(ms(0), &ack(1, 1000), 1);
        thinner.offer(ms(3), &ack(1, 2000), 2);
        thinner.offer(ms(8), &ack(1, 3000), 3);
        assert_eq!(thinner.next_deadline(), Some(ms(13)));
        assert_eq!(thinner.release(Time::from_nanos(12_999_999)), None);
        assert_eq!(thinner.release(ms(13)), Some(3));
        assert_eq!(thinner.release(ms(13)), None);
        assert_eq!(thinner.next_deadline(), None);
    }

    #[test]
    fn forwards_sparse_acks() {
        let mut thinner = thinner(8);
        for n in 0..100 {
            assert_eq!(
                thinner.offer(ms(u64::from(n) * 10), &ack(1, n * 1000), 0),
                PASS
            );
        }
    }

    #[test]
    fn flushes_the_held_ack_before_other_segments() {
        let mut thinner = thinner(8);
        thinner.offer(ms(0), &ack(1, 1000), 1);
        thinner.offer(ms(0), &ack(1, 2000), 2);
        assert_eq!(thinner.flush(ms(1), 2), None);
        assert_eq!(thinner.flush(ms(1), 1), Some(2));
        assert_eq!(thinner.flush(ms(1), 1), None);
        assert_eq!(thinner.next_deadline(), None);
        assert_eq!(thinner.offer(ms(1), &ack(1, 3000), 3), PASS);
        assert_eq!(thinner.offer(ms(1), &ack(1, 4000), 4), HOLD);
    }

    #[test]
    fn bounds_the_queue_of_deadlines() {
        let mut thinner = thinner(1);
        for n in 0..100_000 {
            thinner.offer(ms(0), &ack(1, n * 1000), 0);
            assert!(thinner.deadlines.len() <= 2 * thinner.flows.len());
        }
    }

    #[test]
    fn evicts_no_flow_with_a_held_ack() {
        let mut thinner = AckThinner::new(ThinningLimits {
            flows_max: 8,
            ..ThinningLimits::new(4, ms(10), 1000)
        });
        for flow in 0..20 {
            thinner.offer(ms(0), &ack(flow, 1000), flow);
            thinner.offer(ms(0), &ack(flow, 2000), flow);
        }
        let released: Vec<u64> = std::iter::from_fn(|| thinner.release(ms(10))).collect();
        assert_eq!(released, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
