// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz targets of this crate, over their committed corpora and over random scripts.

#[path = "../../../../fuzz/invariants/replay.rs"]
mod replay;
#[path = "../../../../fuzz/invariants/udt_packet.rs"]
mod udt_packet;
#[path = "../../../../fuzz/invariants/udt_session.rs"]
mod udt_session;

use proptest::{collection::vec, prelude::*};
use replay::replay;

#[test]
fn packets_read_back_as_written() {
    replay("udt_packet", udt_packet::check);
}

#[test]
fn corpus_of_sessions_keeps_the_invariants() {
    replay("udt_session", udt_session::check);
}

proptest! {
    #[test]
    fn random_scripts_keep_the_invariants(input in vec(any::<u8>(), 0..400)) {
        udt_session::check(&input);
    }

    #[test]
    fn random_network_events_keep_the_invariants(first: u8, script in vec((0_u8..12, any::<bool>(), 0_u8..60), 0..150)) {
        let pairs = script.into_iter().flat_map(|(event, end, amount)| {
            // Long pauses are rare, because a connection without packets times out.
            let amount = if event == 1 { amount / 8 } else { amount };
            [event | u8::from(end) << 4, amount]
        });
        let input: Vec<u8> = std::iter::once(first | 2).chain(pairs).collect();
        udt_session::check(&input);
    }
}
