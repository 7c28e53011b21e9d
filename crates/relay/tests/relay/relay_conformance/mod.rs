// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every connection through a relay can rely on: each listener, direct and through one and two
//! peers, with splice, with copying and with TLS between the relays, over IPv4 and IPv6, on real
//! sockets between network namespaces.
//!
//! Clocks decide nothing here but how long a failure takes, and when a sender that has stopped is
//! believed to have stopped.

mod crowd;
mod ends;
mod flow;
mod http;
mod payload;
mod refusals;
mod shortage;
mod shutdown;
mod slowloris;
mod striped;
mod vanished;
mod way;

use longhaul_testnet::relay_process::may_use_namespaces;
use longhaul_testnet::relay_testbed::{BOTH, Family, IPV4};
use std::{io::Read, net::Shutdown, thread::scope};
use way::{Carry, Chain, LISTENERS, Way};

type Check = (&'static str, fn(&Way<'_>));

/// Both ways round: what holds for a client must hold for a server.
const CHECKS: [Check; 16] = [
    ("every size arrives whole", flow::every_size_arrives_whole),
    ("both directions at once", flow::both_directions_at_once),
    (
        "single bytes wait for nothing",
        flow::single_bytes_wait_for_nothing,
    ),
    (
        "tiny messages pass within a millisecond",
        flow::tiny_messages_pass_within_a_millisecond,
    ),
    ("single bytes add up", flow::single_bytes_add_up),
    (
        "a slow reader stops the sender",
        flow::a_slow_reader_stops_the_sender,
    ),
    (
        "half-close, then much data back",
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
    (
        "RST by a sender that is stalled",
        ends::reset_by_a_stalled_sender,
    ),
    (
        "RST by a reader that has stalled",
        ends::reset_by_a_stalled_reader,
    ),
    ("RST after FIN", ends::reset_after_fin),
    (
        "RST after the other side's FIN",
        ends::reset_after_the_other_s_fin,
    ),
    ("RST behind the data", ends::reset_behind_the_data),
];

fn conform(peers: usize, carry: Carry) {
    conform_over(peers, carry, &BOTH);
}

fn conform_over(peers: usize, carry: Carry, families: &[Family]) {
    if !may_use_namespaces() {
        return;
    }
    let chain = Chain::new(peers, carry);
    // Most of the time passes in waiting for what shall not happen: both families wait together.
    scope(|scope| {
        for family in families {
            scope.spawn(|| conform_in(&chain, family));
        }
    });
    shutdown::drains_and_counts_what_it_cuts(chain);
}

fn conform_in(chain: &Chain, family: &Family) {
    let peers = chain.relays.len() - 1;
    for kind in LISTENERS {
        for upward in [true, false] {
            let way = Way {
                chain,
                kind,
                family,
                upward,
            };
            for (name, check) in CHECKS {
                eprintln!("{way}, {peers} peers, {:?}: {name}", chain.carry);
                check(&way);
            }
        }
    }
    refusals::are_said_in_each_protocol_s_words(chain, family);
    http::bodies_of_every_framing_arrive_whole(chain, family);
    http::a_body_that_is_cut_short_never_looks_whole(chain, family);
    http::a_slow_reader_stops_the_server(chain, family);
    http::a_reset_passes_a_full_response(chain, family);
    flow::stalls_of_some_seconds_are_survived(chain, family);
}

#[test]
fn direct_with_splice() {
    conform(0, Carry::Splice);
}

#[test]
fn direct_with_copying() {
    conform(0, Carry::Copy);
}

#[test]
fn one_peer_with_splice() {
    conform(1, Carry::Splice);
}

#[test]
fn one_peer_with_copying() {
    conform(1, Carry::Copy);
}

#[test]
fn one_peer_with_tls() {
    conform(1, Carry::Tls);
}

#[test]
fn two_peers_with_splice() {
    conform(2, Carry::Splice);
}

#[test]
fn two_peers_with_copying() {
    conform(2, Carry::Copy);
}

#[test]
fn two_peers_with_tls() {
    conform(2, Carry::Tls);
}

/// 1 GiB through each listener, in turns up and down, and once each way through two copying peers,
/// after the other direction has ended.
#[test]
fn a_gibibyte_arrives_whole() {
    if !may_use_namespaces() {
        return;
    }
    let direct = Chain::new(0, Carry::Splice);
    let turns = LISTENERS.iter().zip([true, false].into_iter().cycle());
    turns.for_each(|(kind, upward)| carry_a_gibibyte(&direct, kind, upward));
    let far = Chain::new(2, Carry::Copy);
    for upward in [true, false] {
        carry_a_gibibyte(&far, "socks5", upward);
    }
}

fn carry_a_gibibyte(chain: &Chain, kind: &str, upward: bool) {
    let way = Way {
        chain,
        kind,
        family: &IPV4,
        upward,
    };
    eprintln!("{way}: 1 GiB");
    let (mut from, to) = way.open();
    to.shutdown(Shutdown::Write).unwrap();
    assert_eq!(from.read(&mut [0]).unwrap(), 0);
    flow::arrives_whole(&from, &to, 1 << 30);
}
