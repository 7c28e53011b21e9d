// SPDX-License-Identifier: MIT OR Apache-2.0
//! One direction of a link, as a state machine.
//!
//! ```text
//! offer ─ ACK rules ─ loss ─ duplication ─ corruption ─ queue ─ transmitter ─ delay ± jitter ─ poll
//! ```
//!
//! The line decides nothing ahead of time: a segment waits in a real queue until the transmitter
//! takes it. So a change of rate, delay or AQM finds the state that a real device would
//! have.

pub(crate) mod observer;
pub mod propagation;

use super::{
    Delivered, DropCause, Event, Segment,
    ack::{
        class::AckClass,
        rules::{AckAction, AckRules},
    },
    jitter::JitterProcess,
    loss::{Loss, LossProcess},
    queue::discipline::{Aqm, AqmVerdict},
    random,
    schedule::Schedule,
    setting::{LinkConfig, QueueCapacity, Setting},
    transmitter::Transmitter,
};
use longhaul_units::{Ratio, Time};
use observer::{Arrival, Observer, SegmentVerdict};
use propagation::PropagationQueue;
use std::collections::VecDeque;

/// One direction of a link.
#[derive(Debug)]
pub struct Line {
    config: LinkConfig,
    queue_capacity: QueueCapacity,
    schedule: Schedule,
    ack_rules: AckRules,
    /// Scratch space for actions of the ACK rules, empty between calls.
    actions: Vec<AckAction>,
    loss: LossProcess,
    duplicate: LossProcess,
    corrupt: LossProcess,
    reorder: LossProcess,
    jitter: JitterProcess,
    aqm: Aqm,
    transmitter: Transmitter,
    queue: VecDeque<QueuedFrame>,
    /// Bytes in `queue`.
    backlog: u64,
    /// Time at which the transmitter became idle; `None` while it sends.
    idle_since: Option<Time>,
    in_service: Option<Transmission>,
    /// Segments between the transmitter and the exit.
    propagating: PropagationQueue<Frame>,
    /// Latest exit so far. No later segment comes out before it, unless jitter or
    /// a change of delay ([`LinkConfig::allow_reordering`]) may reorder segments.
    latest_exit: Time,
    /// State of the generator that selects the bit to flip in a corrupt segment.
    corrupt_bit_state: u32,
    observer: Observer,
}

/// A segment inside the line, and whether it is corrupt.
#[derive(Debug, Clone, Copy)]
struct Frame {
    segment: Segment,
    corrupt: bool,
}

/// A segment in the queue.
#[derive(Debug)]
struct QueuedFrame {
    frame: Frame,
    enqueued_at: Time,
}

/// The segment that the transmitter sends.
#[derive(Debug)]
struct Transmission {
    frame: Frame,
    /// Time at which its last bit leaves.
    finish: Time,
}

/// Timers inside a line, in the order in which they fire at the same nanosecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The schedule changes a setting, which holds from this nanosecond on.
    Schedule,
    /// The last bit of a segment leaves the transmitter.
    Transmitter,
    /// The ACK rules release an ACK.
    AckRules,
}

impl Line {
    /// A line whose schedule begins at `start`. Every random decision follows from `seed`.
    #[must_use]
    pub fn new(config: LinkConfig, schedule: Schedule, seed: u64, start: Time) -> Self {
        let chance = |ratio: Ratio, name| {
            LossProcess::new(&Loss::Independent(ratio), random::stream(seed, name))
        };
        Self {
            ack_rules: AckRules::new(&config.ack, config.mtu),
            actions: Vec::new(),
            loss: LossProcess::new(&config.loss, random::stream(seed, "loss")),
            duplicate: chance(config.duplicate, "duplicate"),
            corrupt: chance(config.corrupt, "corrupt"),
            reorder: chance(config.reorder.probability, "reorder"),
            jitter: JitterProcess::new(&config.jitter, random::stream(seed, "jitter"), start),
            aqm: Aqm::new(
                &config.aqm_with_defaults(),
                config.mtu,
                config.drain_rate(),
                // The name of the stream is part of every seed's results.
                random::stream(seed, "queue rule"),
            ),
            transmitter: Transmitter::new(&config.rate, start),
            queue: VecDeque::new(),
            backlog: 0,
            idle_since: Some(start),
            in_service: None,
            propagating: PropagationQueue::new(),
            latest_exit: Time::ZERO,
            corrupt_bit_state: seed as u32,
            observer: Observer::default(),
            schedule: schedule.starting_at(start),
            queue_capacity: config.queue_capacity(),
            config,
        }
    }

    /// This line with its observer enabled. It reports the verdict on each segment that it is offered
    /// from now on ([`Event::Verdict`]).
    #[must_use]
    pub fn observed(mut self) -> Self {
        self.observer.enable(self.queue.len());
        self
    }

    /// Accepts a segment that arrives at `now`. `ack_class` is the segment's class for the ACK rules. It may
    /// be `None` if [`needs_ack_class`](Self::needs_ack_class) returns false.
    pub fn offer(
        &mut self,
        now: Time,
        segment: Segment,
        ack_class: Option<AckClass>,
        emit: &mut impl FnMut(Event),
    ) {
        self.advance(now, emit);
        match ack_class.filter(|_| self.ack_rules.active()) {
            Some(ack_class) => self.offer_to_ack_rules(now, segment, ack_class, emit),
            None => {
                let arrival = self.observer.arrival(now, self.backlog);
                self.admit(now, segment, arrival, emit);
            }
        }
    }

    /// Emits every segment that comes out at or before `now`.
    pub fn poll(&mut self, now: Time, emit: &mut impl FnMut(Event)) {
        self.poll_known(now, now, emit);
    }

    /// Emits every segment that comes out at or before `now`, as far as it follows from what happened up to
    /// `known`. A caller that has yet to offer segments that arrived after `known` calls this instead of
    /// [`poll`](Self::poll), so that they find the line as it was when they arrived.
    pub fn poll_known(&mut self, known: Time, now: Time, emit: &mut impl FnMut(Event)) {
        self.advance(known, emit);
        while let Some((at, frame)) = self.propagating.pop(now) {
            let corrupt = frame.corrupt.then(|| self.next_corrupt_bit());
            emit(Event::Deliver(Delivered {
                at,
                segment: frame.segment,
                corrupt,
            }));
        }
    }

    /// Latest time for the next call of `poll`, if no segment is offered before. The time may change with
    /// each `offer`, `poll` and `set`.
    #[must_use]
    pub fn next_deadline(&mut self) -> Option<Time> {
        let serving = self
            .in_service
            .as_ref()
            .map(|service| self.earliest_exit(service.finish));
        [
            self.propagating.next(),
            serving,
            self.ack_rules.next_deadline(),
            self.schedule.next_deadline(),
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

    /// Settings that hold now.
    #[must_use]
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Queue limit that holds now. A limit in BDPs was computed when it was set.
    #[must_use]
    pub fn queue_capacity(&self) -> QueueCapacity {
        self.queue_capacity
    }

    /// Bytes that wait for the transmitter, without the segment in service.
    #[must_use]
    pub fn backlog_bytes(&self) -> u64 {
        self.backlog
    }

    /// Segments that wait for the transmitter, without the segment in service.
    #[must_use]
    pub fn backlog_segments(&self) -> usize {
        self.queue.len()
    }

    /// Segments between the transmitter and the exit.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.propagating.len()
    }

    /// Time that the segment at the head of the queue has waited; 0 if the queue is empty.
    #[must_use]
    pub fn queue_delay(&self, now: Time) -> Time {
        self.queue
            .front()
            .map_or(Time::ZERO, |head| now.since(head.enqueued_at))
    }

    /// Fires all timers up to `now`, in order of time.
    fn advance(&mut self, now: Time, emit: &mut impl FnMut(Event)) {
        while let Some((at, timer)) = self.next_timer().filter(|(at, _)| *at <= now) {
            match timer {
                Timer::Schedule => self.apply_scheduled(at, emit),
                Timer::Transmitter => self.finish_service(emit),
                Timer::AckRules => self.release_acks(at, emit),
            }
        }
    }

    /// The timer that fires next, and its time.
    fn next_timer(&mut self) -> Option<(Time, Timer)> {
        let change = self
            .schedule
            .next_deadline()
            .map(|at| (at, Timer::Schedule));
        let sent = self
            .in_service
            .as_ref()
            .map(|service| (service.finish, Timer::Transmitter));
        let ack = if self.ack_rules.active() {
            self.ack_rules
                .next_deadline()
                .map(|at| (at, Timer::AckRules))
        } else {
            None
        };
        [change, sent, ack].into_iter().flatten().min()
    }

    fn offer_to_ack_rules(
        &mut self,
        now: Time,
        segment: Segment,
        ack_class: AckClass,
        emit: &mut impl FnMut(Event),
    ) {
        let arrival = self.observer.arrival(now, self.backlog);
        self.observer.hold(segment, arrival);
        let mut actions = std::mem::take(&mut self.actions);
        self.ack_rules
            .offer(now, segment, ack_class, &mut |action| actions.push(action));
        self.apply_ack_actions(now, actions, emit);
    }

    fn release_acks(&mut self, at: Time, emit: &mut impl FnMut(Event)) {
        let mut actions = std::mem::take(&mut self.actions);
        self.ack_rules
            .release(at, &mut |action| actions.push(action));
        self.apply_ack_actions(at, actions, emit);
    }

    /// Starts new ACK rules. ACKs that the old rules hold are forwarded at once.
    fn change_ack_rules(&mut self, now: Time, emit: &mut impl FnMut(Event)) {
        let mut actions = std::mem::take(&mut self.actions);
        self.ack_rules
            .release_all(&mut |action| actions.push(action));
        self.apply_ack_actions(now, actions, emit);
        self.ack_rules = AckRules::new(&self.config.ack, self.config.mtu);
    }

    fn apply_ack_actions(
        &mut self,
        now: Time,
        mut actions: Vec<AckAction>,
        emit: &mut impl FnMut(Event),
    ) {
        for action in actions.drain(..) {
            match action {
                AckAction::Forward(segment) => {
                    let arrival = self.observer.release(segment);
                    self.admit(now, segment, arrival, emit);
                }
                AckAction::Discard(segment) => {
                    let arrival = self.observer.release(segment);
                    drop_segment(segment, DropCause::AckFiltering, arrival, emit);
                }
            }
        }
        self.actions = actions;
    }

    /// Whether ACK rules are set, so that [`offer`](Self::offer) needs the [`AckClass`] of every TCP packet.
    #[must_use]
    pub fn needs_ack_class(&self) -> bool {
        self.ack_rules.active()
    }

    /// Applies loss, duplication and corruption, which the medium causes ahead of the queue.
    fn admit(
        &mut self,
        now: Time,
        segment: Segment,
        mut arrival: Option<Arrival>,
        emit: &mut impl FnMut(Event),
    ) {
        if self.loss.occurs() {
            return drop_segment(segment, DropCause::Loss, arrival, emit);
        }
        let corrupt = self.corrupt.occurs();
        if self.duplicate.occurs() {
            emit(Event::Duplicate(segment));
            let copy = Frame {
                segment,
                corrupt: false,
            };
            self.enqueue(now, copy, arrival.take(), emit);
        }
        self.enqueue(now, Frame { segment, corrupt }, arrival, emit);
    }

    /// Puts a segment into the queue, or straight on the wire at an unlimited rate; drops it if the queue
    /// limit or the AQM refuses it.
    fn enqueue(
        &mut self,
        now: Time,
        frame: Frame,
        arrival: Option<Arrival>,
        emit: &mut impl FnMut(Event),
    ) {
        let segment = frame.segment;
        if self.transmitter.is_unlimited() && self.queue.is_empty() {
            report_verdict(segment, None, arrival, emit);
            return self.propagate(now, frame);
        }
        let is_busy = self.in_service.is_some() || !self.queue.is_empty();
        if is_busy
            && !self
                .queue_capacity
                .admits(self.backlog, self.queue.len(), segment.len)
        {
            return drop_segment(segment, DropCause::Overflow, arrival, emit);
        }
        if !self.aqm.admit(now, self.backlog, self.idle_since) {
            return drop_segment(segment, DropCause::Aqm, arrival, emit);
        }
        let pending = arrival.filter(|_| self.aqm.decides_at_head());
        if pending.is_none() {
            report_verdict(segment, None, arrival, emit);
        }
        self.observer.enqueue(pending);
        self.backlog += u64::from(segment.len);
        self.queue.push_back(QueuedFrame {
            frame,
            enqueued_at: now,
        });
        if self.in_service.is_none() {
            self.serve(now, emit);
        }
    }

    /// Gives the idle transmitter the next segment that the AQM does not drop.
    fn serve(&mut self, now: Time, emit: &mut impl FnMut(Event)) {
        while let Some(queued) = self.queue.pop_front() {
            let segment = queued.frame.segment;
            let arrival = self.observer.dequeue();
            self.backlog -= u64::from(segment.len);
            let sojourn = now.since(queued.enqueued_at);
            if self.aqm.decide(now, sojourn, self.backlog) == AqmVerdict::Drop {
                drop_segment(segment, DropCause::Aqm, arrival, emit);
                continue;
            }
            report_verdict(segment, None, arrival, emit);
            self.idle_since = None;
            let finish = self
                .transmitter
                .finish(now, segment.len + self.config.overhead);
            self.in_service = Some(Transmission {
                frame: queued.frame,
                finish,
            });
            return;
        }
        self.idle_since = Some(now);
    }

    fn finish_service(&mut self, emit: &mut impl FnMut(Event)) {
        if let Some(service) = self.in_service.take() {
            self.propagate(service.finish, service.frame);
            self.serve(service.finish, emit);
        }
    }

    /// Puts a segment on the wire, and computes its exit from delay, jitter and reordering.
    fn propagate(&mut self, sent: Time, frame: Frame) {
        let offset = self.jitter.offset(sent);
        let delay = self.config.delay.as_nanos().saturating_add_signed(offset);
        let mut exit = sent + Time::from_nanos(delay);
        if !self.config.jitter.reorder {
            exit = exit.max(self.latest_exit);
            self.latest_exit = exit;
        }
        // The extra delay is not in `latest_exit`, so that later segments overtake this one.
        if self.reorder.occurs() {
            exit += self.config.reorder.hold;
        }
        self.propagating.push(exit, frame);
    }

    /// Earliest time at which a segment can come out if its last bit leaves at `finish`.
    fn earliest_exit(&self, finish: Time) -> Time {
        if self.config.jitter.is_none() {
            finish + self.config.delay
        } else {
            finish
        }
    }

    fn apply_scheduled(&mut self, now: Time, emit: &mut impl FnMut(Event)) {
        if let Some(setting) = self.schedule.pop_due(now) {
            self.apply(now, setting, emit);
        }
    }

    fn apply(&mut self, now: Time, setting: Setting, emit: &mut impl FnMut(Event)) {
        self.config.apply(setting.clone());
        match setting {
            Setting::Delay(_) if self.config.allow_reordering => self.latest_exit = now,
            Setting::Rate(_) => self.change_rate(now),
            Setting::Aqm(_) => self.change_aqm(),
            Setting::EndTrace => self.change_rate(now),
            Setting::Queue(_) => self.change_queue_capacity(),
            Setting::Loss(loss) => self.loss.change(&loss),
            Setting::Duplicate(ratio) => self.duplicate.change(&Loss::Independent(ratio)),
            Setting::Corrupt(ratio) => self.corrupt.change(&Loss::Independent(ratio)),
            Setting::Reorder(reorder) => {
                self.reorder.change(&Loss::Independent(reorder.probability));
            }
            Setting::Jitter(jitter) => self.jitter.change(&jitter, now),
            Setting::AckThin(_)
            | Setting::MaxAckDelay(_)
            | Setting::AckRate(_)
            | Setting::AckBuffer(_) => self.change_ack_rules(now, emit),
            _ => {}
        }
    }

    /// Changes the rate. The rest of the segment in service leaves at the new rate too.
    fn change_rate(&mut self, now: Time) {
        let in_service = self.in_service.as_ref();
        let rest = in_service.map(|service| self.transmitter.rest(now, service.finish));
        self.transmitter = Transmitter::new(&self.config.rate, now);
        if let (Some(service), Some(rest)) = (&mut self.in_service, rest) {
            service.finish = self.transmitter.finish_rest(now, rest);
        }
        self.change_aqm();
    }

    /// Changes the queue limit, and the RED thresholds that follow from it.
    fn change_queue_capacity(&mut self) {
        self.queue_capacity = self.config.queue_capacity();
        if self.config.aqm_with_defaults() != self.config.aqm {
            self.change_aqm();
        }
    }

    fn change_aqm(&mut self) {
        let discipline = self.config.aqm_with_defaults();
        self.aqm
            .change(&discipline, self.config.mtu, self.config.drain_rate());
    }

    /// Returns the number that selects the bit to flip, a different one for each corrupt segment. Uses the
    /// linear congruential generator of Numerical Recipes.
    fn next_corrupt_bit(&mut self) -> u32 {
        self.corrupt_bit_state = self
            .corrupt_bit_state
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        self.corrupt_bit_state >> 8
    }
}

/// Reports the verdict on a segment. Its arrival is `None` if the line is not observed or the verdict was reported
/// before.
fn report_verdict(
    segment: Segment,
    lost: Option<DropCause>,
    arrival: Option<Arrival>,
    emit: &mut impl FnMut(Event),
) {
    if let Some(Arrival { at, queue_bytes }) = arrival {
        emit(Event::Verdict(SegmentVerdict {
            at,
            queue_bytes,
            segment,
            lost,
        }));
    }
}

fn drop_segment(
    segment: Segment,
    cause: DropCause,
    arrival: Option<Arrival>,
    emit: &mut impl FnMut(Event),
) {
    report_verdict(segment, Some(cause), arrival, emit);
    emit(Event::Drop { segment, cause });
}
