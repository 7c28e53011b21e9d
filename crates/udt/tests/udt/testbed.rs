// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two ends with two emulated lines between them, under simulated time.
#![allow(dead_code, reason = "each test binary uses its own part")]

use longhaul_netem::{Delivered, Event, Line, LinkConfig, Schedule, Segment, Setting};
use longhaul_udt::{
    Config, ConnectOutcome, Connection, Connector, ControlFactory, HandshakeOutcome, Listener, Seq,
    congestion::{Bbr, Control, Native},
    packet::{Body, Packet, handshake::Handshake},
};
use longhaul_units::Time;
use std::{
    collections::{HashMap, hash_map::Entry},
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

/// Headers of IP and UDP, which a line counts, too.
const HEADERS: u32 = 28;

/// A line that carries datagrams.
pub(crate) struct Wire {
    pub(crate) line: Line,
    datagrams: HashMap<u64, (Vec<u8>, u32, Time)>,
    count: u64,
    pub(crate) arrived: Vec<Vec<u8>>,
    pub(crate) free: Vec<Vec<u8>>,
    events: Vec<Event>,
    pub(crate) lost: u64,
    /// Datagrams that arrived, and what they took in all.
    pub(crate) taken: (u64, Time),
}

impl Wire {
    pub(crate) fn new(settings: &[(&str, &str)], changes: &[&str], seed: u64) -> Self {
        let mut shape = LinkConfig::default();
        for (key, value) in settings {
            shape.apply(Setting::parse(key, value).unwrap());
        }
        shape.check().unwrap();
        let mut schedule = Schedule::default();
        changes
            .iter()
            .for_each(|change| schedule.add_text(change).unwrap());
        Self {
            line: Line::new(shape, schedule, seed, Time::ZERO),
            datagrams: HashMap::new(),
            count: 0,
            arrived: Vec::new(),
            free: Vec::new(),
            events: Vec::new(),
            lost: 0,
            taken: (0, Time::ZERO),
        }
    }

    /// A buffer for another datagram.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.free.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    pub(crate) fn send(&mut self, now: Time, datagram: Vec<u8>) {
        let segment = Segment {
            packet: self.count,
            index: 0,
            last: true,
            len: datagram.len() as u32 + HEADERS,
        };
        self.datagrams.insert(self.count, (datagram, 1, now));
        self.count += 1;
        self.with(now, |line, events| {
            line.offer(now, segment, None, &mut |event| events.push(event));
        });
    }

    pub(crate) fn poll(&mut self, now: Time) {
        self.with(now, |line, events| {
            line.poll(now, &mut |event| events.push(event));
        });
    }

    fn with(&mut self, now: Time, act: impl FnOnce(&mut Line, &mut Vec<Event>)) {
        let mut events = std::mem::take(&mut self.events);
        act(&mut self.line, &mut events);
        events.drain(..).for_each(|event| self.take(event, now));
        self.events = events;
    }

    fn take(&mut self, event: Event, now: Time) {
        match event {
            Event::Copy(segment) => {
                self.datagrams.get_mut(&segment.packet).unwrap().1 += 1;
            }
            Event::Deliver(Delivered {
                segment, corrupt, ..
            }) => {
                // A wrong bit is one that UDP's sum finds.
                match corrupt {
                    None => self.deliver(segment.packet, now),
                    Some(_) => {
                        self.lost += 1;
                        self.forget(segment.packet);
                    }
                }
            }
            Event::Drop { segment, .. } => {
                self.lost += 1;
                self.forget(segment.packet);
            }
            Event::Verdict(_) => {}
        }
    }

    fn deliver(&mut self, packet: u64, now: Time) {
        let Entry::Occupied(mut sent) = self.datagrams.entry(packet) else {
            panic!("{packet} was never sent");
        };
        self.taken.0 += 1;
        self.taken.1 += now.since(sent.get().2);
        self.arrived.push(match sent.get().1 {
            1 => sent.remove().0,
            _ => {
                sent.get_mut().1 -= 1;
                sent.get().0.clone()
            }
        });
    }

    fn forget(&mut self, packet: u64) {
        let (_, copies, _) = self.datagrams.get_mut(&packet).unwrap();
        *copies -= 1;
        if *copies == 0
            && let Some((datagram, ..)) = self.datagrams.remove(&packet)
        {
            self.free.push(datagram);
        }
    }
}

/// Both ends of a connection, and what lies between them.
pub(crate) struct Bed {
    pub(crate) now: Time,
    pub(crate) ends: [Connection; 2],
    /// From the first end to the second, and back.
    pub(crate) wires: [Wire; 2],
    /// When the second end last looked at its timers, if it is like UDT4's: it does so when a packet comes, and each 100 ms.
    pub(crate) looked: Option<Time>,
    /// The newest packet that the second end has reported missing.
    pub(crate) reported: Option<Seq>,
}

/// How often UDT4 looks at its timers if nothing comes (queue.cpp, `CRcvQueue::worker`).
const LOOK: Time = Time::from_millis(100);

pub(crate) const KEY: [u8; 32] = [7; 32];

pub(crate) fn address(number: u8) -> SocketAddr {
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)), 9000).into()
}

pub(crate) fn native(first: Seq, window: u32) -> Box<dyn Control> {
    Box::new(Native::new(first, window, 1))
}

pub(crate) fn bbr(first: Seq, window: u32) -> Box<dyn Control> {
    Box::new(Bbr::new(first, window, 1))
}

pub(crate) fn config() -> Config {
    Config::default()
}

/// A connection that one end asks the other for, at the first of its packets.
pub(crate) fn open(config: Config, first: Seq, control: ControlFactory<'_>) -> [Connection; 2] {
    open_as(config, first, control, [11, 22], Time::ZERO)
}

/// One whose ends have these names.
pub(crate) fn open_as(
    config: Config,
    first: Seq,
    control: ControlFactory<'_>,
    [own, other]: [u32; 2],
    now: Time,
) -> [Connection; 2] {
    let mut opening = Connector::to_listener(config, address(2).ip(), own, first, now);
    let listener = Listener::new(config, KEY);
    let (mut asked, mut answer) = (Vec::new(), Vec::new());
    let mut accepted = None;
    loop {
        asked.clear();
        answer.clear();
        assert!(opening.transmit(now, &mut asked));
        match listener.handle(&asked, address(1), other, now, control, &mut answer) {
            HandshakeOutcome::Established(connection) => accepted = Some(connection),
            HandshakeOutcome::Reply => {}
            HandshakeOutcome::Ignored => panic!("no answer"),
        }
        let packet = Packet::read(&answer).unwrap();
        match opening.handle(&packet, now, control) {
            ConnectOutcome::Established(connection) => return [*connection, *accepted.unwrap()],
            ConnectOutcome::Pending => {}
            ConnectOutcome::Refused(code) => panic!("{code}"),
        }
    }
}

impl Bed {
    /// The same settings in both directions.
    pub(crate) fn new(config: Config, settings: &[(&str, &str)], changes: &[&str]) -> Self {
        Self::beginning(config, Seq::new(1000), settings, changes)
    }

    /// With another rate control.
    pub(crate) fn controlled(
        control: ControlFactory<'_>,
        settings: &[(&str, &str)],
        changes: &[&str],
    ) -> Self {
        Self {
            ends: open(config(), Seq::new(1000), control),
            ..Self::new(config(), settings, changes)
        }
    }

    pub(crate) fn beginning(
        config: Config,
        first: Seq,
        settings: &[(&str, &str)],
        changes: &[&str],
    ) -> Self {
        Self {
            now: Time::ZERO,
            ends: open(config, first, &native),
            wires: [
                Wire::new(settings, changes, 1),
                Wire::new(settings, changes, 2),
            ],
            looked: None,
            reported: None,
        }
    }

    /// Lets both ends say what they have to say, and time go on to whatever happens next, but not beyond `until`.
    pub(crate) fn step(&mut self, until: Time) {
        for end in 0..2 {
            if self.sleeps(end) {
                continue;
            }
            loop {
                let mut datagram = self.wires[end].buffer();
                if !self.ends[end].transmit(self.now, &mut datagram) {
                    self.wires[end].free.push(datagram);
                    let next = self.ends[end].deadline();
                    assert!(
                        next.is_none_or(|next| next > self.now),
                        "it turns in a circle"
                    );
                    break;
                }
                match self.is_said(end, &datagram) {
                    true => self.wires[end].send(self.now, datagram),
                    false => self.wires[end].free.push(datagram),
                }
            }
        }
        let deadlines = [self.ends[0].deadline(), self.second_deadline()].into_iter();
        let lines = self.wires.iter_mut().map(|wire| wire.line.next_deadline());
        let next = deadlines.chain(lines).flatten().min().unwrap_or(until);
        // Whoever wants to go on at once has something to say that waits for something else.
        let next = next.max(self.now + Time::from_nanos(1)).min(until);
        self.now = next;
        for (wire, end) in [(0, 1), (1, 0)] {
            self.wires[wire].poll(self.now);
            for datagram in std::mem::take(&mut self.wires[wire].arrived) {
                let packet = self.said(end, Packet::read(&datagram).unwrap());
                self.ends[end].handle(&packet, self.now);
                self.wires[wire].free.push(datagram);
                if end == 1 {
                    self.looked = self.looked.map(|_| self.now);
                }
            }
        }
    }

    /// Whether UDT4 would say that: it reports a loss once (core.cpp, `CUDT::checkTimers`).
    fn is_said(&mut self, end: usize, datagram: &[u8]) -> bool {
        let Some(Body::Nak(losses)) = Packet::read(datagram).map(|packet| packet.body) else {
            return true;
        };
        if end == 0 || self.looked.is_none() {
            return true;
        }
        let newest = losses.runs().map(|(_, last)| last).last();
        let is_new = |last| self.reported.is_none_or(|before| before.is_before(last));
        let is_said = newest.is_some_and(is_new);
        self.reported = newest.filter(|_| is_said).or(self.reported);
        is_said
    }

    /// A packet for an end, as UDT4 would have said it: an answer to a probe has no cookie.
    fn said<'a>(&self, to: usize, packet: Packet<'a>) -> Packet<'a> {
        match packet.body {
            Body::Handshake(answer) if to == 0 && self.looked.is_some() => Packet {
                body: Body::Handshake(Handshake {
                    cookie: 0,
                    ..answer
                }),
                ..packet
            },
            _ => packet,
        }
    }

    /// Whether an end does not look at its timers now.
    fn sleeps(&mut self, end: usize) -> bool {
        let Some(looked) = self.looked.filter(|_| end == 1) else {
            return false;
        };
        if self.now >= looked + LOOK {
            self.looked = Some(self.now);
        }
        self.looked != Some(self.now)
    }

    fn second_deadline(&self) -> Option<Time> {
        match self.looked {
            Some(looked) => Some(looked + LOOK),
            None => self.ends[1].deadline(),
        }
    }

    /// Sends what `next` has of a stream, and gives what arrives to `take`, for so long. `next` fills a buffer and says how much
    /// it has.
    pub(crate) fn stream(
        &mut self,
        until: Time,
        mut source: impl FnMut(u64, &mut [u8]) -> usize,
        mut take: impl FnMut(u64, &[u8]),
    ) -> (u64, u64) {
        let (mut written, mut read) = (0_u64, 0_u64);
        let mut buffer = vec![0; 64 << 10];
        while self.now < until {
            while self.ends[0].send_buffer_free() >= 64 {
                let length = source(written, &mut buffer);
                let taken = self.ends[0].write(&buffer[..length]);
                assert_eq!(taken, length);
                written += taken as u64;
                if length == 0 {
                    break;
                }
            }
            self.step(until);
            loop {
                let length = self.ends[1].read(&mut buffer);
                if length == 0 {
                    break;
                }
                take(read, &buffer[..length]);
                read += length as u64;
            }
        }
        (written, read)
    }
}

/// The byte of a stream at a place, none of which is near another like it.
pub(crate) fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// So many bytes of it.
pub(crate) fn bytes_up_to(end: u64) -> impl FnMut(u64, &mut [u8]) -> usize {
    move |at, to| {
        let length = to.len().min((end - at) as usize);
        for (offset, to) in to[..length].iter_mut().enumerate() {
            *to = byte(at + offset as u64);
        }
        length
    }
}

/// Whether these are its bytes.
pub(crate) fn assert_bytes(at: u64, bytes: &[u8]) {
    for (offset, found) in bytes.iter().enumerate() {
        assert_eq!(
            *found,
            byte(at + offset as u64),
            "at {}",
            at + offset as u64
        );
    }
}
