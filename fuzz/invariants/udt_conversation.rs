// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two ports of UDT and everything that a network, its strangers and two programs may do to them: what is read is what was written, up to
//! a point; who is not the other end changes nothing and gets no more bytes than it sends; nothing turns in a circle.
//!
//! The input is a script of pairs: what happens (low four bits; the fifth says at which end) and how much.

use longhaul_udt::{
    Config, Counts, End, Endpoint, Event, Seq,
    congestion::{Bbr, Control, Native},
};
use longhaul_units::Time;
use std::net::SocketAddr;

/// Packets that either end holds.
const WINDOW: u32 = 32;
/// Datagrams that a port may send without time passing: a window, what is missing of it, a few answers.
const AT_ONCE: usize = 4 * WINDOW as usize + 4200;
/// Datagrams under way and remembered, at most.
const UNDER_WAY: usize = 256;

type Port = Endpoint<fn(Seq, u32) -> Box<dyn Control>, Box<dyn FnMut() -> u32>>;

struct Talk {
    now: Time,
    ports: [Port; 2],
    names: [Option<u32>; 2],
    /// Towards each end.
    under_way: [Vec<Vec<u8>>; 2],
    gone: Vec<(usize, Vec<u8>)>,
    /// By each end.
    written: [u64; 2],
    read: [u64; 2],
    /// Somebody was taken for the other end, and may have said anything.
    forged: bool,
    /// What strangers sent and got, in bytes.
    strange: (usize, usize),
}

pub(crate) fn check(input: &[u8]) {
    let Some((first, script)) = input.split_first() else {
        return;
    };
    let mut talk = Talk::new(first & 1 == 1);
    if first & 2 == 2 {
        talk.open();
    }
    let mut rest = script;
    while let [what, how_much, more @ ..] = rest {
        let taken = talk.happens(*what, *how_much, more);
        rest = &more[taken..];
    }
    talk.hear_the_rest();
}

fn address(end: usize) -> SocketAddr {
    ([10, 0, 0, end as u8], 9000).into()
}

fn stranger() -> SocketAddr {
    address(9)
}

fn native(first: Seq, window: u32) -> Box<dyn Control> {
    Box::new(Native::new(first, window, 1))
}

fn bbr(first: Seq, window: u32) -> Box<dyn Control> {
    Box::new(Bbr::new(first, window, 1))
}

fn port(control: fn(Seq, u32) -> Box<dyn Control>, seed: u32) -> Port {
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

/// The byte of each stream at a place.
fn byte(end: usize, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ end as u8
}

impl Talk {
    fn new(with_bbr: bool) -> Self {
        let control = if with_bbr { bbr } else { native };
        let mut ports = [port(control, 1), port(control, 2)];
        ports[1].listen();
        let name = ports[0].connect(address(1), Time::ZERO);
        Self {
            now: Time::ZERO,
            ports,
            names: [name, None],
            under_way: [Vec::new(), Vec::new()],
            gone: Vec::new(),
            written: [0; 2],
            read: [0; 2],
            forged: false,
            strange: (0, 0),
        }
    }

    /// Without losses.
    fn open(&mut self) {
        for _ in 0..4 {
            for end in 0..2 {
                self.transmit(end);
                self.deliver_all(1 - end);
            }
        }
        assert!(self.names[1].is_some(), "a path that loses nothing");
    }

    /// One thing of the script, and how much of what follows belongs to it.
    fn happens(&mut self, what: u8, how_much: u8, more: &[u8]) -> usize {
        let (end, number) = (usize::from(what >> 4 & 1), usize::from(how_much));
        let len = number.min(more.len());
        match what & 15 {
            0 => self.pass(Time::from_millis(number as u64)),
            1 => self.pass(Time::from_secs(number as u64)),
            2 => self.write(end, number * 16),
            3 => self.read(end, number * 16),
            4 | 5 => self.transmit(end),
            6 => self.deliver(end, number),
            7 => self.deliver_all(end),
            8 => drop(self.take(end, number)),
            9 => self.double(end, number),
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
            14 => self.spoof_what_is_under_way(end, number),
            _ => self.damage(end, number),
        }
        0
    }

    fn pass(&mut self, time: Time) {
        self.now += time;
    }

    fn write(&mut self, end: usize, len: usize) {
        let from = self.written[end];
        let bytes: Vec<u8> = (from..from + len as u64).map(|at| byte(end, at)).collect();
        let Some(name) = self.names[end] else {
            return;
        };
        if let Some(connection) = self.ports[end].connection(name) {
            let written = connection.write(&bytes);
            assert!(written <= len && connection.room() <= WINDOW);
            self.written[end] += written as u64;
        }
        self.ports[end].wake(name);
    }

    fn read(&mut self, end: usize, len: usize) {
        let mut bytes = vec![0; len];
        let Some(name) = self.names[end] else {
            return;
        };
        if let Some(connection) = self.ports[end].connection(name) {
            let read = connection.read(&mut bytes);
            self.came(end, &bytes[..read]);
        }
        self.ports[end].wake(name);
    }

    fn came(&mut self, end: usize, bytes: &[u8]) {
        let from = self.read[end];
        self.read[end] += bytes.len() as u64;
        if self.forged {
            return;
        }
        assert!(
            self.read[end] <= self.written[1 - end],
            "more than was written"
        );
        for (at, came) in (from..).zip(bytes) {
            assert_eq!(*came, byte(1 - end, at), "at {at}");
        }
    }

    /// All that a port has to say now.
    fn transmit(&mut self, end: usize) {
        let mut datagram = Vec::new();
        for count in 0.. {
            assert!(count < AT_ONCE, "it says too much");
            datagram.clear();
            let Some(to) = self.ports[end].transmit(self.now, &mut datagram) else {
                break;
            };
            assert!(datagram.len() <= 576 - 28, "longer than was agreed");
            self.send(end, to, &datagram);
        }
        let deadline = self.ports[end].deadline();
        assert!(
            deadline.is_none_or(|deadline| deadline > self.now),
            "it turns in a circle"
        );
        self.learn(end);
    }

    fn send(&mut self, end: usize, to: SocketAddr, datagram: &[u8]) {
        if to == stranger() {
            self.strange.1 += datagram.len();
            assert!(self.strange.1 <= self.strange.0, "it amplifies");
        } else if to == address(1 - end) {
            if self.under_way[1 - end].len() < UNDER_WAY {
                self.under_way[1 - end].push(datagram.to_vec());
            }
        } else {
            panic!("it talks to {to}");
        }
    }

    /// The name of a connection that was accepted; whoever forges can open others.
    fn learn(&mut self, end: usize) {
        while let Some(event) = self.ports[end].event() {
            if let Event::Accepted(name) = event {
                assert_eq!(end, 1, "only that one listens");
                self.names[end].get_or_insert(name);
            }
        }
    }

    fn take(&mut self, end: usize, number: usize) -> Option<Vec<u8>> {
        let all = &mut self.under_way[end];
        let at = number.checked_rem(all.len())?;
        Some(all.remove(at))
    }

    fn deliver(&mut self, end: usize, number: usize) {
        if let Some(datagram) = self.take(end, number) {
            self.handle(end, &datagram);
            if self.gone.len() < UNDER_WAY {
                self.gone.push((end, datagram));
            }
        }
    }

    fn deliver_all(&mut self, end: usize) {
        while !self.under_way[end].is_empty() {
            self.deliver(end, 0);
        }
    }

    fn handle(&mut self, end: usize, datagram: &[u8]) {
        self.ports[end].handle(datagram, address(1 - end), self.now);
        self.learn(end);
    }

    fn double(&mut self, end: usize, number: usize) {
        if let Some(datagram) = self.take(end, number) {
            self.under_way[end].extend([datagram.clone(), datagram]);
        }
    }

    fn replay(&mut self, number: usize) {
        if let Some(at) = number.checked_rem(self.gone.len()) {
            let (end, datagram) = self.gone[at].clone();
            self.handle(end, &datagram);
        }
    }

    fn close(&mut self, end: usize) {
        let name = self.names[end].unwrap_or(0);
        if let Some(connection) = self.ports[end].connection(name) {
            connection.close();
        }
        self.ports[end].wake(name);
    }

    /// From the right address, maybe with the right name: the network itself lies.
    fn forge(&mut self, end: usize, bytes: &[u8]) {
        self.forged = true;
        self.handle(end, &self.named(end, bytes));
    }

    fn damage(&mut self, end: usize, number: usize) {
        self.forged = true;
        if let Some(mut datagram) = self.take(end, number) {
            let at = number % datagram.len();
            datagram[at] ^= 1 << (number % 8);
            self.handle(end, &datagram);
        }
    }

    /// From elsewhere, with the right name.
    fn spoof(&mut self, end: usize, bytes: &[u8]) {
        let before = self.seen(end);
        let datagram = self.named(end, bytes);
        self.strange.0 += datagram.len();
        self.ports[end].handle(&datagram, stranger(), self.now);
        assert_eq!(self.seen(end), before);
    }

    fn spoof_what_is_under_way(&mut self, end: usize, number: usize) {
        if let Some(datagram) = self.take(end, number) {
            self.spoof(end, &datagram);
        }
    }

    /// With the connection's name where it belongs, unless it is to be for none.
    fn named(&self, end: usize, bytes: &[u8]) -> Vec<u8> {
        let mut datagram = bytes.to_vec();
        let name = self.names[end].unwrap_or(0).to_be_bytes();
        if let Some(to) = datagram.get_mut(12..16).filter(|to| *to != [0; 4]) {
            to.copy_from_slice(&name);
        }
        datagram
    }

    /// What can be seen of a connection.
    fn seen(&mut self, end: usize) -> Option<(Option<End>, Counts, u32, bool, bool)> {
        let connection = self.ports[end].connection(self.names[end]?)?;
        let (can_read, is_flushed) = (connection.can_read(), connection.is_flushed());
        Some((
            connection.end(),
            connection.counts(),
            connection.room(),
            can_read,
            is_flushed,
        ))
    }

    /// On a path that loses nothing any more all arrives, if nobody lied and nothing was closed meanwhile.
    fn hear_the_rest(&mut self) {
        for _ in 0..20_000 {
            self.pass(Time::from_millis(10));
            for end in 0..2 {
                self.transmit(end);
                self.deliver_all(1 - end);
                self.read(end, 1 << 16);
            }
            if self.all_is_read() {
                return;
            }
        }
        let ends = [0, 1].map(|end| self.seen(end));
        let open = ends.iter().all(|seen| matches!(seen, Some((None, ..))));
        assert!(self.forged || !open, "it hangs: {ends:?}");
    }

    fn all_is_read(&self) -> bool {
        self.read == [self.written[1], self.written[0]]
    }
}
