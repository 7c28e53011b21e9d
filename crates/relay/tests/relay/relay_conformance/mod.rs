// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conformance of connections through relays: each listener, direct and through one and two peers,
//! with splice, with copying and with TLS between the relays, over IPv4 and IPv6, on real sockets
//! between network namespaces.
//!
//! Time only decides how long a failure takes, and when a sender counts as stopped.

mod chain;
mod ends;
mod exhaustion;
mod flow;
mod http;
mod many_connections;
mod payload;
mod refusals;
mod shutdown;
mod slowloris;
mod striped;
mod vanished;

use chain::{Chain, LISTENERS, LegMode, TestPath};
use longhaul_testnet::relay_process::may_use_namespaces;
use longhaul_testnet::relay_testbed::{Addresses, BOTH, IPV4};
use std::{io::Read, net::Shutdown, thread::scope};

type Check = (&'static str, fn(&TestPath<'_>));

/// Checks in both roles: what holds for a client must hold for a server.
const CHECKS: [Check; 16] = [
    ("every size", flow::transfers_every_size),
    (
        "both directions at once",
        flow::transfers_both_directions_at_once,
    ),
    (
        "single bytes without delay",
        flow::sends_single_bytes_without_delay,
    ),
    (
        "small messages within two milliseconds",
        flow::relays_small_messages_within_two_milliseconds,
    ),
    ("many single bytes", flow::transfers_many_single_bytes),
    ("slow reader stops sender", flow::slow_reader_stops_sender),
    (
        "half-close, then data back",
        ends::half_close_then_much_data_back,
    ),
    ("FIN behind the data", ends::fin_behind_the_data),
    ("RST at rest", ends::reset_at_rest),
    (
        "RST by a sender in full flow",
        ends::reset_by_a_sender_in_full_flow,
    ),
    (
        "RST by a reader in full flow",
        ends::reset_by_a_reader_in_full_flow,
    ),
    ("RST by a stalled sender", ends::reset_by_a_stalled_sender),
    ("RST by a stalled reader", ends::reset_by_a_stalled_reader),
    ("RST after FIN", ends::reset_after_fin),
    ("RST after the other side's FIN", ends::reset_after_peer_fin),
    ("RST behind the data", ends::reset_behind_the_data),
];

fn conform(peers: usize, mode: LegMode) {
    conform_over(peers, mode, &BOTH);
}

fn conform_over(peers: usize, mode: LegMode, families: &[Addresses]) {
    if !may_use_namespaces() {
        return;
    }
    let chain = Chain::new(peers, mode);
    // Most of the time is spent waiting for events that must not happen, so both families run at
    // once.
    scope(|scope| {
        for family in families {
            scope.spawn(|| conform_in(&chain, family));
        }
    });
    shutdown::drains_and_counts_reset_connections(chain);
}

fn conform_in(chain: &Chain, family: &Addresses) {
    let peers = chain.relays.len() - 1;
    for kind in LISTENERS {
        for upward in [true, false] {
            let path = TestPath {
                chain,
                kind,
                family,
                upward,
            };
            for (name, check) in CHECKS {
                eprintln!("{path}, {peers} peers, {:?}: {name}", chain.mode);
                check(&path);
            }
        }
    }
    refusals::are_reported_in_each_protocol(chain, family);
    http::transfers_bodies_of_every_framing(chain, family);
    http::truncated_body_never_looks_complete(chain, family);
    http::slow_reader_stops_server(chain, family);
    http::reset_overtakes_full_response(chain, family);
    flow::survives_stalls(chain, family);
}

#[test]
fn direct_with_splice() {
    conform(0, LegMode::Splice);
}

#[test]
fn direct_with_copying() {
    conform(0, LegMode::Copy);
}

#[test]
fn one_peer_with_splice() {
    conform(1, LegMode::Splice);
}

#[test]
fn one_peer_with_copying() {
    conform(1, LegMode::Copy);
}

#[test]
fn one_peer_with_tls() {
    conform(1, LegMode::Tls);
}

#[test]
fn two_peers_with_splice() {
    conform(2, LegMode::Splice);
}

#[test]
fn two_peers_with_copying() {
    conform(2, LegMode::Copy);
}

#[test]
fn two_peers_with_tls() {
    conform(2, LegMode::Tls);
}

/// Transfers 1 GiB through each listener, alternately up and down, and once each way through two
/// copying peers, after the other direction has ended.
#[test]
fn transfers_a_gibibyte() {
    if !may_use_namespaces() {
        return;
    }
    let direct = Chain::new(0, LegMode::Splice);
    let alternating = LISTENERS.iter().zip([true, false].into_iter().cycle());
    alternating.for_each(|(kind, upward)| transfer_gibibyte(&direct, kind, upward));
    let two_peers = Chain::new(2, LegMode::Copy);
    for upward in [true, false] {
        transfer_gibibyte(&two_peers, "socks5", upward);
    }
}

fn transfer_gibibyte(chain: &Chain, kind: &str, upward: bool) {
    let path = TestPath {
        chain,
        kind,
        family: &IPV4,
        upward,
    };
    eprintln!("{path}: 1 GiB");
    let (mut from, to) = path.open();
    to.shutdown(Shutdown::Write).unwrap();
    assert_eq!(from.read(&mut [0]).unwrap(), 0);
    flow::transfer_and_check(&from, &to, 1 << 30);
}
