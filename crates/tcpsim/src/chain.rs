// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections split by relays: legs in series, each a TCP connection over its own path, joined by relays with
//! bounded buffers.
//!
//! ```text
//! source ── leg 0 ── relay 0 ── leg 1 ── relay 1 ── leg 2 ── sink
//! ```
//!
//! A relay writes to the next leg at once what the receiver of the previous leg has in order. The sender of a
//! leg may send while the relay behind the leg has room for all packets that the next leg has not acknowledged.
//! The sender learns of freed room one reverse-path delay later, as from a window update. A chain of one leg is
//! a plain simulation.

use super::{
    receiver::Ack,
    sender::Sender,
    simulation::{Drops, FlowConfig, Observer, Path, Simulation},
};
use longhaul_units::Time;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

/// Hop of the chain: a path, and a connection of each flow over it.
pub struct Leg {
    /// Path of this leg.
    pub path: Path,
    /// A TCP connection for each flow, in the same order on every leg.
    /// [`SenderConfig::packets`](super::sender::SenderConfig::packets) counts on the first leg only: later legs send
    /// what relays write to them.
    pub flows: Vec<FlowConfig>,
    /// Buffer of the relay behind this leg for each connection, in packets. Packets in flight to the relay
    /// count. Packets that the next leg sent count until it knows that they arrived. Unused on the last leg.
    pub relay_buffer: u64,
}

/// Legs in series with relays between them.
pub struct Chain {
    legs: Vec<Simulation<Progress>>,
    relays: Vec<Relay>,
    connections: Vec<Connection>,
    events: BinaryHeap<Reverse<Event>>,
}

/// Relay between leg `n` and leg `n + 1`.
struct Relay {
    /// Delay of a window update to the sender of leg `n`, for each connection.
    window_update_delay: Vec<Time>,
    /// Buffer for each connection, in packets.
    buffer: u64,
}

/// Progress of one connection over all legs, in packets.
struct Connection {
    /// Packets that the source sends; `u64::MAX` never ends.
    total: u64,
    /// Packets that the sink has, in order.
    delivered: u64,
    /// Advances of `delivered` that were reported before their time: time and new value.
    arriving: VecDeque<(Time, u64)>,
    /// Arrival of the last packet at the sink.
    finished_at: Option<Time>,
    /// Packets written to the sender of each leg.
    written: Vec<u64>,
    /// Packets that the previous leg delivered to each leg's sender. Unused on the first leg.
    available: Vec<u64>,
    /// Packets of each leg for which the relay behind it has room, in total.
    room: Vec<u64>,
}

/// Change at a relay: packets arrived over a leg, or a leg may send more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: Time,
    leg: usize,
    flow: usize,
    kind: EventKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EventKind {
    /// Packets that the receiver of the leg has in order, in total.
    Arrived(u64),
    /// Packets that the relay behind the leg has room for, in total.
    Room(u64),
}

/// Progress of one leg as its two ends see it, kept until the chain collects it.
#[derive(Debug, Default)]
struct Progress {
    /// First packet missing at the receiver, for each flow.
    received: Vec<u64>,
    /// First packet unacknowledged at the sender, for each flow. Empty on the first leg: no relay waits for room there.
    acked: Vec<u64>,
    /// Advances of `received`: time, flow and new value.
    arrivals: Vec<(Time, usize, u64)>,
    /// Advances of `acked`: time, flow and new value.
    acks: Vec<(Time, usize, u64)>,
}

impl Observer for Progress {
    fn acknowledged(&mut self, flow: usize, ack: &Ack) {
        if ack.una > self.received[flow] {
            self.received[flow] = ack.una;
            self.arrivals.push((ack.at, flow, ack.una));
        }
    }

    fn ack_arrived(&mut self, flow: usize, ack: &Ack) {
        if let Some(acked) = self.acked.get_mut(flow)
            && ack.una > *acked
        {
            *acked = ack.una;
            self.acks.push((ack.at, flow, ack.una));
        }
    }
}

impl Progress {
    fn new(flows: usize, is_first_leg: bool) -> Self {
        Self {
            received: vec![0; flows],
            acked: if is_first_leg {
                Vec::new()
            } else {
                vec![0; flows]
            },
            ..Self::default()
        }
    }
}

impl Chain {
    /// Creates a chain at time zero over which nothing was sent.
    ///
    /// # Panics
    /// If there is no leg, or if legs have different numbers of connections.
    #[must_use]
    pub fn new(legs: Vec<Leg>) -> Self {
        let flows = legs
            .first()
            .expect("a chain has at least one leg")
            .flows
            .len();
        assert!(legs.iter().all(|leg| leg.flows.len() == flows));
        let count = legs.len();
        let relays = legs[..count - 1].iter().map(Relay::after).collect();
        let total = |flow: &FlowConfig| flow.sender.packets.unwrap_or(u64::MAX);
        let buffers: Vec<u64> = legs.iter().map(|leg| leg.relay_buffer).collect();
        let connections = legs[0]
            .flows
            .iter()
            .map(|flow| Connection::new(total(flow), &buffers));
        let mut chain = Self {
            connections: connections.collect(),
            relays,
            legs: legs
                .into_iter()
                .enumerate()
                .map(|(number, leg)| leg.into_simulation(number, count > 1))
                .collect(),
            events: BinaryHeap::new(),
        };
        if count > 1 {
            (0..flows).for_each(|flow| chain.write_available(0, flow));
        }
        chain
    }

    /// Runs all events up to and including `end`.
    pub fn run_until(&mut self, end: Time) {
        while let Some(at) = self.next_event().filter(|at| *at <= end) {
            if self.relays.is_empty() {
                break;
            }
            self.advance(at);
        }
        self.advance(end);
    }

    /// Returns the simulated time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.legs[0].now()
    }

    /// Returns the number of legs.
    #[must_use]
    pub fn legs(&self) -> usize {
        self.legs.len()
    }

    /// Returns the sender of connection `flow` on leg `leg`.
    pub fn sender(&mut self, leg: usize, flow: usize) -> &mut Sender {
        self.legs[leg].sender(flow)
    }

    /// Returns the packets of a connection that the receiver of leg `leg` has in order. The sink is the
    /// receiver of the last leg.
    pub fn delivered(&mut self, leg: usize, flow: usize) -> u64 {
        if leg + 1 == self.legs.len() {
            self.connections[flow].delivered
        } else {
            self.connections[flow].available[leg + 1]
        }
    }

    /// Returns the time at which the last packet of a finite connection reached its sink.
    #[must_use]
    pub fn finished_at(&self, flow: usize) -> Option<Time> {
        self.connections[flow].finished_at
    }

    /// Returns the data packets dropped so far on a leg.
    #[must_use]
    pub fn drops(&self, leg: usize) -> Drops {
        self.legs[leg].drops()
    }

    /// Stops the source of a connection after the packets that it has sent.
    pub fn stop(&mut self, flow: usize) {
        self.connections[flow].total = self.legs[0].sender(flow).stop();
    }

    fn next_event(&self) -> Option<Time> {
        let legs = self.legs.iter().map(Simulation::next_event).min();
        let relays = self.events.peek().map(|Reverse(event)| event.at);
        legs.into_iter()
            .chain(relays)
            .min()
            .filter(|at| *at < Time::MAX)
    }

    fn advance(&mut self, now: Time) {
        for leg in 0..self.legs.len() {
            self.legs[leg].run_until(now);
            self.collect_events(leg);
        }
        while let Some(Reverse(event)) = self.events.peek().copied().filter(|e| e.0.at <= now) {
            self.events.pop();
            self.apply(event);
        }
        for connection in &mut self.connections {
            connection.deliver_until(now);
        }
    }

    /// Queues an event for each advance that the two ends of a leg saw. An arrival may be reported before its
    /// time.
    fn collect_events(&mut self, leg: usize) {
        let is_last = leg + 1 == self.legs.len();
        let progress = self.legs[leg].observer_mut();
        let arrivals = progress.arrivals.drain(..);
        if is_last {
            for (at, flow, packets) in arrivals {
                self.connections[flow].arriving.push_back((at, packets));
            }
        } else {
            self.events.extend(arrivals.map(|(at, flow, packets)| {
                Reverse(Event {
                    at,
                    leg,
                    flow,
                    kind: EventKind::Arrived(packets),
                })
            }));
        }
        let Some(previous) = leg.checked_sub(1) else {
            return;
        };
        let relay = &self.relays[previous];
        let room = |(at, flow, packets): (Time, usize, u64)| Event {
            at: at + relay.window_update_delay[flow],
            leg: previous,
            flow,
            kind: EventKind::Room(packets.saturating_add(relay.buffer)),
        };
        let acks = progress.acks.drain(..);
        self.events.extend(acks.map(room).map(Reverse));
    }

    fn apply(&mut self, event: Event) {
        let Event {
            leg, flow, kind, ..
        } = event;
        let connection = &mut self.connections[flow];
        match kind {
            EventKind::Arrived(packets) => {
                connection.available[leg + 1] = packets;
                self.write_available(leg + 1, flow);
            }
            EventKind::Room(packets) => {
                connection.room[leg] = packets;
                self.write_available(leg, flow);
            }
        }
    }

    /// Writes to the sender of a leg the packets that it can send now.
    fn write_available(&mut self, leg: usize, flow: usize) {
        let connection = &mut self.connections[flow];
        let available = match leg {
            0 => connection.total,
            _ => connection.available[leg],
        };
        let end = available.min(connection.room[leg]);
        let more = end.saturating_sub(connection.written[leg]);
        if more > 0 {
            connection.written[leg] = end;
            self.legs[leg].write(flow, more);
        }
    }
}

impl Leg {
    fn into_simulation(mut self, number: usize, relayed: bool) -> Simulation<Progress> {
        if relayed {
            // Senders get their packets from `Chain::write_available`.
            for flow in &mut self.flows {
                flow.sender.packets = Some(0);
            }
        }
        let progress = Progress::new(self.flows.len(), number == 0);
        Simulation::with_observer(self.path, self.flows, progress)
    }
}

impl Relay {
    fn after(leg: &Leg) -> Self {
        let back = leg.path.reverse.delay;
        let delay = |flow: &FlowConfig| back + flow.extra_rtt;
        Self {
            window_update_delay: leg.flows.iter().map(delay).collect(),
            buffer: leg.relay_buffer,
        }
    }
}

impl Connection {
    fn new(total: u64, buffers: &[u64]) -> Self {
        let legs = buffers.len();
        let mut room = buffers.to_vec();
        room[legs - 1] = u64::MAX;
        Self {
            total,
            delivered: 0,
            arriving: VecDeque::new(),
            finished_at: None,
            written: vec![0; legs],
            available: vec![0; legs],
            room,
        }
    }
    /// Counts what has arrived at the sink by `now`.
    fn deliver_until(&mut self, now: Time) {
        while let Some(&(at, packets)) = self.arriving.front().filter(|(at, _)| *at <= now) {
            self.arriving.pop_front();
            self.delivered = packets;
            if packets >= self.total {
                self.finished_at.get_or_insert(at);
            }
        }
    }
}
