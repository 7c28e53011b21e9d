// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several connections on the long leg for one of a client's: nothing else may differ. That all of
//! them carry bytes is tested in relay_striping.rs.

use crate::{
    relay_conformance::conform_over,
    relay_conformance::way::{Carry, Chain, STREAMS, wait_until},
};
use longhaul_testnet::{relay_process::may_use_namespaces, relay_testbed::IPV4};
use std::time::Duration;

#[test]
fn one_peer_with_four_streams() {
    conform_over(1, Carry::Striped, &[IPV4]);
}

/// Or the matrix would try one stream once more.
#[test]
fn the_chain_is_striped() {
    if !may_use_namespaces() {
        return;
    }
    let chain = Chain::new(1, Carry::Striped);
    let sockets = || chain.relays[0].descriptors("socket:").len() as u64;
    // At its start the relay asks its peer, over a socket that goes again.
    let looks = (0..20).map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        sockets()
    });
    let before = looks.min().unwrap();
    let _ends = chain.connect("forward", &IPV4);
    wait_until("the client's socket and all streams", || {
        sockets() == before + 1 + STREAMS
    });
}
