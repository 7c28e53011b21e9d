// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoints with several connections per port, rendezvous, third parties and timeouts.

use crate::testbed::{address, config, native};
use longhaul_udt::{CloseReason, Config, Endpoint, Event, Seq, congestion::Control};
use longhaul_units::Time;

pub(crate) type UdtEndpoint = Endpoint<fn(Seq, u32) -> Box<dyn Control>, Box<dyn FnMut() -> u32>>;

fn new_endpoint(config: Config, seed: u32) -> UdtEndpoint {
    let mut state = seed;
    let random = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.rotate_left(13)
    };
    Endpoint::new(config, native, Box::new(random))
}

/// Position of the mode in a handshake packet, and its values.
const MODE: std::ops::Range<usize> = 20..24;
const STREAM: u32 = 1;
const MESSAGES: u32 = 2;

/// Two endpoints with a path network them that delays by 5 ms and loses one of `lost` datagrams.
pub(crate) struct Network {
    pub(crate) now: Time,
    pub(crate) endpoints: [UdtEndpoint; 2],
    in_flight: Vec<(Time, usize, Vec<u8>)>,
    count: u64,
    pub(crate) lost: u64,
    /// Mode in the handshakes of the first endpoint.
    mode: u32,
    pub(crate) events: [Vec<Event>; 2],
}

impl Network {
    pub(crate) fn new(lost: u64) -> Self {
        Self {
            now: Time::ZERO,
            endpoints: [new_endpoint(config(), 1), new_endpoint(config(), 2)],
            in_flight: Vec::new(),
            count: 0,
            lost,
            mode: STREAM,
            events: [Vec::new(), Vec::new()],
        }
    }

    /// Advances the time by a millisecond.
    fn tick(&mut self) {
        self.now += Time::from_millis(1);
        for from in 0..2 {
            loop {
                let mut datagram = Vec::new();
                let Some(to) = self.endpoints[from].transmit(self.now, &mut datagram) else {
                    break;
                };
                assert_eq!(
                    to,
                    address(2 - from as u8),
                    "datagrams go to the other endpoint"
                );
                self.count += 1;
                if from == 0 && datagram.starts_with(&[0x80, 0]) {
                    datagram[MODE].copy_from_slice(&self.mode.to_be_bytes());
                }
                if !self.loses() {
                    let at = self.now + Time::from_millis(5);
                    self.in_flight.push((at, 1 - from, datagram));
                }
            }
        }
        let now = self.now;
        let (arrived, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.in_flight)
            .into_iter()
            .partition(|(at, ..)| *at <= now);
        self.in_flight = rest;
        for (_, to, datagram) in arrived {
            let from = address(2 - to as u8);
            self.endpoints[to].handle(&datagram, from, now);
        }
        for (port, events) in self.endpoints.iter_mut().zip(&mut self.events) {
            events.extend(std::iter::from_fn(|| port.poll_event()));
        }
    }

    /// Whether the next datagram is lost, at random: with a fixed pattern each reply to a periodic request could be
    /// lost.
    fn loses(&self) -> bool {
        let hash = self.count.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        hash.is_multiple_of(self.lost)
    }

    pub(crate) fn ticks(&mut self, count: u32) {
        (0..count).for_each(|_| self.tick());
    }
}

#[test]
fn many_connections_share_two_ports() {
    let mut network = Network::new(7);
    network.endpoints[1].listen();
    let ids: Vec<u32> = (0..20)
        .map(|_| {
            network.endpoints[0]
                .connect(address(2), network.now)
                .unwrap()
        })
        .collect();
    network.ticks(2000);
    let mut opened = network.events[0].clone();
    opened.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(opened.len(), 20);
    assert_eq!(network.events[1].len(), 20, "each was accepted once");
    for (number, id) in ids.iter().enumerate() {
        let connection = network.endpoints[0].connection(*id).unwrap();
        assert_eq!(connection.write(&[number as u8; 5000]), 5000);
        connection.close();
        network.endpoints[0].wake(*id);
    }
    network.ticks(4000);
    // An endpoint that removed a connection still replies with a shutdown.
    ids[..10]
        .iter()
        .for_each(|id| network.endpoints[0].remove(*id));
    network.ticks(16_000);
    let assert_closed = |ids: &[u32], events: &[Event], reason| {
        let ends = ids
            .iter()
            .filter(|id| events.contains(&Event::Closed(**id, reason)));
        assert_eq!(ends.count(), 20, "{reason:?}");
    };
    assert_closed(&ids, &network.events[0], CloseReason::Local);
    let mut seen = Vec::new();
    let accepted = |event: &Event| match event {
        Event::Accepted(id) => Some(*id),
        _ => None,
    };
    let accepted_ids: Vec<u32> = network.events[1].iter().filter_map(accepted).collect();
    assert_closed(&accepted_ids, &network.events[1], CloseReason::Remote);
    for id in accepted_ids {
        let mut read = [0; 6000];
        let connection = network.endpoints[1].connection(id).unwrap();
        assert_eq!(connection.read(&mut read), 5000);
        assert!(read[..5000].iter().all(|byte| *byte == read[0]));
        seen.push(read[0]);
        network.endpoints[1].remove(id);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..20).collect::<Vec<u8>>());
}

#[test]
fn rendezvous_connects_without_a_listener() {
    for lost in [1000, 2, 3] {
        let mut network = Network::new(lost);
        let ids = [0, 1].map(|end| {
            let peer = address(2 - end as u8);
            network.endpoints[end]
                .rendezvous(peer, network.now)
                .unwrap()
        });
        network.ticks(5000);
        for (end, id) in ids.into_iter().enumerate() {
            assert_eq!(network.events[end], [Event::Connected(id)], "{lost}");
            let connection = network.endpoints[end].connection(id).unwrap();
            assert_eq!(connection.write(&[end as u8; 3000]), 3000);
            network.endpoints[end].wake(id);
        }
        network.ticks(20_000);
        for (end, id) in ids.into_iter().enumerate() {
            let connection = network.endpoints[end].connection(id).unwrap();
            let mut read = [0; 4000];
            assert_eq!(connection.read(&mut read), 3000, "{lost}");
            assert_eq!(read[..3000], [1 - end as u8; 3000]);
        }
    }
}

#[test]
fn reports_refused_modes_and_timeouts() {
    let mut network = Network::new(1000);
    network.mode = MESSAGES;
    let unanswered = network.endpoints[0]
        .connect(address(2), network.now)
        .unwrap();
    network.ticks(10_001);
    assert_eq!(network.events[0], [Event::TimedOut(unanswered)]);
    network.events[0].clear();
    assert_eq!(network.endpoints[0].deadline(), None);
    network.endpoints[1].listen();
    let refused = network.endpoints[0]
        .connect(address(2), network.now)
        .unwrap();
    network.ticks(1000);
    assert_eq!(network.events[0], [Event::Refused(refused, 1002)]);
    assert_eq!(network.events[1], []);
}

/// A client that does not return its cookie costs no state, and gets no more bytes than it sent.
#[test]
fn keeps_no_state_before_the_cookie_is_returned() {
    let mut server = new_endpoint(config(), 5);
    server.listen();
    let mut client = new_endpoint(config(), 6);
    client.connect(address(2), Time::ZERO).unwrap();
    let mut request = Vec::new();
    client.transmit(Time::ZERO, &mut request).unwrap();
    for third_party in 3..200 {
        server.handle(&request, address(third_party), Time::ZERO);
        assert_eq!(server.poll_event(), None);
        let mut reply = Vec::new();
        let to = server.transmit(Time::ZERO, &mut reply);
        assert_eq!(to, Some(address(third_party)));
        assert!(reply.len() <= request.len());
    }
    assert_eq!(server.deadline(), None);
    let longer = [request.as_slice(), &[0; 4]].concat();
    server.handle(&longer, address(3), Time::ZERO);
    assert_eq!(server.transmit(Time::ZERO, &mut Vec::new()), None);
}

#[test]
fn ignores_packets_from_other_addresses() {
    let mut network = Network::new(1000);
    network.endpoints[1].listen();
    let id = network.endpoints[0]
        .connect(address(2), network.now)
        .unwrap();
    network.ticks(100);
    let shutdown = longhaul_udt::packet::Packet {
        timestamp_us: 0,
        destination: id,
        body: longhaul_udt::packet::Body::Shutdown(None),
    };
    let mut datagram = Vec::new();
    shutdown.write(&mut datagram);
    network.endpoints[0].handle(&datagram, address(9), network.now);
    assert_eq!(
        network.endpoints[0].connection(id).unwrap().close_reason(),
        None
    );
    network.endpoints[0].handle(&datagram, address(2), network.now);
    assert_eq!(
        network.endpoints[0].connection(id).unwrap().close_reason(),
        Some(CloseReason::Remote)
    );
}
