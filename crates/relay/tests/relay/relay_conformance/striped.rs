// SPDX-License-Identifier: MIT OR Apache-2.0
//! Striping: several connections on the leg between relays for one of a client. The behaviour must
//! not differ. relay_striping.rs tests that all of them carry bytes.

use crate::{
    relay_conformance::chain::{Chain, LegMode, STREAMS, wait_until},
    relay_conformance::conform_over,
};
use longhaul_testnet::{relay_process::may_use_namespaces, relay_testbed::IPV4};

#[test]
fn one_peer_with_four_streams() {
    conform_over(1, LegMode::Striped, &[IPV4]);
}

/// Without striping, the test above would only repeat a single stream.
#[test]
fn chain_uses_all_streams() {
    if !may_use_namespaces() {
        return;
    }
    let chain = Chain::new(1, LegMode::Striped);
    let sockets = || chain.relays[0].descriptors("socket:").len() as u64;
    chain.wait_until_idle();
    let before = sockets();
    let _ends = chain.connect("forward", &IPV4);
    wait_until("the client's socket and all streams", || {
        sockets() == before + 1 + STREAMS
    });
}
