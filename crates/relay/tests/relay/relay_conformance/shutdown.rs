// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGTERM: what can end by itself does, the rest is cut, counted and reset.

use crate::relay_conformance::way::{Chain, LISTENERS, is_reset};
use longhaul_testnet::{relay_process::exchange, relay_testbed::IPV4};
use rustix::process::Signal;
use std::io::Read;

/// The count also tells that none of the connections before is still held.
pub(crate) fn drains_and_counts_what_it_cuts(chain: Chain) {
    let mut open: Vec<_> = LISTENERS
        .iter()
        .map(|kind| chain.connect(kind, &IPV4))
        .collect();
    let (client, server) = open.pop().expect("as many as listeners");
    let left = open.len();
    let mut relays = chain.relays.into_iter();
    let near = relays.next().expect("one at least");
    near.signal(Signal::TERM);
    exchange(&client, &server, 1);
    let (status, said) = near.wait();
    assert!(status.success(), "{said}");
    assert!(said.contains(&format!("{left} connections cut")), "{said}");
    for end in open
        .iter_mut()
        .flat_map(|(client, server)| [client, server])
    {
        let error = end.read(&mut [0]).unwrap_err();
        assert!(is_reset(&error), "{error}");
    }
    for relay in relays {
        let (status, said) = relay.stop();
        assert!(status.success(), "{said}");
        assert!(said.contains("no connection cut"), "{said}");
    }
}
