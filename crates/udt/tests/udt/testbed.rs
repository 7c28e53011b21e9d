// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two endpoints, connected by two emulated lines in simulated time.
#![allow(dead_code, reason = "each test binary uses its own part")]

use longhaul_netem::{Delivered, Event, Line, LinkConfig, Schedule, Segment, Setting};
use longhaul_udt::{
    Config, ConnectOutcome, Connection, Connector, ControlFactory, HandshakeOutcome, Listener, Seq,
    congestion::{Bbr, Control, Native},
    packet::{Ack, Body, LossReport, Packet, handshake::Handshake},
};
use longhaul_units::Time;
use std::{
    collections::{HashMap, hash_map::Entry},
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

/// Length of the IP and UDP headers, which a line counts too.
const HEADERS: u32 = 28;

/// Emulated line that carries datagrams.
pub(crate) struct Wire {
    pub(crate) line: Line,
    datagrams: HashMap<u64, (Vec<u8>, u32, Time)>,
    count: u64,
    pub(crate) arrived: Vec<Vec<u8>>,
    pub(crate) free: Vec<Vec<u8>>,
    events: Vec<Event>,
    pub(crate) lost: u64,
    /// Number of datagrams that arrived, and the sum of their delays.
    pub(crate) delays: (u64, Time),
}

impl Wire {
    pub(crate) fn new(settings: &[(&str, &str)], changes: &[&str], seed: u64) -> Self {
        let mut config = LinkConfig::default();
        for (key, value) in settings {
            config.apply(Setting::parse(key, value).unwrap());
        }
        config.check().unwrap();
        let mut schedule = Schedule::default();
        changes
            .iter()
            .for_each(|change| schedule.add_text(change).unwrap());
        Self {
            line: Line::new(config, schedule, seed, Time::ZERO),
            datagrams: HashMap::new(),
            count: 0,
            arrived: Vec::new(),
            free: Vec::new(),
            events: Vec::new(),
            lost: 0,
            delays: (0, Time::ZERO),
        }
    }

    /// Returns an empty buffer for a datagram.
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
        self.with_line(now, |line, events| {
            line.offer(now, segment, None, &mut |event| events.push(event));
        });
    }

    pub(crate) fn poll(&mut self, now: Time) {
        self.with_line(now, |line, events| {
            line.poll(now, &mut |event| events.push(event));
        });
    }

    fn with_line(&mut self, now: Time, act: impl FnOnce(&mut Line, &mut Vec<Event>)) {
        let mut events = std::mem::take(&mut self.events);
        act(&mut self.line, &mut events);
        events
            .drain(..)
            .for_each(|event| self.handle_event(event, now));
        self.events = events;
    }

    fn handle_event(&mut self, event: Event, now: Time) {
        match event {
            Event::Duplicate(segment) => {
                self.datagrams.get_mut(&segment.packet).unwrap().1 += 1;
            }
            Event::Deliver(Delivered {
                segment, corrupt, ..
            }) => {
                // The UDP checksum detects a wrong bit.
                match corrupt {
                    None => self.deliver(segment.packet, now),
                    Some(_) => {
                        self.lost += 1;
                        self.discard(segment.packet);
                    }
                }
            }
            Event::Drop { segment, .. } => {
                self.lost += 1;
                self.discard(segment.packet);
            }
            Event::Verdict(_) => {}
        }
    }

    fn deliver(&mut self, packet: u64, now: Time) {
        let Entry::Occupied(mut sent) = self.datagrams.entry(packet) else {
            panic!("{packet} was never sent");
        };
        self.delays.0 += 1;
        self.delays.1 += now.since(sent.get().2);
        self.arrived.push(match sent.get().1 {
            1 => sent.remove().0,
            _ => {
                sent.get_mut().1 -= 1;
                sent.get().0.clone()
            }
        });
    }

    fn discard(&mut self, packet: u64) {
        let (_, copies, _) = self.datagrams.get_mut(&packet).unwrap();
        *copies -= 1;
        if *copies == 0
            && let Some((datagram, ..)) = self.datagrams.remove(&packet)
        {
            self.free.push(datagram);
        }
    }
}

/// Both endpoints of a connection and the lines between them.
pub(crate) struct Bed {
    pub(crate) now: Time,
    pub(crate) ends: [Connection; 2],
    /// Line from the first endpoint to the second, and line back.
    pub(crate) wires: [Wire; 2],
    /// Time of the last timer check of the second endpoint if it behaves as UDT4: it checks timers when a packet
    /// comes, and each 100 ms.
    pub(crate) timers_checked_at: Option<Time>,
    /// Sequence number after the highest packet that reached the second endpoint.
    pub(crate) next_expected: Seq,
}

/// Interval of UDT4's timer checks while no packet comes (queue.cpp, `CRcvQueue::worker`).
const UDT4_TIMER_INTERVAL: Time = Time::from_millis(100);

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

/// Opens a connection whose first endpoint starts with sequence number `first`.
pub(crate) fn open(config: Config, first: Seq, control: ControlFactory<'_>) -> [Connection; 2] {
    open_as(config, first, control, [11, 22], Time::ZERO)
}

/// Opens a connection whose endpoints have these IDs.
pub(crate) fn open_as(
    config: Config,
    first: Seq,
    control: ControlFactory<'_>,
    [own, other]: [u32; 2],
    now: Time,
) -> [Connection; 2] {
    let mut connector = Connector::to_listener(config, address(2).ip(), own, first, now);
    let listener = Listener::new(config, KEY);
    let (mut request, mut reply) = (Vec::new(), Vec::new());
    let mut accepted = None;
    loop {
        request.clear();
        reply.clear();
        assert!(connector.transmit(now, &mut request));
        match listener.handle(&request, address(1), other, now, control, &mut reply) {
            HandshakeOutcome::Established(connection) => accepted = Some(connection),
            HandshakeOutcome::Reply => {}
            HandshakeOutcome::Ignored => panic!("no reply"),
        }
        let packet = Packet::read(&reply).unwrap();
        match connector.handle(&packet, now, control) {
            ConnectOutcome::Established(connection) => return [*connection, *accepted.unwrap()],
            ConnectOutcome::Pending => {}
            ConnectOutcome::Refused(code) => panic!("{code}"),
        }
    }
}

impl Bed {
    /// Creates a bed with the same settings in both directions and the native control.
    pub(crate) fn new(config: Config, settings: &[(&str, &str)], changes: &[&str]) -> Self {
        Self::starting_at(config, Seq::new(1000), settings, changes)
    }

    /// Creates a bed with this congestion control.
    pub(crate) fn with_control(
        control: ControlFactory<'_>,
        settings: &[(&str, &str)],
        changes: &[&str],
    ) -> Self {
        Self {
            ends: open(config(), Seq::new(1000), control),
            ..Self::new(config(), settings, changes)
        }
    }

    pub(crate) fn starting_at(
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
            timers_checked_at: None,
            next_expected: first,
        }
    }

    /// Transmits all due datagrams of both endpoints. Then advances the time to the next event, but not beyond
    /// `until`, and delivers.
    pub(crate) fn step(&mut self, until: Time) {
        for end in 0..2 {
            if self.skips_timers(end) {
                continue;
            }
            loop {
                let mut datagram = self.wires[end].buffer();
                if !self.ends[end].transmit(self.now, &mut datagram) {
                    self.wires[end].free.push(datagram);
                    let next = self.ends[end].deadline();
                    assert!(
                        next.is_none_or(|next| next > self.now),
                        "the deadline does not lie in the future"
                    );
                    break;
                }
                if self.sends_as_udt4(end, &datagram) {
                    self.wires[end].send(self.now, datagram);
                } else {
                    self.wires[end].free.push(datagram);
                }
            }
        }
        let deadlines = [self.ends[0].deadline(), self.second_deadline()].into_iter();
        let lines = self.wires.iter_mut().map(|wire| wire.line.next_deadline());
        let next = deadlines.chain(lines).flatten().min().unwrap_or(until);
        // A deadline in the past belongs to a packet that waits for another event.
        let next = next.max(self.now + Time::from_nanos(1)).min(until);
        self.now = next;
        for (wire, end) in [(0, 1), (1, 0)] {
            self.wires[wire].poll(self.now);
            for datagram in std::mem::take(&mut self.wires[wire].arrived) {
                let packet = self.as_udt4(end, Packet::read(&datagram).unwrap());
                self.ends[end].handle(&packet, self.now);
                if let (1, Body::Data(data)) = (end, packet.body) {
                    self.report_as_udt4(data.seq);
                }
                self.wires[wire].free.push(datagram);
                if end == 1 {
                    self.timers_checked_at = self.timers_checked_at.map(|_| self.now);
                }
            }
        }
    }

    /// Whether the second endpoint sends this datagram as it is. UDT4's loss reports replace its own.
    fn sends_as_udt4(&self, end: usize, datagram: &[u8]) -> bool {
        let is_report = matches!(
            Packet::read(datagram).map(|packet| packet.body),
            Some(Body::Nak(_))
        );
        end == 0 || self.timers_checked_at.is_none() || !is_report
    }

    /// Reports the packets that are missing before this one as UDT4 does: at once, and never again (core.cpp,
    /// `CUDT::processData` and `CUDT::checkTimers`).
    fn report_as_udt4(&mut self, seq: Seq) {
        let expected = self.next_expected;
        if seq.is_before(expected) {
            return;
        }
        self.next_expected = seq.plus(1);
        if self.timers_checked_at.is_some() && seq != expected {
            let mut losses = Vec::new();
            LossReport::encode([(expected, seq.minus(1))], 100, &mut losses);
            let report = Packet {
                timestamp_us: 0,
                destination: self.ends[0].id(),
                body: Body::Nak(LossReport::from_encoded(&losses)),
            };
            let mut datagram = self.wires[1].buffer();
            report.write(&mut datagram);
            self.wires[1].send(self.now, datagram);
        }
    }

    /// Returns a packet as UDT4 would have sent it: its reply to a probe has no cookie, and its ACK no count.
    fn as_udt4<'a>(&self, to: usize, packet: Packet<'a>) -> Packet<'a> {
        match packet.body {
            Body::Handshake(answer) if to == 0 && self.timers_checked_at.is_some() => Packet {
                body: Body::Handshake(Handshake {
                    cookie: 0,
                    ..answer
                }),
                ..packet
            },
            Body::Ack(ack) if to == 0 && self.timers_checked_at.is_some() => Packet {
                body: Body::Ack(Ack {
                    out_of_order: None,
                    ..ack
                }),
                ..packet
            },
            _ => packet,
        }
    }

    /// Whether an endpoint does not check its timers now.
    fn skips_timers(&mut self, end: usize) -> bool {
        let Some(timers_checked_at) = self.timers_checked_at.filter(|_| end == 1) else {
            return false;
        };
        if self.now >= timers_checked_at + UDT4_TIMER_INTERVAL {
            self.timers_checked_at = Some(self.now);
        }
        self.timers_checked_at != Some(self.now)
    }

    fn second_deadline(&self) -> Option<Time> {
        match self.timers_checked_at {
            Some(timers_checked_at) => Some(timers_checked_at + UDT4_TIMER_INTERVAL),
            None => self.ends[1].deadline(),
        }
    }

    /// Sends a stream until `until`, and passes what arrives to `take` with its offset. `source` fills a buffer for
    /// an offset and returns how many bytes it has. Returns the bytes written and read.
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
                let accepted = self.ends[0].write(&buffer[..length]);
                assert_eq!(accepted, length);
                written += accepted as u64;
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

/// Returns the byte of the test stream at an offset. Neighbouring bytes differ.
pub(crate) fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Returns a source of the first `end` bytes of the test stream.
pub(crate) fn bytes_up_to(end: u64) -> impl FnMut(u64, &mut [u8]) -> usize {
    move |at, to| {
        let length = to.len().min((end - at) as usize);
        for (offset, to) in to[..length].iter_mut().enumerate() {
            *to = byte(at + offset as u64);
        }
        length
    }
}

/// Asserts that these are the bytes of the test stream at an offset.
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
