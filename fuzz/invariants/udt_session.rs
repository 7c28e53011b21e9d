// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks two UDT endpoints under any sequence of events from the network, from third parties and from both programs.
//!
//! - Each program reads a prefix of the bytes that the other one wrote.
//! - A third party changes no state, and receives no more bytes than it sends.
//! - No endpoint loops without time passing.
//!
//! The input is a script of byte pairs. The low four bits of the first byte select the event, the fifth bit selects the endpoint.
//! The second byte is the amount.

use longhaul_udt::{
    CloseReason, Config, Counts, Endpoint, Event, Seq,
    congestion::{Bbr, Control, Native},
};
use longhaul_units::Time;
use std::net::SocketAddr;

/// Packets that each endpoint buffers.
const WINDOW: u32 = 32;
/// Maximum datagrams that an endpoint sends without time passing: a window, its retransmissions and a few replies.
const BURST_MAX: usize = 4 * WINDOW as usize + 4200;
/// Maximum bytes that a program reads at once: more than the endpoints buffer.
const READ_LEN_MAX: usize = 1 << 16;
/// Maximum datagrams in flight to an endpoint, and maximum delivered datagrams that are recorded for replay.
const DATAGRAMS_MAX: usize = 256;

type UdtEndpoint = Endpoint<fn(Seq, u32) -> Box<dyn Control>, Box<dyn FnMut() -> u32>>;

/// Simulation of two endpoints and the network between them.
struct Simulation {
    now: Time,
    endpoints: [UdtEndpoint; 2],
    ids: [Option<u32>; 2],
    /// Datagrams towards each endpoint.
    in_flight: [Vec<Vec<u8>>; 2],
    delivered: Vec<(usize, Vec<u8>)>,
    /// Bytes that each program wrote, and bytes that each read.
    written: [u64; 2],
    read: [u64; 2],
    /// Buffer of the programs' reads, allocated once, because a drained connection is read thousands of times.
    read_buffer: Vec<u8>,
    /// Whether a forged datagram came from the peer's address: nothing is asserted about the data after that.
    forged: bool,
    /// Bytes that third parties sent and received.
    third_party_bytes: (usize, usize),
}

pub(crate) fn check(input: &[u8]) {
    let Some((first, script)) = input.split_first() else {
        return;
    };
    let mut simulation = Simulation::new(first & 1 == 1);
    if first & 2 == 2 {
        simulation.open();
    }
    let mut rest = script;
    while let [event, amount, more @ ..] = rest {
        let used = simulation.apply(*event, *amount, more);
        rest = &more[used..];
    }
    simulation.drain();
}

fn address(end: usize) -> SocketAddr {
    ([10, 0, 0, end as u8], 9000).into()
}

fn third_party() -> SocketAddr {
    address(9)
}

fn native(first: Seq, window: u32) -> Box<dyn Control> {
    Box::new(Native::new(first, window, 1))
}

fn bbr(first: Seq, window: u32) -> Box<dyn Control> {
    Box::new(Bbr::new(first, window, 1))
}

fn new_endpoint(control: fn(Seq, u32) -> Box<dyn Control>, seed: u32) -> UdtEndpoint {
    let config = Config {
        mss: 576,
        send_packets: WINDOW,
        receive_packets: WINDOW,
        ..Config::default()
    };
    let mut state = seed;
    let random = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.rotate_left(13)
    };
    Endpoint::new(config, control, Box::new(random))
}

/// The byte at offset `at` of the stream that `end` writes.
fn byte(end: usize, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ end as u8
}

impl Simulation {
    fn new(with_bbr: bool) -> Self {
        let control = if with_bbr { bbr } else { native };
        let mut endpoints = [new_endpoint(control, 1), new_endpoint(control, 2)];
        endpoints[1].listen();
        let id = endpoints[0].connect(address(1), Time::ZERO);
        Self {
            now: Time::ZERO,
            endpoints,
            ids: [id, None],
            in_flight: [Vec::new(), Vec::new()],
            delivered: Vec::new(),
            written: [0; 2],
            read: [0; 2],
            read_buffer: vec![0; READ_LEN_MAX],
            forged: false,
            third_party_bytes: (0, 0),
        }
    }

    /// Opens the connection without losses.
    fn open(&mut self) {
        for _ in 0..4 {
            for end in 0..2 {
                self.transmit(end);
                self.deliver_all(1 - end);
            }
        }
        assert!(
            self.ids[1].is_some(),
            "the connection opens on a path without losses"
        );
    }

    /// Applies one event of the script. Returns how many of the bytes after it belong to it.
    fn apply(&mut self, event: u8, amount: u8, more: &[u8]) -> usize {
        let (end, number) = (usize::from(event >> 4 & 1), usize::from(amount));
        let len = number.min(more.len());
        match event & 15 {
            0 => self.advance_time(Time::from_millis(number as u64)),
            1 => self.advance_time(Time::from_secs(number as u64)),
            2 => self.write(end, number * 16),
            3 => self.read(end, number * 16),
            4 | 5 => self.transmit(end),
            6 => self.deliver(end, number),
            7 => self.deliver_all(end),
            8 => drop(self.remove_in_flight(end, number)),
            9 => self.duplicate(end, number),
            10 => self.replay(number),
            11 => self.close(end),
            12 => {
                self.forge(end, &more[..len]);
                return len;
            }
            13 => {
                self.spoof(end, &more[..len]);
                return len;
            }
            14 => self.spoof_in_flight(end, number),
            _ => self.damage(end, number),
        }
        0
    }

    fn advance_time(&mut self, time: Time) {
        self.now += time;
    }

    fn write(&mut self, end: usize, len: usize) {
        let from = self.written[end];
        let bytes: Vec<u8> = (from..from + len as u64).map(|at| byte(end, at)).collect();
        let Some(id) = self.ids[end] else {
            return;
        };
        if let Some(connection) = self.endpoints[end].connection(id) {
            let written = connection.write(&bytes);
            assert!(written <= len && connection.send_buffer_free() <= WINDOW);
            self.written[end] += written as u64;
        }
        self.endpoints[end].wake(id);
    }

    fn read(&mut self, end: usize, len: usize) {
        let Some(id) = self.ids[end] else {
            return;
        };
        let mut bytes = std::mem::take(&mut self.read_buffer);
        if let Some(connection) = self.endpoints[end].connection(id) {
            let read = connection.read(&mut bytes[..len]);
            self.check_read(end, &bytes[..read]);
        }
        self.read_buffer = bytes;
        self.endpoints[end].wake(id);
    }

    fn check_read(&mut self, end: usize, bytes: &[u8]) {
        let from = self.read[end];
        self.read[end] += bytes.len() as u64;
        if self.forged {
            return;
        }
        assert!(
            self.read[end] <= self.written[1 - end],
            "more bytes were read than written"
        );
        for (at, received) in (from..).zip(bytes) {
            assert_eq!(*received, byte(1 - end, at), "at {at}");
        }
    }

    /// Transmits all datagrams that an endpoint has to send now.
    fn transmit(&mut self, end: usize) {
        let mut datagram = Vec::new();
        for count in 0.. {
            assert!(count < BURST_MAX, "too many datagrams at once");
            datagram.clear();
            let Some(to) = self.endpoints[end].transmit(self.now, &mut datagram) else {
                break;
            };
            assert!(
                datagram.len() <= 576 - 28,
                "a datagram is longer than the negotiated size"
            );
            self.send(end, to, &datagram);
        }
        let deadline = self.endpoints[end].deadline();
        assert!(
            deadline.is_none_or(|deadline| deadline > self.now),
            "the deadline does not lie in the future"
        );
        self.record_accepted(end);
    }

    fn send(&mut self, end: usize, to: SocketAddr, datagram: &[u8]) {
        if to == third_party() {
            self.third_party_bytes.1 += datagram.len();
            assert!(
                self.third_party_bytes.1 <= self.third_party_bytes.0,
                "amplification to a third party"
            );
        } else if to == address(1 - end) {
            if self.in_flight[1 - end].len() < DATAGRAMS_MAX {
                self.in_flight[1 - end].push(datagram.to_vec());
            }
        } else {
            panic!("datagram to {to}");
        }
    }

    /// Records the ID of the first accepted connection. A forged handshake can open others.
    fn record_accepted(&mut self, end: usize) {
        while let Some(event) = self.endpoints[end].poll_event() {
            if let Event::Accepted(id) = event {
                assert_eq!(end, 1, "only endpoint 1 listens");
                self.ids[end].get_or_insert(id);
            }
        }
    }

    fn remove_in_flight(&mut self, end: usize, number: usize) -> Option<Vec<u8>> {
        let all = &mut self.in_flight[end];
        let at = number.checked_rem(all.len())?;
        Some(all.remove(at))
    }

    fn deliver(&mut self, end: usize, number: usize) {
        if let Some(datagram) = self.remove_in_flight(end, number) {
            self.handle(end, &datagram);
            if self.delivered.len() < DATAGRAMS_MAX {
                self.delivered.push((end, datagram));
            }
        }
    }

    fn deliver_all(&mut self, end: usize) {
        while !self.in_flight[end].is_empty() {
            self.deliver(end, 0);
        }
    }

    fn handle(&mut self, end: usize, datagram: &[u8]) {
        self.endpoints[end].handle(datagram, address(1 - end), self.now);
        self.record_accepted(end);
    }

    fn duplicate(&mut self, end: usize, number: usize) {
        if let Some(datagram) = self.remove_in_flight(end, number) {
            self.in_flight[end].extend([datagram.clone(), datagram]);
        }
    }

    fn replay(&mut self, number: usize) {
        if let Some(at) = number.checked_rem(self.delivered.len()) {
            let (end, datagram) = self.delivered[at].clone();
            self.handle(end, &datagram);
        }
    }

    fn close(&mut self, end: usize) {
        let id = self.ids[end].unwrap_or(0);
        if let Some(connection) = self.endpoints[end].connection(id) {
            connection.close();
        }
        self.endpoints[end].wake(id);
    }

    /// Delivers arbitrary bytes from the peer's address, with the connection's ID.
    fn forge(&mut self, end: usize, bytes: &[u8]) {
        self.forged = true;
        self.handle(end, &self.with_id(end, bytes));
    }

    fn damage(&mut self, end: usize, number: usize) {
        self.forged = true;
        if let Some(mut datagram) = self.remove_in_flight(end, number) {
            let at = number % datagram.len();
            datagram[at] ^= 1 << (number % 8);
            self.handle(end, &datagram);
        }
    }

    /// Delivers arbitrary bytes from a third party's address, with the connection's ID: nothing may change.
    fn spoof(&mut self, end: usize, bytes: &[u8]) {
        let before = self.observed_state(end);
        let datagram = self.with_id(end, bytes);
        self.third_party_bytes.0 += datagram.len();
        self.endpoints[end].handle(&datagram, third_party(), self.now);
        assert_eq!(self.observed_state(end), before);
    }

    fn spoof_in_flight(&mut self, end: usize, number: usize) {
        if let Some(datagram) = self.remove_in_flight(end, number) {
            self.spoof(end, &datagram);
        }
    }

    /// Inserts the connection's ID into the header, unless the header has destination 0.
    fn with_id(&self, end: usize, bytes: &[u8]) -> Vec<u8> {
        let mut datagram = bytes.to_vec();
        let id = self.ids[end].unwrap_or(0).to_be_bytes();
        if let Some(to) = datagram.get_mut(12..16).filter(|to| *to != [0; 4]) {
            to.copy_from_slice(&id);
        }
        datagram
    }

    /// Returns the state of a connection that a program can observe.
    fn observed_state(
        &mut self,
        end: usize,
    ) -> Option<(Option<CloseReason>, Counts, u32, bool, bool)> {
        let connection = self.endpoints[end].connection(self.ids[end]?)?;
        let (can_read, is_flushed) = (connection.can_read(), connection.is_flushed());
        Some((
            connection.close_reason(),
            connection.counts(),
            connection.send_buffer_free(),
            can_read,
            is_flushed,
        ))
    }

    /// Runs on a path without losses. All data arrives unless a datagram was forged or a connection was closed.
    fn drain(&mut self) {
        for _ in 0..20_000 {
            self.advance_time(Time::from_millis(10));
            for end in 0..2 {
                self.transmit(end);
                self.deliver_all(1 - end);
                self.read(end, READ_LEN_MAX);
            }
            if self.is_all_read() {
                return;
            }
        }
        let ends = [0, 1].map(|end| self.observed_state(end));
        let open = ends.iter().all(|state| matches!(state, Some((None, ..))));
        assert!(self.forged || !open, "the transfer stalls: {ends:?}");
    }

    fn is_all_read(&self) -> bool {
        self.read == [self.written[1], self.written[0]]
    }
}
