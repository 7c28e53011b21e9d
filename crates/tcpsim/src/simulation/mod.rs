// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many flows over one shared path, under simulated time.
//!
//! ```text
//! sender ─┐                                                   ┌─ receiver
//! sender ─┼─ forward: loss ─ queue ─ transmitter ─ delay ─────┼─ receiver
//!         └─────────────── delay ─ reverse (ACKs) ────────────┘
//! ```
//!
//! A forward path that moves trains knows the verdict on a train when it is sent, and so its ACKs. Each
//! super-packet and each ACK is then one event, in order of time over all flows. A run depends on nothing but
//! its settings and seed. An [`Observer`] sees what a capture at each end would see.

mod directions;
mod event_queue;

use super::{
    congestion_control::CongestionControl,
    receiver::{Ack, AckPolicy, Receiver},
    sender::{Sender, SenderConfig},
};

pub use directions::Drops;
use directions::{ForwardPath, ReversePath};
use event_queue::EventQueue;
use longhaul_netem::{Departure, LinkConfig, Schedule, Train};
use longhaul_units::Time;
use std::collections::VecDeque;

/// Path that all flows share.
#[derive(Debug, Clone, Default)]
pub struct Path {
    /// Forward path, from senders to receivers, with the bottleneck.
    pub forward: LinkConfig,
    /// Reverse path, that of the ACKs.
    pub reverse: LinkConfig,
    /// Scheduled changes of the forward path. With a change the path moves segments instead of trains.
    pub forward_changes: Schedule,
    /// Scheduled changes of the reverse path.
    pub reverse_changes: Schedule,
    /// Seed of every random decision.
    pub seed: u64,
    /// Whether to move segment by segment whatever the settings: slow, for comparison.
    pub per_packet: bool,
}

/// Settings of one flow.
pub struct FlowConfig {
    /// Time at which its SYN is sent.
    pub start: Time,
    /// Round trip in addition to that of the shared path.
    pub extra_rtt: Time,
    /// Settings of its sender.
    pub sender: SenderConfig,
    /// ACK policy of its receiver.
    pub acks: AckPolicy,
    /// Congestion control of its sender.
    pub control: Box<dyn CongestionControl>,
}

/// Observer of the two ends of a path. As a capture at each end would, it sees all that each flow sends and
/// receives there. Packets are counted from 0.
///
/// Calls for one end of a flow are in order of their times. Events at the receiver may be reported before their
/// time, because the verdict on a train is known when it is sent. `()` observes nothing and costs nothing.
pub trait Observer {
    /// Reports a connection: its SYN was sent at `syn`, and the ACK that ends the handshake is sent now.
    fn established(&mut self, _now: Time, _flow: usize, _syn: Time) {}

    /// Reports `count` packets from `first` on, sent as one super-packet.
    fn sent(&mut self, _now: Time, _flow: usize, _first: u64, _count: u32) {}

    /// Reports the arrival of packets from `first` on at the receiver.
    fn arrived(&mut self, _flow: usize, _first: u64, _train: &Departure) {}

    /// Reports an ACK that the receiver sends at `ack.at`.
    fn acknowledged(&mut self, _flow: usize, _ack: &Ack) {}

    /// Reports the arrival of an ACK at the sender at `ack.at`.
    fn ack_arrived(&mut self, _flow: usize, _ack: &Ack) {}
}

impl Observer for () {}

/// IPv4 and TCP headers with timestamps, bytes.
const HEADERS: u32 = 52;

/// Flows over a path, and their observer.
pub struct Simulation<O = ()> {
    observer: O,
    now: Time,
    flows: Vec<Flow>,
    forward: ForwardPath,
    reverse: ReversePath,
    events: EventQueue,
}

/// Parts of the simulation that a flow uses while it handles events.
struct FlowContext<'a, O> {
    /// Number of the flow.
    number: usize,
    forward: &'a mut ForwardPath,
    reverse: &'a mut ReversePath,
    observer: &'a mut O,
}

struct Flow {
    start: Time,
    handshake: Time,
    extra_rtt: Time,
    established: bool,
    mss: u32,
    sender: Sender,
    receiver: Receiver,
    /// ACKs that the receiver will send, in order of time.
    acks_to_send: VecDeque<Ack>,
    /// ACKs in flight to the sender, in order of time.
    acks_in_flight: VecDeque<Ack>,
}

impl Simulation {
    /// Creates a simulation at time zero, without an observer.
    #[must_use]
    pub fn new(path: Path, flows: Vec<FlowConfig>) -> Self {
        Self::with_observer(path, flows, ())
    }
}

impl<O: Observer> Simulation<O> {
    /// Creates a simulation at time zero, with `observer`.
    #[must_use]
    pub fn with_observer(path: Path, flows: Vec<FlowConfig>, observer: O) -> Self {
        let base_rtt = path.forward.delay + path.reverse.delay;
        let flows: Vec<Flow> = flows
            .into_iter()
            .map(|flow| Flow::new(flow, base_rtt))
            .collect();
        let mut events = EventQueue::new(flows.len() + 2);
        for (number, flow) in flows.iter().enumerate() {
            events.set(number, flow.start + flow.handshake);
        }
        Self {
            observer,
            now: Time::ZERO,
            flows,
            forward: ForwardPath::new(
                path.forward,
                path.forward_changes,
                path.seed,
                path.per_packet,
            ),
            reverse: ReversePath::new(path.reverse, path.reverse_changes, path.seed ^ 1),
            events,
        }
    }

    /// Runs all events up to and including `end`.
    pub fn run_until(&mut self, end: Time) {
        loop {
            let (at, actor) = self.events.next();
            if at > end {
                break;
            }
            self.now = at;
            match actor.checked_sub(self.flows.len()) {
                None => self.run_flow(actor),
                Some(0) => self.poll_forward(),
                Some(_) => self.poll_reverse(),
            }
        }
        self.now = end;
    }

    /// Returns the time of the next event; [`Time::MAX`] if there is none.
    #[must_use]
    pub fn next_event(&self) -> Time {
        self.events.next().0
    }

    /// Returns the simulated time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the sender of flow `number`, counted from 0.
    pub fn sender(&mut self, number: usize) -> &mut Sender {
        &mut self.flows[number].sender
    }

    /// Adds `packets` of data from the application of flow `number` now. Only for flows whose
    /// [`SenderConfig::packets`] has an end.
    pub fn write(&mut self, number: usize, packets: u64) {
        self.flows[number].sender.write(packets);
        let at = self.now.max(self.flows[number].established_at());
        self.events.set(number, at);
    }

    /// Returns the observer.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// Returns the number of flows.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Whether all data of every flow is acknowledged.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.flows.iter().all(|flow| flow.sender.is_done())
    }

    /// Returns the bytes in the queue before the bottleneck.
    pub fn backlog_bytes(&mut self) -> u64 {
        self.forward.backlog_bytes(self.now)
    }

    /// Returns the packets that the forward path lost.
    #[must_use]
    pub fn drops(&self) -> Drops {
        self.forward.drops
    }

    #[inline]
    fn run_flow(&mut self, number: usize) {
        let flow = &mut self.flows[number];
        let mut context = FlowContext {
            number,
            forward: &mut self.forward,
            reverse: &mut self.reverse,
            observer: &mut self.observer,
        };
        flow.handle_due(self.now, &mut context);
        let next = flow.next_deadline(self.now);
        self.events.set(number, next);
        self.schedule_paths();
    }

    fn poll_forward(&mut self) {
        let (flows, reverse, events) = (&mut self.flows, &self.reverse, &mut self.events);
        let (now, observer) = (self.now, &mut self.observer);
        self.forward.poll(now, |number, seq, train| {
            let flow = &mut flows[number];
            flow.receive(number, seq, train, reverse, observer);
            events.set(number, flow.next_deadline(now));
        });
        self.schedule_paths();
    }

    fn poll_reverse(&mut self) {
        let (flows, events, now) = (&mut self.flows, &mut self.events, self.now);
        if let ReversePath::Segments(acks) = &mut self.reverse {
            acks.poll(now, |number, mut ack| {
                let flow = &mut flows[number];
                ack.at += flow.extra_rtt;
                flow.acks_in_flight.push_back(ack);
                events.set(number, flow.next_deadline(now));
            });
        }
        self.schedule_paths();
    }

    /// Sets the next events of both directions, which are the actors behind the flows.
    fn schedule_paths(&mut self) {
        let flows = self.flows.len();
        self.events.set(flows, self.forward.next_deadline());
        self.events.set(flows + 1, self.reverse.next_deadline());
    }
}

impl Flow {
    fn new(settings: FlowConfig, base_rtt: Time) -> Self {
        Self {
            start: settings.start,
            handshake: base_rtt + settings.extra_rtt,
            extra_rtt: settings.extra_rtt,
            established: false,
            mss: settings.sender.mss,
            sender: Sender::new(settings.sender, settings.control),
            receiver: Receiver::new(settings.acks),
            acks_to_send: VecDeque::new(),
            acks_in_flight: VecDeque::new(),
        }
    }

    fn established_at(&self) -> Time {
        self.start + self.handshake
    }

    #[inline]
    fn next_deadline(&self, now: Time) -> Time {
        if !self.established {
            return self.established_at();
        }
        let first = |acks: &VecDeque<Ack>| acks.front().map_or(Time::MAX, |ack| ack.at);
        first(&self.acks_in_flight)
            .min(first(&self.acks_to_send))
            .min(self.sender.next_deadline(now))
            .min(self.receiver.next_deadline())
    }

    /// Handles all events of this flow that are due.
    #[inline]
    fn handle_due<O: Observer>(&mut self, now: Time, context: &mut FlowContext<'_, O>) {
        if !self.established {
            self.established = true;
            context
                .observer
                .established(now, context.number, self.start);
            self.sender.establish(now, self.handshake);
        }
        self.send_due_acks(now, context);
        while let Some(ack) = pop_due(&mut self.acks_in_flight, now) {
            context.observer.ack_arrived(context.number, &ack);
            self.sender.on_ack(now, &ack);
            self.transmit(now, context);
        }
        self.sender.on_time(now);
        self.transmit(now, context);
    }

    /// Sends the ACKs that are due.
    #[inline]
    fn send_due_acks<O: Observer>(&mut self, now: Time, context: &mut FlowContext<'_, O>) {
        let (delay, acks_in_flight, acks_to_send) = (
            ack_delay(context.reverse, self.extra_rtt),
            &mut self.acks_in_flight,
            &mut self.acks_to_send,
        );
        self.receiver.on_time(now, &mut |ack| {
            context.observer.acknowledged(context.number, &ack);
            queue_ack(ack, delay, acks_in_flight, acks_to_send);
        });
        match context.reverse {
            ReversePath::Delay(_) => {}
            ReversePath::Trains(line) => {
                while let Some(ack) = pop_due(&mut self.acks_to_send, now) {
                    if let Some(mut ack) = directions::send_ack(line, ack) {
                        ack.at += self.extra_rtt;
                        self.acks_in_flight.push_back(ack);
                    }
                }
            }
            ReversePath::Segments(line) => {
                while let Some(ack) = pop_due(&mut self.acks_to_send, now) {
                    line.send(context.number, self.mss, ack);
                }
            }
        }
    }

    #[inline]
    fn transmit<O: Observer>(&mut self, now: Time, context: &mut FlowContext<'_, O>) {
        let delay = ack_delay(context.reverse, self.extra_rtt);
        let Self {
            sender,
            receiver,
            acks_in_flight,
            acks_to_send,
            mss,
            ..
        } = self;
        let len = *mss + HEADERS;
        let (number, observer) = (context.number, &mut *context.observer);
        sender.transmit(now, |seq, count| {
            observer.sent(now, number, seq, count);
            let train = Train { count, len };
            context.forward.send(now, number, seq, train, |seq, train| {
                observer.arrived(number, seq, train);
                receiver.on_train(seq, train, |ack| {
                    observer.acknowledged(number, &ack);
                    queue_ack(ack, delay, acks_in_flight, acks_to_send);
                });
            });
        });
    }

    fn receive<O: Observer>(
        &mut self,
        number: usize,
        seq: u64,
        train: &Departure,
        reverse: &ReversePath,
        observer: &mut O,
    ) {
        let delay = ack_delay(reverse, self.extra_rtt);
        let (acks_in_flight, acks_to_send) = (&mut self.acks_in_flight, &mut self.acks_to_send);
        observer.arrived(number, seq, train);
        self.receiver.on_train(seq, train, |ack| {
            observer.acknowledged(number, &ack);
            queue_ack(ack, delay, acks_in_flight, acks_to_send);
        });
    }
}

/// Returns the delay of an ACK, where it is known when the ACK is sent.
fn ack_delay(reverse: &ReversePath, extra_rtt: Time) -> Option<Time> {
    match reverse {
        ReversePath::Delay(delay) => Some(*delay + extra_rtt),
        ReversePath::Trains(_) | ReversePath::Segments(_) => None,
    }
}

/// Puts an ACK in flight if its delay is known, else among those to send.
#[inline]
fn queue_ack(
    ack: Ack,
    delay: Option<Time>,
    acks_in_flight: &mut VecDeque<Ack>,
    acks_to_send: &mut VecDeque<Ack>,
) {
    match delay {
        Some(delay) => acks_in_flight.push_back(Ack {
            at: ack.at + delay,
            ..ack
        }),
        None => acks_to_send.push_back(ack),
    }
}

/// Removes and returns the next ACK if it is due.
#[inline]
fn pop_due(acks: &mut VecDeque<Ack>, now: Time) -> Option<Ack> {
    acks.front().filter(|ack| ack.at <= now)?;
    acks.pop_front()
}
