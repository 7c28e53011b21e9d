// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that relays split: legs in series, each TCP over a path of its own, and between two
//! legs a relay that holds a bounded number of packets.
//!
//! ```text
//! source ── leg 0 ── relay 0 ── leg 1 ── relay 1 ── leg 2 ── sink
//! ```
//!
//! What a leg's receiver has in order, the relay writes to the next leg at once. A leg may send as long as
//! the relay behind it has room for all that is not acknowledged there; that room became free is known
//! to the sender a way back later, as a window update tells it. One leg alone is a plain simulation.

use super::{
    receiver::Ack,
    sender::Sender,
    simulation::{FlowSettings, Path, Simulation, Watch},
};
use longhaul_units::Time;
use std::{cmp::Reverse, collections::BinaryHeap};

/// One stretch of the way of all connections.
pub struct Leg {
    /// The way of this leg.
    pub path: Path,
    /// A connection each, in the same order on every leg. What their senders have to send
    /// ([`Settings::packets`](super::sender::Settings::packets)) counts on the first leg only.
    pub flows: Vec<FlowSettings>,
    /// Packets that each connection may have in the relay behind this leg, those under way to it and
    /// those that the next leg sent and does not know to have arrived included. Not for the last leg.
    pub store: u64,
}

/// Legs in series.
pub struct Chain {
    legs: Vec<Simulation<Progress>>,
    relays: Vec<Relay>,
    /// By connection.
    sinks: Vec<Sink>,
    agenda: BinaryHeap<Reverse<Event>>,
}

/// Between leg `n` and leg `n + 1`.
struct Relay {
    /// How long it takes the leg before to know that there is room.
    way_back: Vec<Time>,
    store: u64,
}

/// What is known of one connection, in packets.
struct Sink {
    /// To be sent by the source; `u64::MAX` never ends.
    total: u64,
    delivered: u64,
    finished: Option<Time>,
    /// By leg: written to its sender so far.
    written: Vec<u64>,
    /// By leg: what its sender may send for what came from before.
    arrived: Vec<u64>,
    /// By leg: likewise for the room behind.
    room: Vec<u64>,
}

/// Something that a relay learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: Time,
    leg: usize,
    flow: usize,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// So many packets of the leg are with its receiver, in order.
    Arrived(u64),
    /// So many may be sent on the leg.
    Room(u64),
}

/// What a leg's ends see, until somebody takes it.
#[derive(Debug, Default)]
struct Progress {
    /// By flow: first packet missing at the receiver, and unacknowledged at the sender.
    arrived: Vec<u64>,
    freed: Vec<u64>,
    /// Growth of the first: when, which flow, to what.
    arrivals: Vec<(Time, usize, u64)>,
    /// Growth of the second.
    releases: Vec<(Time, usize, u64)>,
}

impl Watch for Progress {
    fn acknowledged(&mut self, flow: usize, ack: &Ack) {
        if ack.una > self.arrived[flow] {
            self.arrived[flow] = ack.una;
            self.arrivals.push((ack.at, flow, ack.una));
        }
    }

    fn ack_arrived(&mut self, flow: usize, ack: &Ack) {
        if ack.una > self.freed[flow] {
            self.freed[flow] = ack.una;
            self.releases.push((ack.at, flow, ack.una));
        }
    }
}

impl Progress {
    fn of(flows: usize) -> Self {
        Self {
            arrived: vec![0; flows],
            freed: vec![0; flows],
            ..Self::default()
        }
    }
}

impl Chain {
    /// Legs that nothing was sent over, at time zero.
    ///
    /// # Panics
    /// If there is no leg, or if legs have different numbers of connections.
    #[must_use]
    pub fn new(legs: Vec<Leg>) -> Self {
        let flows = legs.first().expect("a way has a leg").flows.len();
        assert!(legs.iter().all(|leg| leg.flows.len() == flows));
        let count = legs.len();
        let relays = legs[..count - 1].iter().map(Relay::behind).collect();
        let total = |flow: &FlowSettings| flow.sender.packets.unwrap_or(u64::MAX);
        let stores: Vec<u64> = legs.iter().map(|leg| leg.store).collect();
        let sinks = legs[0]
            .flows
            .iter()
            .map(|flow| Sink::new(total(flow), &stores));
        let mut chain = Self {
            sinks: sinks.collect(),
            relays,
            legs: legs.into_iter().map(|leg| leg.begin(count > 1)).collect(),
            agenda: BinaryHeap::new(),
        };
        if count > 1 {
            (0..flows).for_each(|flow| chain.grant(0, flow));
        }
        chain
    }

    /// Lets everything happen that happens by `end`.
    pub fn run_until(&mut self, end: Time) {
        while let Some(at) = self.next_event().filter(|at| *at <= end) {
            if self.relays.is_empty() {
                break;
            }
            self.advance(at);
        }
        self.advance(end);
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Time {
        self.legs[0].now()
    }

    /// How many legs there are.
    #[must_use]
    pub fn legs(&self) -> usize {
        self.legs.len()
    }

    /// The sender of connection `flow` on leg `leg`.
    pub fn sender(&mut self, leg: usize, flow: usize) -> &mut Sender {
        self.legs[leg].sender(flow)
    }

    /// Packets of a connection that the receiver of leg `leg` has, in order; of the last leg, that
    /// arrived at the sink.
    pub fn arrived(&mut self, leg: usize, flow: usize) -> u64 {
        match leg + 1 == self.legs.len() {
            true => self.sinks[flow].delivered,
            false => self.sinks[flow].arrived[leg + 1],
        }
    }

    /// When the last packet of a connection that ends came to its sink.
    #[must_use]
    pub fn finished_at(&self, flow: usize) -> Option<Time> {
        self.sinks[flow].finished
    }

    /// The source of a connection has no more to send.
    pub fn stop(&mut self, flow: usize) {
        self.sinks[flow].total = self.legs[0].sender(flow).stop();
    }

    fn next_event(&self) -> Option<Time> {
        let legs = self.legs.iter().map(Simulation::next_event).min();
        let relays = self.agenda.peek().map(|Reverse(event)| event.at);
        legs.into_iter()
            .chain(relays)
            .min()
            .filter(|at| *at < Time::MAX)
    }

    fn advance(&mut self, now: Time) {
        for leg in 0..self.legs.len() {
            self.legs[leg].run_until(now);
            self.hear(leg);
        }
        while let Some(Reverse(event)) = self.agenda.peek().copied().filter(|e| e.0.at <= now) {
            self.agenda.pop();
            self.learn(event);
        }
    }

    /// Puts down what the ends of a leg saw; what arrives is told before its time.
    fn hear(&mut self, leg: usize) {
        let watch = self.legs[leg].watch();
        let arrivals = watch.arrivals.drain(..);
        let arrived = |(at, flow, packets)| Event {
            at,
            leg,
            flow,
            what: What::Arrived(packets),
        };
        self.agenda.extend(arrivals.map(arrived).map(Reverse));
        let releases = watch.releases.drain(..);
        let Some(before) = leg.checked_sub(1) else {
            return releases.for_each(drop);
        };
        let relay = &self.relays[before];
        let room = |(at, flow, packets): (Time, usize, u64)| Event {
            at: at + relay.way_back[flow],
            leg: before,
            flow,
            what: What::Room(packets.saturating_add(relay.store)),
        };
        self.agenda.extend(releases.map(room).map(Reverse));
    }

    fn learn(&mut self, event: Event) {
        let Event {
            at,
            leg,
            flow,
            what,
        } = event;
        let sink = &mut self.sinks[flow];
        match what {
            What::Arrived(packets) if leg + 1 == self.legs.len() => {
                sink.delivered = packets;
                if packets >= sink.total {
                    sink.finished.get_or_insert(at);
                }
            }
            What::Arrived(packets) => {
                sink.arrived[leg + 1] = packets;
                self.grant(leg + 1, flow);
            }
            What::Room(packets) => {
                sink.room[leg] = packets;
                self.grant(leg, flow);
            }
        }
    }

    /// Writes to a leg's sender what it may send now.
    fn grant(&mut self, leg: usize, flow: usize) {
        let sink = &mut self.sinks[flow];
        let came = if leg == 0 {
            sink.total
        } else {
            sink.arrived[leg]
        };
        let may = came.min(sink.room[leg]);
        let more = may.saturating_sub(sink.written[leg]);
        if more > 0 {
            sink.written[leg] = may;
            self.legs[leg].write(flow, more);
        }
    }
}

impl Leg {
    fn begin(mut self, relayed: bool) -> Simulation<Progress> {
        if relayed {
            // All that it sends is written later.
            for flow in &mut self.flows {
                flow.sender.packets = Some(0);
            }
        }
        let watch = Progress::of(self.flows.len());
        Simulation::watched(self.path, self.flows, watch)
    }
}

impl Relay {
    fn behind(leg: &Leg) -> Self {
        let back = leg.path.back.delay;
        Self {
            way_back: leg.flows.iter().map(|flow| back + flow.extra_rtt).collect(),
            store: leg.store,
        }
    }
}

impl Sink {
    fn new(total: u64, stores: &[u64]) -> Self {
        let legs = stores.len();
        let mut room = stores.to_vec();
        room[legs - 1] = u64::MAX;
        Self {
            total,
            delivered: 0,
            finished: None,
            written: vec![0; legs],
            arrived: vec![0; legs],
            room,
        }
    }
}
