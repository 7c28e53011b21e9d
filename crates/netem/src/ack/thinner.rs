// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACK thinning: one pure ACK in 2ⁿ goes on.
//!
//! Held back is always the latest ACK of a flow; each later one replaces it. It goes when the 2ⁿth
//! comes, when enough data is covered, when something else of the flow passes, or when its time is
//! up, so that the last ACK of a burst is never lost.

use super::{
    PureAck,
    flows::{Flows, Place},
};
use longhaul_units::Time;
use std::collections::VecDeque;

/// How far thinning may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// n: one ACK in 2ⁿ is forwarded. 0 forwards all, 16 is the most.
    pub shift: u32,
    /// The longest that an ACK is held. Keep it well below the RTT and the sender's smallest
    /// retransmission time-out (200 ms on Linux).
    pub hold_max: Time,
    /// An ACK that covers at least so many bytes since the last one forwarded goes at once.
    pub covered_max: u32,
    /// Flows known at a time, 88 bytes each and 64 for their deadlines. A flow that finds no room
    /// is not thinned.
    pub flows_max: usize,
}

impl Limits {
    /// The largest shift that makes sense: 65,536 ACKs are more than any window holds.
    pub const SHIFT_MAX: u32 = 16;

    /// Limits for a flow of segments of `mss` bytes: an ACK may cover two full segments (RFC 5681
    /// §4.2), so 2ⁿ of them cover 2·2ⁿ·`mss`. 1,024 flows.
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

/// What to do with an ACK that was offered. Tokens name ACKs that were held before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinned {
    /// Forward it; discard the held one, which it supersedes.
    Pass {
        /// To discard.
        discard: Option<u64>,
    },
    /// Forward the held one named here, then this one.
    PassBoth(u64),
    /// Keep it until its token comes back; discard the one held before, which it supersedes.
    Hold {
        /// To discard.
        discard: Option<u64>,
    },
}

/// Thins the ACKs of one direction of a link.
///
/// After each call ask [`next_deadline`](Self::next_deadline) again.
#[derive(Debug, Clone)]
pub struct Thinner {
    limits: Limits,
    flows: Flows<Flow>,
    /// One entry for each time that a flow began to hold, in order of time; stale when the flow
    /// forwarded something since. Kept below twice the number of flows.
    deadlines: VecDeque<Deadline>,
    /// How often any flow began to hold.
    holds: u64,
}

#[derive(Debug, Clone)]
struct Flow {
    last: PureAck,
    /// Something else of the flow went by since `last`, so that the next ACK may repeat that.
    interrupted: bool,
    /// The number and time of the last ACK that was forwarded, and how many came since.
    passed_ack: u32,
    passed_at: Time,
    suppressed: u32,
    held: Option<Held>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    token: u64,
    deadline: Time,
    /// Names the entry in the queue of deadlines.
    hold: u64,
}

#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Time,
    hold: u64,
    flow: u64,
    place: Place,
}

impl Thinner {
    /// A thinner that knows no flow yet. All memory is taken here.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let flows = Flows::new(limits.flows_max);
        let deadlines = VecDeque::with_capacity(2 * flows.len());
        Self {
            limits,
            flows,
            deadlines,
            holds: 0,
        }
    }

    /// Decides on a pure ACK that its owner calls `token`.
    pub fn offer(&mut self, now: Time, ack: &PureAck, token: u64) -> Thinned {
        let Some(place) = self.flows.find(ack.flow) else {
            // Without a free slot the flow stays unknown and all its ACKs pass.
            self.flows
                .insert(ack.flow, now, Flow::new(now, *ack), |flow| {
                    flow.held.is_none()
                });
            return Thinned::Pass { discard: None };
        };
        let Some(flow) = self.flows.touch(place, ack.flow, now) else {
            return Thinned::Pass { discard: None };
        };
        if let Some(passed) = flow.forward(now, ack, &self.limits) {
            return passed;
        }
        let deadline = now + self.limits.hold_max;
        let held = Held {
            token,
            deadline,
            hold: self.holds + 1,
        };
        let discard = flow.hold(held);
        if discard.is_none() {
            self.begin(held, ack.flow, place);
        }
        Thinned::Hold { discard }
    }

    /// The ACK that is held for `flow`, to be forwarded before another segment of the flow. Call
    /// it for each segment of the direction that is not offered. The next ACK of the flow is
    /// forwarded too: it may repeat the number of that other segment.
    pub fn flush(&mut self, now: Time, flow: u64) -> Option<u64> {
        let place = self.flows.find(flow)?;
        let flow = self.flows.touch(place, flow, now)?;
        flow.interrupted = true;
        flow.pass(now)
    }

    /// When [`release`](Self::release) has something to give; `None` while nothing is held.
    pub fn next_deadline(&mut self) -> Option<Time> {
        while let Some(first) = self.deadlines.front() {
            if is_live(&self.flows, first) {
                return Some(first.at);
            }
            self.deadlines.pop_front();
        }
        None
    }

    /// An ACK whose time is up, to be forwarded. Call it until it returns `None`.
    pub fn release(&mut self, now: Time) -> Option<u64> {
        self.next_deadline().filter(|at| *at <= now)?;
        let Deadline { flow, place, .. } = self.deadlines.pop_front()?;
        self.flows.touch(place, flow, now)?.pass(now)
    }

    /// Notes when the ACK that `flow` began to hold must go.
    fn begin(&mut self, held: Held, flow: u64, place: Place) {
        // Each flow has at most one live entry, so that half of a full queue is stale.
        if self.deadlines.len() == 2 * self.flows.len() {
            self.deadlines.retain(|entry| is_live(&self.flows, entry));
        }
        self.holds = held.hold;
        self.deadlines.push_back(Deadline {
            at: held.deadline,
            hold: held.hold,
            flow,
            place,
        });
    }
}

fn is_live(flows: &Flows<Flow>, entry: &Deadline) -> bool {
    let held = flows
        .get(entry.place, entry.flow)
        .and_then(|flow| flow.held);
    held.is_some_and(|held| held.hold == entry.hold)
}

impl Flow {
    /// A flow whose first ACK is forwarded.
    fn new(now: Time, ack: PureAck) -> Self {
        Self {
            last: ack,
            interrupted: false,
            passed_ack: ack.ack,
            passed_at: now,
            suppressed: 0,
            held: None,
        }
    }

    /// What goes on with `ack`, or `None` if it may be held.
    fn forward(&mut self, now: Time, ack: &PureAck, limits: &Limits) -> Option<Thinned> {
        let progress = ack.supersedes(&self.last) && !self.interrupted;
        let due = self.is_due(now, ack, limits);
        self.last = *ack;
        self.interrupted = false;
        match progress {
            true if !due => None,
            true => Some(Thinned::Pass {
                discard: self.pass(now),
            }),
            false => Some(match self.pass(now) {
                Some(held) => Thinned::PassBoth(held),
                None => Thinned::Pass { discard: None },
            }),
        }
    }

    /// Whether `ack`, which supersedes the one before, is one that goes on anyway.
    fn is_due(&self, now: Time, ack: &PureAck, limits: &Limits) -> bool {
        self.suppressed + 1 >= 1 << limits.shift
            || ack.covered_since(self.passed_ack) >= limits.covered_max
            || now.since(self.passed_at) >= limits.hold_max
            || self.held.is_some_and(|held| held.deadline <= now)
    }

    /// Notes that the latest ACK goes on, and gives up the held one.
    fn pass(&mut self, now: Time) -> Option<u64> {
        self.passed_ack = self.last.ack;
        self.passed_at = now;
        self.suppressed = 0;
        self.held.take().map(|held| held.token)
    }

    /// Holds `new` in place of what is held, but never longer than that would have been.
    fn hold(&mut self, new: Held) -> Option<u64> {
        self.suppressed += 1;
        let before = self.held;
        self.held = Some(before.map_or(new, |held| Held {
            token: new.token,
            ..held
        }));
        before.map(|held| held.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    fn thinner(shift: u32) -> Thinner {
        Thinner::new(Limits::new(shift, MS(10), 1000))
    }

    fn ack(flow: u64, ack: u32) -> PureAck {
        PureAck {
            flow,
            ack,
            window: 100,
        }
    }

    const PASS: Thinned = Thinned::Pass { discard: None };
    const HOLD: Thinned = Thinned::Hold { discard: None };

    #[test]
    fn one_in_four_goes_on() {
        let mut thinner = thinner(2);
        let mut offer = |n: u32| thinner.offer(MS(0), &ack(1, n * 1000), u64::from(n));
        assert_eq!(offer(0), PASS);
        for n in [1, 5, 9] {
            assert_eq!(offer(n), HOLD);
            let discard = Some(u64::from(n));
            assert_eq!(offer(n + 1), Thinned::Hold { discard });
            assert_eq!(
                offer(n + 2),
                Thinned::Hold {
                    discard: Some(u64::from(n + 1))
                }
            );
            assert_eq!(
                offer(n + 3),
                Thinned::Pass {
                    discard: Some(u64::from(n + 2))
                }
            );
        }
    }

    #[test]
    fn shift_zero_forwards_all() {
        let mut thinner = thinner(0);
        for n in 0..100 {
            assert_eq!(thinner.offer(MS(0), &ack(1, n * 1000), 0), PASS);
        }
    }

    #[test]
    fn a_duplicate_goes_after_the_one_it_repeats() {
        let mut thinner = thinner(4);
        assert_eq!(thinner.offer(MS(0), &ack(1, 1000), 1), PASS);
        assert_eq!(thinner.offer(MS(0), &ack(1, 2000), 2), HOLD);
        assert_eq!(thinner.offer(MS(0), &ack(1, 2000), 3), Thinned::PassBoth(2));
        assert_eq!(thinner.offer(MS(0), &ack(1, 2000), 4), PASS);
    }

    #[test]
    fn a_closing_window_goes_at_once() {
        let mut thinner = thinner(4);
        thinner.offer(MS(0), &ack(1, 1000), 1);
        let closed = PureAck {
            window: 0,
            ..ack(1, 2000)
        };
        assert_eq!(thinner.offer(MS(0), &closed, 2), PASS);
        assert_eq!(thinner.offer(MS(0), &ack(1, 3000), 3), PASS);
    }

    #[test]
    fn much_new_data_goes_at_once() {
        let mut thinner = thinner(2);
        thinner.offer(MS(0), &ack(1, 0), 1);
        assert_eq!(thinner.offer(MS(0), &ack(1, 7999), 2), HOLD);
        assert_eq!(
            thinner.offer(MS(0), &ack(1, 8000), 3),
            Thinned::Pass { discard: Some(2) }
        );
    }

    #[test]
    fn the_deadline_is_that_of_the_first_held() {
        let mut thinner = thinner(8);
        thinner.offer(MS(0), &ack(1, 1000), 1);
        thinner.offer(MS(3), &ack(1, 2000), 2);
        thinner.offer(MS(8), &ack(1, 3000), 3);
        assert_eq!(thinner.next_deadline(), Some(MS(13)));
        assert_eq!(thinner.release(Time::from_nanos(12_999_999)), None);
        assert_eq!(thinner.release(MS(13)), Some(3));
        assert_eq!(thinner.release(MS(13)), None);
        assert_eq!(thinner.next_deadline(), None);
    }

    #[test]
    fn sparse_acks_are_not_held() {
        let mut thinner = thinner(8);
        for n in 0..100 {
            assert_eq!(
                thinner.offer(MS(u64::from(n) * 10), &ack(1, n * 1000), 0),
                PASS
            );
        }
    }

    #[test]
    fn other_segments_push_the_held_one_out() {
        let mut thinner = thinner(8);
        thinner.offer(MS(0), &ack(1, 1000), 1);
        thinner.offer(MS(0), &ack(1, 2000), 2);
        assert_eq!(thinner.flush(MS(1), 2), None);
        assert_eq!(thinner.flush(MS(1), 1), Some(2));
        assert_eq!(thinner.flush(MS(1), 1), None);
        assert_eq!(thinner.next_deadline(), None);
        assert_eq!(thinner.offer(MS(1), &ack(1, 3000), 3), PASS);
        assert_eq!(thinner.offer(MS(1), &ack(1, 4000), 4), HOLD);
    }

    #[test]
    fn deadlines_stay_bounded() {
        let mut thinner = thinner(1);
        for n in 0..100_000 {
            thinner.offer(MS(0), &ack(1, n * 1000), 0);
            assert!(thinner.deadlines.len() <= 2 * thinner.flows.len());
        }
    }

    #[test]
    fn no_flow_with_a_held_ack_is_forgotten() {
        let mut thinner = Thinner::new(Limits {
            flows_max: 8,
            ..Limits::new(4, MS(10), 1000)
        });
        for flow in 0..20 {
            thinner.offer(MS(0), &ack(flow, 1000), flow);
            thinner.offer(MS(0), &ack(flow, 2000), flow);
        }
        let released: Vec<u64> = std::iter::from_fn(|| thinner.release(MS(10))).collect();
        assert_eq!(released, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
