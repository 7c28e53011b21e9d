// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destinations that can't be reached: the client hears why, in its protocol's words.

use crate::relay_conformance::way::{Chain, Goal, LISTENERS, is_reset};
use longhaul_testnet::{relay_process::PATIENCE, relay_testbed::Family};
use std::{io::Read, net::TcpStream, thread::scope};

/// A destination, and the codes of SOCKS5 (RFC 1928 §6), HTTP and Convert (RFC 8803 §6.2.8).
const WORDS: [(Goal, [u16; 3]); 4] = [
    (Goal::Refusing, [5, 502, 96]),
    (Goal::HostUnreachable, [4, 502, 97]),
    (Goal::NetworkUnreachable, [3, 502, 97]),
    (Goal::Silent, [4, 504, 65]),
];

pub(crate) fn are_said_in_each_protocol_s_words(chain: &Chain, family: &Family) {
    scope(|scope| {
        for (goal, codes) in WORDS {
            for kind in LISTENERS {
                scope.spawn(move || is_refused(chain, family, kind, goal, codes));
            }
        }
    });
}

fn is_refused(chain: &Chain, family: &Family, kind: &str, goal: Goal, codes: [u16; 3]) {
    let outcome = chain.dial(kind, family, goal);
    let spoken = ["socks5", "http", "convert"]
        .iter()
        .position(|k| *k == kind);
    match (spoken, outcome) {
        (Some(index), outcome) => {
            assert_eq!(outcome.err(), Some(codes[index]), "{kind} to {goal:?}");
        }
        (None, Ok(client)) => assert_only_reset(client, kind, goal),
        (None, Err(_)) => unreachable!("{kind} has no words"),
    }
}

fn assert_only_reset(mut client: TcpStream, kind: &str, goal: Goal) {
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let error = client.read(&mut [0]).unwrap_err();
    assert!(is_reset(&error), "{kind} to {goal:?}: {error}");
}
