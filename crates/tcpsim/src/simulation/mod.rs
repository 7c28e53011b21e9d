// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many flows over one shared path, under simulated time.
//!
//! ```text
//! sender ─┐                                                   ┌─ receiver
//! sender ─┼─ forth: loss ─ queue ─ transmitter ─ delay ───────┼─ receiver
//!         └─────────────── delay ─ back (ACKs) ───────────────┘
//! ```
//!
//! Where the way forth moves trains, what becomes of a train is known as it is sent, and so are its
//! ACKs: one event a super-packet and ACK, in order of time over all flows. A run depends on nothing
//! but its settings and seed. A [`Watch`] sees what a tap at each end would.

mod agenda;
mod way;

use super::{
    congestion_control::CongestionControl,
    receiver::{Ack, AckPolicy, Receiver},
    sender::{Sender, Settings},
};
use agenda::Agenda;
use longhaul_netem::{Departure, Schedule, Shape, Train};
use longhaul_units::Time;
use std::collections::VecDeque;
use way::{Back, Drops, Forth};

/// The path that all flows share.
#[derive(Debug, Clone, Default)]
pub struct Path {
    /// Settings from senders to receivers, with the bottleneck.
    pub forth: Shape,
    /// Settings of the ACKs' way.
    pub back: Shape,
    /// What changes later on the way forth; a change takes segments instead of trains.
    pub forth_changes: Schedule,
    /// Likewise on the way back.
    pub back_changes: Schedule,
    /// Every random decision follows from this.
    pub seed: u64,
    /// Segment by segment, whatever the settings: slow, for comparison.
    pub exact: bool,
}

/// One flow.
pub struct FlowSettings {
    /// When its SYN is sent.
    pub start: Time,
    /// Round trip beside that of the shared path.
    pub extra_rtt: Time,
    /// Its sender.
    pub sender: Settings,
    /// Its receiver.
    pub acks: AckPolicy,
    /// Its congestion control.
    pub control: Box<dyn CongestionControl>,
}

/// Watches the two ends of a path, as a tap at each would: sees what each end of each flow sends and gets. Packets are
/// counted from 0. The calls of one end of a flow are in order of their times, but what happens at the receiver may be
/// told before its time: a train's fate is known as it is sent. `()` watches nothing and costs nothing.
pub trait Watch {
    /// The SYN was sent at `syn`; the ACK that ends the handshake is sent now.
    fn established(&mut self, _now: Time, _flow: usize, _syn: Time) {}

    /// The sender sends `count` packets from `first` on as one super-packet.
    fn sent(&mut self, _now: Time, _flow: usize, _first: u64, _count: u32) {}

    /// Packets from `first` on come to the receiver.
    fn arrived(&mut self, _flow: usize, _first: u64, _train: &Departure) {}

    /// The receiver sends an ACK, at `ack.at`.
    fn acknowledged(&mut self, _flow: usize, _ack: &Ack) {}

    /// An ACK comes to the sender, at `ack.at`.
    fn ack_arrived(&mut self, _flow: usize, _ack: &Ack) {}
}

impl Watch for () {}

/// IPv4 and TCP headers with time stamps.
const HEADERS: u32 = 52;

/// Flows over a path, and who watches them.
pub struct Simulation<W = ()> {
    watch: W,
    now: Time,
    flows: Vec<Flow>,
    forth: Forth,
    back: Back,
    agenda: Agenda,
}

/// What a flow acts on.
struct Ends<'a, W> {
    /// Which flow it is.
    number: usize,
    forth: &'a mut Forth,
    back: &'a mut Back,
    watch: &'a mut W,
}

struct Flow {
    start: Time,
    handshake: Time,
    extra_rtt: Time,
    established: bool,
    mss: u32,
    sender: Sender,
    receiver: Receiver,
    /// ACKs that the receiver will send, and those on their way to the sender, in order of time.
    leaving: VecDeque<Ack>,
    arriving: VecDeque<Ack>,
}

impl Simulation {
    /// A path that nothing was sent over, at time zero.
    #[must_use]
    pub fn new(path: Path, flows: Vec<FlowSettings>) -> Self {
        Self::watched(path, flows, ())
    }
}

impl<W: Watch> Simulation<W> {
    /// Likewise, under the eyes of `watch`.
    #[must_use]
    pub fn watched(path: Path, flows: Vec<FlowSettings>, watch: W) -> Self {
        let round = path.forth.delay + path.back.delay;
        let flows: Vec<Flow> = flows
            .into_iter()
            .map(|flow| Flow::new(flow, round))
            .collect();
        let mut agenda = Agenda::new(flows.len() + 2);
        for (number, flow) in flows.iter().enumerate() {
            agenda.set(number, flow.start + flow.handshake);
        }
        Self {
            watch,
            now: Time::ZERO,
            flows,
            forth: Forth::new(path.forth, path.forth_changes, path.seed, path.exact),
            back: Back::new(path.back, path.back_changes, path.seed ^ 1),
            agenda,
        }
    }

    /// Lets everything happen that happens by `end`.
    pub fn run_until(&mut self, end: Time) {
        loop {
            let (at, actor) = self.agenda.next();
            if at > end {
                break;
            }
            self.now = at;
            match actor.checked_sub(self.flows.len()) {
                None => self.act(actor),
                Some(0) => self.arrive_forth(),
                Some(_) => self.arrive_back(),
            }
        }
        self.now = end;
    }

    /// When something happens next; [`Time::MAX`] is never.
    #[must_use]
    pub fn next_event(&self) -> Time {
        self.agenda.next().0
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// The sender of flow `number`, counted from 0.
    pub fn sender(&mut self, number: usize) -> &mut Sender {
        &mut self.flows[number].sender
    }

    /// The application of flow `number` has `packets` more to send, now. It is for flows whose
    /// [`Settings::packets`] has an end.
    pub fn write(&mut self, number: usize, packets: u64) {
        self.flows[number].sender.write(packets);
        let at = self.now.max(self.flows[number].established_at());
        self.agenda.set(number, at);
    }

    /// Who watched.
    pub fn watch(&mut self) -> &mut W {
        &mut self.watch
    }

    /// How many flows there are.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Whether every flow has sent all that it had.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.flows.iter().all(|flow| flow.sender.is_done())
    }

    /// Bytes that wait before the bottleneck.
    pub fn backlog_bytes(&mut self) -> u64 {
        self.forth.backlog_bytes(self.now)
    }

    /// Packets that the way forth lost.
    #[must_use]
    pub fn drops(&self) -> Drops {
        self.forth.drops
    }

    /// Whether the way forth moves trains.
    #[must_use]
    pub fn by_trains(&self) -> bool {
        self.forth.by_trains()
    }

    #[inline]
    fn act(&mut self, number: usize) {
        let flow = &mut self.flows[number];
        let mut ends = Ends {
            number,
            forth: &mut self.forth,
            back: &mut self.back,
            watch: &mut self.watch,
        };
        flow.act(self.now, &mut ends);
        let next = flow.next_deadline(self.now);
        self.agenda.set(number, next);
        self.plan_ways();
    }

    fn arrive_forth(&mut self) {
        let (flows, back, agenda) = (&mut self.flows, &self.back, &mut self.agenda);
        let (now, watch) = (self.now, &mut self.watch);
        self.forth.poll(now, |number, seq, train| {
            let flow = &mut flows[number];
            flow.receive(number, seq, train, back, watch);
            agenda.set(number, flow.next_deadline(now));
        });
        self.plan_ways();
    }

    fn arrive_back(&mut self) {
        let (flows, agenda, now) = (&mut self.flows, &mut self.agenda, self.now);
        if let Back::Segments(acks) = &mut self.back {
            acks.poll(now, |number, mut ack| {
                let flow = &mut flows[number];
                ack.at += flow.extra_rtt;
                flow.arriving.push_back(ack);
                agenda.set(number, flow.next_deadline(now));
            });
        }
        self.plan_ways();
    }

    fn plan_ways(&mut self) {
        let flows = self.flows.len();
        self.agenda.set(flows, self.forth.next_deadline());
        self.agenda.set(flows + 1, self.back.next_deadline());
    }
}

impl Flow {
    fn new(settings: FlowSettings, round: Time) -> Self {
        Self {
            start: settings.start,
            handshake: round + settings.extra_rtt,
            extra_rtt: settings.extra_rtt,
            established: false,
            mss: settings.sender.mss,
            sender: Sender::new(settings.sender, settings.control),
            receiver: Receiver::new(settings.acks),
            leaving: VecDeque::new(),
            arriving: VecDeque::new(),
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
        first(&self.arriving)
            .min(first(&self.leaving))
            .min(self.sender.next_deadline(now))
            .min(self.receiver.next_deadline())
    }

    /// Everything of this flow that is due.
    #[inline]
    fn act<W: Watch>(&mut self, now: Time, ends: &mut Ends<'_, W>) {
        if !self.established {
            self.established = true;
            ends.watch.established(now, ends.number, self.start);
            self.sender.establish(now, self.handshake);
        }
        self.release_acks(now, ends);
        while let Some(ack) = due(&mut self.arriving, now) {
            ends.watch.ack_arrived(ends.number, &ack);
            self.sender.on_ack(now, &ack);
            self.transmit(now, ends);
        }
        self.sender.on_time(now);
        self.transmit(now, ends);
    }

    /// ACKs whose time to be sent has come.
    #[inline]
    fn release_acks<W: Watch>(&mut self, now: Time, ends: &mut Ends<'_, W>) {
        let (delay, arriving, leaving) = (
            way_back(ends.back, self.extra_rtt),
            &mut self.arriving,
            &mut self.leaving,
        );
        self.receiver.on_time(now, &mut |ack| {
            ends.watch.acknowledged(ends.number, &ack);
            forward(ack, delay, arriving, leaving);
        });
        if let Back::Segments(line) = ends.back {
            while let Some(ack) = due(&mut self.leaving, now) {
                line.send(ends.number, self.mss, ack);
            }
        }
    }

    #[inline]
    fn transmit<W: Watch>(&mut self, now: Time, ends: &mut Ends<'_, W>) {
        let delay = way_back(ends.back, self.extra_rtt);
        let Self {
            sender,
            receiver,
            arriving,
            leaving,
            mss,
            ..
        } = self;
        let len = *mss + HEADERS;
        let (number, watch) = (ends.number, &mut *ends.watch);
        sender.transmit(now, |seq, count| {
            watch.sent(now, number, seq, count);
            let train = Train { count, len };
            ends.forth.send(now, number, seq, train, |seq, train| {
                watch.arrived(number, seq, train);
                receiver.on_train(seq, train, |ack| {
                    watch.acknowledged(number, &ack);
                    forward(ack, delay, arriving, leaving);
                });
            });
        });
    }

    fn receive<W: Watch>(
        &mut self,
        number: usize,
        seq: u64,
        train: &Departure,
        back: &Back,
        watch: &mut W,
    ) {
        let delay = way_back(back, self.extra_rtt);
        let (arriving, leaving) = (&mut self.arriving, &mut self.leaving);
        watch.arrived(number, seq, train);
        self.receiver.on_train(seq, train, |ack| {
            watch.acknowledged(number, &ack);
            forward(ack, delay, arriving, leaving);
        });
    }
}

/// How long an ACK travels, where that is known as it is sent.
fn way_back(back: &Back, extra_rtt: Time) -> Option<Time> {
    match back {
        Back::Delay(delay) => Some(*delay + extra_rtt),
        Back::Segments(_) => None,
    }
}

#[inline]
fn forward(
    ack: Ack,
    delay: Option<Time>,
    arriving: &mut VecDeque<Ack>,
    leaving: &mut VecDeque<Ack>,
) {
    match delay {
        Some(delay) => arriving.push_back(Ack {
            at: ack.at + delay,
            ..ack
        }),
        None => leaving.push_back(ack),
    }
}

/// The next ACK if its time has come.
#[inline]
fn due(acks: &mut VecDeque<Ack>, now: Time) -> Option<Ack> {
    acks.front().filter(|ack| ack.at <= now)?;
    acks.pop_front()
}
