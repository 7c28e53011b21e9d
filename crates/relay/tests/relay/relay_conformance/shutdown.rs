// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGTERM: connections that end in time are completed, the rest is reset and counted.

use crate::relay_conformance::chain::{Chain, LISTENERS, is_reset};
use longhaul_testnet::{relay_process::transfer_both_ways, relay_testbed::IPV4};
use rustix::process::Signal;
use std::io::Read;

/// Checks the count of reset connections. An earlier connection that is still open would be counted, too: the reset of
/// one waits until its client has what came before.
pub(crate) fn drains_and_counts_reset_connections(chain: Chain) {
    chain.wait_until_idle();
    let mut open: Vec<_> = LISTENERS
        .iter()
        .map(|listener| chain.connect(listener, &IPV4))
        .collect();
    let (client, server) = open.pop().expect("a connection to each listener");
    let reset_count = open.len();
    let mut relays = chain.relays.into_iter();
    let near = relays.next().expect("a chain has a first relay");
    near.signal(Signal::TERM);
    transfer_both_ways(&client, &server, 1);
    let (status, log) = near.wait();
    assert!(status.success(), "{log}");
    assert!(
        log.contains(&format!("{reset_count} connections reset")),
        "{log}"
    );
    for end in open
        .iter_mut()
        .flat_map(|(client, server)| [client, server])
    {
        let error = end.read(&mut [0]).unwrap_err();
        assert!(is_reset(&error), "{error}");
    }
    for relay in relays {
        let (status, log) = relay.stop();
        assert!(status.success(), "{log}");
        assert!(log.contains("no connection reset"), "{log}");
    }
}
