// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unreachable destinations: the client receives the cause in its protocol.

use crate::relay_conformance::chain::{Chain, DestinationKind, LISTENERS, is_reset};
use longhaul_testnet::{relay_process::TEST_TIMEOUT, relay_testbed::Addresses};
use std::{io::Read, net::TcpStream, thread::scope};

/// Kinds of destinations, and the codes of SOCKS5 (RFC 1928 §6), HTTP and Convert (RFC 8803
/// §6.2.8).
const CODES: [(DestinationKind, [u16; 3]); 4] = [
    (DestinationKind::Refusing, [5, 502, 96]),
    (DestinationKind::HostUnreachable, [4, 502, 97]),
    (DestinationKind::NetworkUnreachable, [3, 502, 97]),
    (DestinationKind::Silent, [4, 504, 65]),
];

pub(crate) fn are_reported_in_each_protocol(chain: &Chain, family: &Addresses) {
    scope(|scope| {
        for (destination, codes) in CODES {
            for kind in LISTENERS {
                scope.spawn(move || check_refusal(chain, family, kind, destination, codes));
            }
        }
    });
}

fn check_refusal(
    chain: &Chain,
    family: &Addresses,
    kind: &str,
    destination: DestinationKind,
    codes: [u16; 3],
) {
    let outcome = chain.dial(kind, family, destination);
    let protocol = ["socks5", "http", "convert"]
        .iter()
        .position(|k| *k == kind);
    match (protocol, outcome) {
        (Some(index), outcome) => {
            assert_eq!(
                outcome.err(),
                Some(codes[index]),
                "{kind} to {destination:?}"
            );
        }
        (None, Ok(client)) => assert_only_reset(client, kind, destination),
        (None, Err(_)) => unreachable!("{kind} has no error codes"),
    }
}

fn assert_only_reset(mut client: TcpStream, kind: &str, destination: DestinationKind) {
    client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let error = client.read(&mut [0]).unwrap_err();
    assert!(is_reset(&error), "{kind} to {destination:?}: {error}");
}
