// SPDX-License-Identifier: MIT OR Apache-2.0
//! ICMP port unreachable messages: from hosts whose peer is gone, from firewalls, and forged ones.

use crate::{endpoints::Network, testbed::address};
use longhaul_udt::{CloseReason, Event};
use longhaul_units::Time;

/// Returns a network with an open connection, and its ID.
fn open() -> (Network, u32) {
    let mut network = Network::new(u64::MAX);
    network.endpoints[1].listen();
    let id = network.endpoints[0].connect(address(2), network.now);
    network.ticks(100);
    network.events[0].clear();
    (network, id.unwrap())
}

/// Lets the first endpoint send a packet of the connection, and returns it.
fn sent_packet(network: &mut Network, id: u32) -> Vec<u8> {
    let connection = network.endpoints[0].connection(id).unwrap();
    assert_eq!(connection.write(&[7; 100]), 100);
    network.endpoints[0].wake(id);
    network.now += Time::from_millis(20);
    let mut datagram = Vec::new();
    let to = network.endpoints[0].transmit(network.now, &mut datagram);
    assert_eq!(to, Some(address(2)));
    datagram
}

fn events_after_a_second(network: &mut Network) -> Vec<Event> {
    network.ticks(1000);
    std::mem::take(&mut network.events[0])
}

#[test]
fn a_request_to_a_closed_port_fails_at_once() {
    let mut network = Network::new(1);
    let id = network.endpoints[0].connect(address(2), network.now);
    let mut request = Vec::new();
    network.endpoints[0].transmit(network.now, &mut request);
    network.endpoints[0].handle_port_unreachable(&request, address(3), network.now);
    network.endpoints[0].handle_port_unreachable(&request[..63], address(2), network.now);
    assert_eq!(network.endpoints[0].poll_event(), None);
    network.endpoints[0].handle_port_unreachable(&request, address(2), network.now);
    let event = network.endpoints[0].poll_event();
    assert_eq!(event, Some(Event::Unreachable(id.unwrap())));
    assert_eq!(network.endpoints[0].deadline(), None);
}

#[test]
fn a_rendezvous_waits_for_a_peer_that_starts_later() {
    let mut network = Network::new(u64::MAX);
    let id = network.endpoints[0].rendezvous(address(2), network.now);
    let mut request = Vec::new();
    network.endpoints[0].transmit(network.now, &mut request);
    network.endpoints[0].handle_port_unreachable(&request, address(2), network.now);
    network.endpoints[1].rendezvous(address(1), network.now);
    let events = events_after_a_second(&mut network);
    assert_eq!(events, [Event::Connected(id.unwrap())]);
}

/// The peer receives nothing and sends nothing.
#[test]
fn a_connection_whose_peer_is_gone_ends_within_a_second() {
    let (mut network, id) = open();
    let datagram = sent_packet(&mut network, id);
    network.lost = 1;
    network.endpoints[0].handle_port_unreachable(&datagram, address(2), network.now);
    network.ticks(299);
    assert_eq!(network.events[0], []);
    let events = events_after_a_second(&mut network);
    assert_eq!(events, [Event::Closed(id, CloseReason::Refused)]);
}

/// The connection is idle, but for the message: the peer must be asked.
#[test]
fn a_connection_survives_a_message_while_its_peer_is_there() {
    let (mut network, id) = open();
    let datagram = sent_packet(&mut network, id);
    network.ticks(200);
    let peer = network.endpoints[1].deadline().unwrap();
    assert!(peer > network.now, "idle");
    network.endpoints[0].handle_port_unreachable(&datagram, address(2), network.now);
    assert_eq!(events_after_a_second(&mut network), []);
}

#[test]
fn a_message_that_quotes_no_packet_of_the_connection_is_ignored() {
    let (mut network, id) = open();
    let mut datagram = sent_packet(&mut network, id);
    network.lost = 1;
    let endpoint = &mut network.endpoints[0];
    endpoint.handle_port_unreachable(&datagram, address(3), network.now);
    endpoint.handle_port_unreachable(&datagram[..12], address(2), network.now);
    datagram[15] ^= 1;
    endpoint.handle_port_unreachable(&datagram, address(2), network.now);
    assert_eq!(events_after_a_second(&mut network), []);
}

/// The peer is gone after it received the shutdown, and its reply was lost.
#[test]
fn a_message_after_the_shutdown_confirms_it() {
    let (mut network, id) = open();
    network.lost = 1;
    network.endpoints[0].connection(id).unwrap().close();
    network.endpoints[0].wake(id);
    let mut shutdown = Vec::new();
    network.endpoints[0].transmit(network.now, &mut shutdown);
    network.endpoints[0].handle_port_unreachable(&shutdown, address(2), network.now);
    let events = events_after_a_second(&mut network);
    assert_eq!(events, [Event::Closed(id, CloseReason::Local)]);
}
