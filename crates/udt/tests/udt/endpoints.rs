// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many connections over one port at either end, rendezvous, strangers, and what nobody answers.

use crate::testbed::{address, config, native};
use longhaul_udt::{CloseReason, Config, Endpoint, Event, Seq, congestion::Control};
use longhaul_units::Time;

type Port = Endpoint<fn(Seq, u32) -> Box<dyn Control>, Box<dyn FnMut() -> u32>>;

fn port(config: Config, seed: u32) -> Port {
    let mut state = seed;
    let random = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.rotate_left(13)
    };
    Endpoint::new(config, native, Box::new(random))
}

/// Two ports with a path between them that delays by 5 ms and loses one of `lost` datagrams.
/// Where a handshake says what the connection is to carry, and what it says.
const MODE: std::ops::Range<usize> = 20..24;
const STREAM: u32 = 1;
const MESSAGES: u32 = 2;

struct Between {
    now: Time,
    ports: [Port; 2],
    under_way: Vec<(Time, usize, Vec<u8>)>,
    count: u64,
    lost: u64,
    /// What the first end asks for, as a handshake says it.
    mode: u32,
    events: [Vec<Event>; 2],
}

impl Between {
    fn new(lost: u64) -> Self {
        Self {
            now: Time::ZERO,
            ports: [port(config(), 1), port(config(), 2)],
            under_way: Vec::new(),
            count: 0,
            lost,
            mode: STREAM,
            events: [Vec::new(), Vec::new()],
        }
    }

    /// A millisecond.
    fn tick(&mut self) {
        self.now += Time::from_millis(1);
        for from in 0..2 {
            loop {
                let mut datagram = Vec::new();
                let Some(to) = self.ports[from].transmit(self.now, &mut datagram) else {
                    break;
                };
                assert_eq!(to, address(2 - from as u8), "it goes to the other");
                self.count += 1;
                if from == 0 && datagram.starts_with(&[0x80, 0]) {
                    datagram[MODE].copy_from_slice(&self.mode.to_be_bytes());
                }
                if !self.loses() {
                    let at = self.now + Time::from_millis(5);
                    self.under_way.push((at, 1 - from, datagram));
                }
            }
        }
        let now = self.now;
        let (arrived, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.under_way)
            .into_iter()
            .partition(|(at, ..)| *at <= now);
        self.under_way = rest;
        for (_, to, datagram) in arrived {
            let from = address(2 - to as u8);
            self.ports[to].handle(&datagram, from, now);
        }
        for (port, events) in self.ports.iter_mut().zip(&mut self.events) {
            events.extend(std::iter::from_fn(|| port.poll_event()));
        }
    }

    /// As chance has it: of requests that are answered at once each second would be all answers.
    fn loses(&self) -> bool {
        let hash = self.count.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        hash.is_multiple_of(self.lost)
    }

    fn ticks(&mut self, count: u32) {
        (0..count).for_each(|_| self.tick());
    }
}

#[test]
fn many_connections_share_two_ports() {
    let mut between = Between::new(7);
    between.ports[1].listen();
    let ids: Vec<u32> = (0..20)
        .map(|_| between.ports[0].connect(address(2), between.now).unwrap())
        .collect();
    between.ticks(2000);
    let mut opened = between.events[0].clone();
    opened.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(opened.len(), 20);
    assert_eq!(between.events[1].len(), 20, "each was accepted once");
    for (number, id) in ids.iter().enumerate() {
        let connection = between.ports[0].connection(*id).unwrap();
        assert_eq!(connection.write(&[number as u8; 5000]), 5000);
        connection.close();
        between.ports[0].wake(*id);
    }
    between.ticks(4000);
    // Who forgets one says that it is gone, too.
    ids[..10].iter().for_each(|id| between.ports[0].remove(*id));
    between.ticks(16_000);
    let ended = |ids: &[u32], events: &[Event], how| {
        let ends = ids
            .iter()
            .filter(|id| events.contains(&Event::Closed(**id, how)));
        assert_eq!(ends.count(), 20, "{how:?}");
    };
    ended(&ids, &between.events[0], CloseReason::Local);
    let mut seen = Vec::new();
    let accepted = |event: &Event| match event {
        Event::Accepted(id) => Some(*id),
        _ => None,
    };
    let there: Vec<u32> = between.events[1].iter().filter_map(accepted).collect();
    ended(&there, &between.events[1], CloseReason::Remote);
    for id in there {
        let mut read = [0; 6000];
        let connection = between.ports[1].connection(id).unwrap();
        assert_eq!(connection.read(&mut read), 5000);
        assert!(read[..5000].iter().all(|byte| *byte == read[0]));
        seen.push(read[0]);
        between.ports[1].remove(id);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..20).collect::<Vec<u8>>());
}

#[test]
fn two_ends_meet_though_neither_listens() {
    for lost in [1000, 2, 3] {
        let mut between = Between::new(lost);
        let ids = [0, 1].map(|end| {
            let peer = address(2 - end as u8);
            between.ports[end].rendezvous(peer, between.now).unwrap()
        });
        between.ticks(5000);
        for (end, id) in ids.into_iter().enumerate() {
            assert_eq!(between.events[end], [Event::Connected(id)], "{lost}");
            let connection = between.ports[end].connection(id).unwrap();
            assert_eq!(connection.write(&[end as u8; 3000]), 3000);
            between.ports[end].wake(id);
        }
        between.ticks(20_000);
        for (end, id) in ids.into_iter().enumerate() {
            let connection = between.ports[end].connection(id).unwrap();
            let mut read = [0; 4000];
            assert_eq!(connection.read(&mut read), 3000, "{lost}");
            assert_eq!(read[..3000], [1 - end as u8; 3000]);
        }
    }
}

#[test]
fn another_mode_is_refused_and_silence_is_said() {
    let mut between = Between::new(1000);
    between.mode = MESSAGES;
    let unheard = between.ports[0].connect(address(2), between.now).unwrap();
    between.ticks(10_001);
    assert_eq!(between.events[0], [Event::TimedOut(unheard)]);
    between.events[0].clear();
    assert_eq!(between.ports[0].deadline(), None);
    between.ports[1].listen();
    let refused = between.ports[0].connect(address(2), between.now).unwrap();
    between.ticks(1000);
    assert_eq!(between.events[0], [Event::Refused(refused, 1002)]);
    assert_eq!(between.events[1], []);
}

/// Who does not bring the cookie back leaves nothing behind, and gets no more bytes than it sent.
#[test]
fn strangers_cost_nothing() {
    let mut listening = port(config(), 5);
    listening.listen();
    let mut asking = port(config(), 6);
    asking.connect(address(2), Time::ZERO).unwrap();
    let mut asked = Vec::new();
    asking.transmit(Time::ZERO, &mut asked).unwrap();
    for stranger in 3..200 {
        listening.handle(&asked, address(stranger), Time::ZERO);
        assert_eq!(listening.poll_event(), None);
        let mut answer = Vec::new();
        let to = listening.transmit(Time::ZERO, &mut answer);
        assert_eq!(to, Some(address(stranger)));
        assert!(answer.len() <= asked.len());
    }
    assert_eq!(listening.deadline(), None);
    let longer = [asked.as_slice(), &[0; 4]].concat();
    listening.handle(&longer, address(3), Time::ZERO);
    assert_eq!(listening.transmit(Time::ZERO, &mut Vec::new()), None);
}

#[test]
fn a_packet_from_elsewhere_is_nobody_s() {
    let mut between = Between::new(1000);
    between.ports[1].listen();
    let id = between.ports[0].connect(address(2), between.now).unwrap();
    between.ticks(100);
    let shutdown = longhaul_udt::packet::Packet {
        timestamp_us: 0,
        destination: id,
        body: longhaul_udt::packet::Body::Shutdown(None),
    };
    let mut datagram = Vec::new();
    shutdown.write(&mut datagram);
    between.ports[0].handle(&datagram, address(9), between.now);
    assert_eq!(
        between.ports[0].connection(id).unwrap().close_reason(),
        None
    );
    between.ports[0].handle(&datagram, address(2), between.now);
    assert_eq!(
        between.ports[0].connection(id).unwrap().close_reason(),
        Some(CloseReason::Remote)
    );
}
