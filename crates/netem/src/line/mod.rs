// SPDX-License-Identifier: MIT OR Apache-2.0
//! One direction of a link: what happens to each segment, and when it comes out.
//!
//! ```text
//! offer ─ ACK rules ─ loss ─ duplication ─ corruption ─ queue ─ transmitter ─ delay ± jitter ─ poll
//! ```
//!
//! Nothing is decided ahead of time: a segment waits in a real queue until the transmitter takes it,
//! so that a change of rate, delay or queue rule finds the state that a real device would have.

pub mod flight;
pub(crate) mod witness;

use super::{
    Delivered, Drop, Event, Segment,
    ack::{
        acking::Acking,
        rules::{AckRules, Ruling},
    },
    jitter::JitterProcess,
    loss::{Loss, LossProcess},
    queue::discipline::{QueueRule, Verdict},
    random,
    schedule::Schedule,
    setting::{Limit, Order, Setting, Shape},
    transmitter::Transmitter,
};
use flight::Flight;
use longhaul_units::{Ratio, Time};
use std::collections::VecDeque;
use witness::{Found, Judged, Witness};

/// One direction of a link.
#[derive(Debug)]
pub struct Line {
    shape: Shape,
    limit: Limit,
    schedule: Schedule,
    acks: AckRules,
    /// Scratch space, empty between calls.
    rulings: Vec<Ruling>,
    loss: LossProcess,
    duplicate: LossProcess,
    corrupt: LossProcess,
    reorder: LossProcess,
    jitter: JitterProcess,
    rule: QueueRule,
    transmitter: Transmitter,
    queue: VecDeque<Waiting>,
    backlog: u64,
    idle_since: Option<Time>,
    in_service: Option<InService>,
    flight: Flight<Carried>,
    /// No later segment comes out before this, unless overtaking is allowed.
    newest_exit: Time,
    damage: u32,
    witness: Witness,
}

#[derive(Debug, Clone, Copy)]
struct Carried {
    segment: Segment,
    corrupt: bool,
}

#[derive(Debug)]
struct Waiting {
    carried: Carried,
    since: Time,
}

#[derive(Debug)]
struct InService {
    carried: Carried,
    finish: Time,
}

/// What can happen inside a line without an arrival, first things first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A change of its schedule.
    Change,
    /// The last bit of a segment leaves the transmitter.
    Sent,
    /// An ACK was held long enough.
    Ack,
}

impl Line {
    /// A line that begins its schedule at `start`. Every random decision follows from `seed`.
    #[must_use]
    pub fn new(shape: Shape, schedule: Schedule, seed: u64, start: Time) -> Self {
        let chance = |ratio: Ratio, name| {
            LossProcess::new(&Loss::Independent(ratio), random::stream(seed, name))
        };
        Self {
            acks: AckRules::new(&shape.ack, shape.mtu),
            rulings: Vec::new(),
            loss: LossProcess::new(&shape.loss, random::stream(seed, "loss")),
            duplicate: chance(shape.duplicate, "duplicate"),
            corrupt: chance(shape.corrupt, "corrupt"),
            reorder: chance(shape.reorder.probability, "reorder"),
            jitter: JitterProcess::new(&shape.jitter, random::stream(seed, "jitter")),
            rule: QueueRule::new(
                &shape.rule_in_numbers(),
                shape.mtu,
                shape.rate_for_rule(),
                random::stream(seed, "queue rule"),
            ),
            transmitter: Transmitter::new(&shape.rate, start),
            queue: VecDeque::new(),
            backlog: 0,
            idle_since: Some(start),
            in_service: None,
            flight: Flight::new(),
            newest_exit: Time::ZERO,
            damage: seed as u32,
            witness: Witness::default(),
            schedule: schedule.starting_at(start),
            limit: shape.limit(),
            shape,
        }
    }

    /// The same line, which from now on tells of each segment that it is offered
    /// ([`Event::Judged`]).
    #[must_use]
    pub fn observed(mut self) -> Self {
        self.witness.begin(self.queue.len());
        self
    }

    /// A segment arrives. `acking` is what the ACK rules need to know of it; it may be left out
    /// unless [`wants_acking`](Self::wants_acking).
    pub fn offer(
        &mut self,
        now: Time,
        segment: Segment,
        acking: Option<Acking>,
        emit: &mut impl FnMut(Event),
    ) {
        self.advance(now, emit);
        match acking.filter(|_| self.acks.active()) {
            Some(acking) => self.offer_acking(now, segment, acking, emit),
            None => self.admit(now, segment, self.witness.see(now, self.backlog), emit),
        }
    }

    /// Emits every segment that is out by `now`.
    pub fn poll(&mut self, now: Time, emit: &mut impl FnMut(Event)) {
        self.advance(now, emit);
        while let Some((at, carried)) = self.flight.pop(now) {
            let corrupt = carried.corrupt.then(|| self.next_damage());
            emit(Event::Deliver(Delivered {
                at,
                segment: carried.segment,
                corrupt,
            }));
        }
    }

    /// When `poll` must be called again at the latest, if nothing is offered before.
    #[must_use]
    pub fn next_deadline(&mut self) -> Option<Time> {
        let serving = self
            .in_service
            .as_ref()
            .map(|service| self.earliest_exit(service.finish));
        [
            self.flight.next(),
            serving,
            self.acks.next_deadline(),
            self.schedule.next(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Changes one setting from `now` on.
    pub fn set(&mut self, now: Time, setting: Setting, emit: &mut impl FnMut(Event)) {
        self.advance(now, emit);
        self.apply(now, setting, emit);
    }

    /// What is set now.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Bytes that wait for the transmitter, without the segment that is being sent.
    #[must_use]
    pub fn backlog_bytes(&self) -> u64 {
        self.backlog
    }

    /// Segments that wait for the transmitter.
    #[must_use]
    pub fn backlog_segments(&self) -> usize {
        self.queue.len()
    }

    /// Segments between transmitter and exit.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flight.len()
    }

    /// How long the segment at the head of the queue has waited.
    #[must_use]
    pub fn queue_delay(&self, now: Time) -> Time {
        self.queue
            .front()
            .map_or(Time::ZERO, |head| now.since(head.since))
    }

    /// Lets everything happen that happens by `now`, in its order.
    fn advance(&mut self, now: Time, emit: &mut impl FnMut(Event)) {
        while let Some((at, step)) = self.next_step().filter(|(at, _)| *at <= now) {
            match step {
                Step::Change => self.apply_scheduled(at, emit),
                Step::Sent => self.finish_service(emit),
                Step::Ack => self.release_acks(at, emit),
            }
        }
    }

    /// What happens next inside the line; at the same time a change comes first, so that it holds
    /// from its nanosecond on.
    fn next_step(&mut self) -> Option<(Time, Step)> {
        let change = self.schedule.next().map(|at| (at, Step::Change));
        let sent = self
            .in_service
            .as_ref()
            .map(|service| (service.finish, Step::Sent));
        let ack = match self.acks.active() {
            true => self.acks.next_deadline().map(|at| (at, Step::Ack)),
            false => None,
        };
        [change, sent, ack].into_iter().flatten().min()
    }

    fn offer_acking(
        &mut self,
        now: Time,
        segment: Segment,
        acking: Acking,
        emit: &mut impl FnMut(Event),
    ) {
        let found = self.witness.see(now, self.backlog);
        self.witness.hold(segment, found);
        let mut rulings = std::mem::take(&mut self.rulings);
        self.acks
            .offer(now, segment, acking, &mut |ruling| rulings.push(ruling));
        self.carry_out(now, rulings, emit);
    }

    fn release_acks(&mut self, at: Time, emit: &mut impl FnMut(Event)) {
        let mut rulings = std::mem::take(&mut self.rulings);
        self.acks.release(at, &mut |ruling| rulings.push(ruling));
        self.carry_out(at, rulings, emit);
    }

    /// ACKs that the old rules hold go on at once.
    fn change_ack_rules(&mut self, now: Time, emit: &mut impl FnMut(Event)) {
        let mut rulings = std::mem::take(&mut self.rulings);
        self.acks.release_all(&mut |ruling| rulings.push(ruling));
        self.carry_out(now, rulings, emit);
        self.acks = AckRules::new(&self.shape.ack, self.shape.mtu);
    }

    fn carry_out(&mut self, now: Time, mut rulings: Vec<Ruling>, emit: &mut impl FnMut(Event)) {
        for ruling in rulings.drain(..) {
            match ruling {
                Ruling::Forward(segment) => {
                    let found = self.witness.release(segment);
                    self.admit(now, segment, found, emit);
                }
                Ruling::Discard(segment) => {
                    let found = self.witness.release(segment);
                    give_up(segment, Drop::AckRule, found, emit);
                }
            }
        }
        self.rulings = rulings;
    }

    /// Whether the ACK rules are on and must be told of every TCP packet.
    #[must_use]
    pub fn wants_acking(&self) -> bool {
        self.acks.active()
    }

    /// Loss, duplication and corruption: what the medium does before the queue.
    fn admit(
        &mut self,
        now: Time,
        segment: Segment,
        mut found: Option<Found>,
        emit: &mut impl FnMut(Event),
    ) {
        if self.loss.lose() {
            return give_up(segment, Drop::Loss, found, emit);
        }
        let corrupt = self.corrupt.lose();
        if self.duplicate.lose() {
            emit(Event::Copy(segment));
            let copy = Carried {
                segment,
                corrupt: false,
            };
            self.enqueue(now, copy, found.take(), emit);
        }
        self.enqueue(now, Carried { segment, corrupt }, found, emit);
    }

    fn enqueue(
        &mut self,
        now: Time,
        carried: Carried,
        found: Option<Found>,
        emit: &mut impl FnMut(Event),
    ) {
        let segment = carried.segment;
        if self.transmitter.is_unlimited() && self.queue.is_empty() {
            judge(segment, None, found, emit);
            return self.propagate(now, carried);
        }
        let waits = self.in_service.is_some() || !self.queue.is_empty();
        if waits
            && !self
                .limit
                .admits(self.backlog, self.queue.len(), segment.len)
        {
            return give_up(segment, Drop::Overflow, found, emit);
        }
        if !self.rule.admit(now, self.backlog, self.idle_since) {
            return give_up(segment, Drop::QueueRule, found, emit);
        }
        let open = found.filter(|_| self.rule.decides_at_head());
        if open.is_none() {
            judge(segment, None, found, emit);
        }
        self.witness.wait(open);
        self.backlog += u64::from(segment.len);
        self.queue.push_back(Waiting {
            carried,
            since: now,
        });
        if self.in_service.is_none() {
            self.serve(now, emit);
        }
    }

    /// The transmitter is free: it takes the next segment that the queue rule lets through.
    fn serve(&mut self, now: Time, emit: &mut impl FnMut(Event)) {
        while let Some(waiting) = self.queue.pop_front() {
            let segment = waiting.carried.segment;
            let found = self.witness.next();
            self.backlog -= u64::from(segment.len);
            if self.rule.keep(now, now.since(waiting.since), self.backlog) == Verdict::Drop {
                give_up(segment, Drop::QueueRule, found, emit);
                continue;
            }
            judge(segment, None, found, emit);
            self.idle_since = None;
            let finish = self
                .transmitter
                .finish(now, segment.len + self.shape.overhead);
            self.in_service = Some(InService {
                carried: waiting.carried,
                finish,
            });
            return;
        }
        self.idle_since = Some(now);
    }

    fn finish_service(&mut self, emit: &mut impl FnMut(Event)) {
        if let Some(service) = self.in_service.take() {
            self.propagate(service.finish, service.carried);
            self.serve(service.finish, emit);
        }
    }

    /// On the wire: delay, jitter, reordering.
    fn propagate(&mut self, sent: Time, carried: Carried) {
        let offset = self.jitter.offset();
        let delay = self.shape.delay.as_nanos().saturating_add_signed(offset);
        let mut exit = sent + Time::from_nanos(delay);
        if !self.shape.jitter.reorder {
            exit = exit.max(self.newest_exit);
            self.newest_exit = exit;
        }
        // Held back after the order is settled, so that its successors overtake it.
        if self.reorder.lose() {
            exit += self.shape.reorder.hold;
        }
        self.flight.push(exit, carried);
    }

    /// The earliest that a segment can come out if its last bit leaves at `finish`.
    fn earliest_exit(&self, finish: Time) -> Time {
        match self.shape.jitter.is_none() {
            true => finish + self.shape.delay,
            false => finish,
        }
    }

    fn apply_scheduled(&mut self, now: Time, emit: &mut impl FnMut(Event)) {
        if let Some(setting) = self.schedule.take(now) {
            self.apply(now, setting, emit);
        }
    }

    fn apply(&mut self, now: Time, setting: Setting, emit: &mut impl FnMut(Event)) {
        self.shape.apply(setting.clone());
        match setting {
            Setting::Delay(_) if self.shape.order == Order::Switch => self.newest_exit = now,
            Setting::Rate(_) => self.change_rate(now),
            Setting::Rule(_) => self.change_rule(),
            Setting::NoTrace => self.change_rate(now),
            Setting::Queue(_) => self.change_limit(),
            Setting::Loss(loss) => self.loss.change(&loss),
            Setting::Duplicate(ratio) => self.duplicate.change(&Loss::Independent(ratio)),
            Setting::Corrupt(ratio) => self.corrupt.change(&Loss::Independent(ratio)),
            Setting::Reorder(reorder) => {
                self.reorder.change(&Loss::Independent(reorder.probability));
            }
            Setting::Jitter(jitter) => self.jitter.change(&jitter),
            Setting::AckThin(_)
            | Setting::AckHold(_)
            | Setting::AckPace(_)
            | Setting::AckBuffer(_) => self.change_ack_rules(now, emit),
            _ => {}
        }
    }

    /// The segment that is being sent keeps what it has sent; its rest goes at the new rate.
    fn change_rate(&mut self, now: Time) {
        let rest = self
            .in_service
            .as_ref()
            .map(|s| self.transmitter.rest(now, s.finish));
        self.transmitter = Transmitter::new(&self.shape.rate, now);
        if let (Some(service), Some(rest)) = (&mut self.in_service, rest) {
            service.finish = self.transmitter.finish(now, rest);
        }
        self.change_rule();
    }

    /// RED may take its backlogs from the limit.
    fn change_limit(&mut self) {
        self.limit = self.shape.limit();
        if self.shape.rule_in_numbers() != self.shape.rule {
            self.change_rule();
        }
    }

    fn change_rule(&mut self) {
        let rule = self.shape.rule_in_numbers();
        self.rule
            .change(&rule, self.shape.mtu, self.shape.rate_for_rule());
    }

    /// A different bit for each damaged segment (Numerical Recipes' linear congruence).
    fn next_damage(&mut self) -> u32 {
        self.damage = self
            .damage
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        self.damage >> 8
    }
}

/// Tells of a segment's fate, if somebody wants to know it and does not yet.
fn judge(segment: Segment, lost: Option<Drop>, found: Option<Found>, emit: &mut impl FnMut(Event)) {
    if let Some(Found { at, queue_bytes }) = found {
        emit(Event::Judged(Judged {
            at,
            queue_bytes,
            segment,
            lost,
        }));
    }
}

fn give_up(segment: Segment, cause: Drop, found: Option<Found>, emit: &mut impl FnMut(Event)) {
    judge(segment, Some(cause), found, emit);
    emit(Event::Drop { segment, cause });
}
