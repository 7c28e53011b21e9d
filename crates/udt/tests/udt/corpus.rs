// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fuzz targets of `udt`, over their committed corpora and over scripts at random.

#[path = "../../../../fuzz/invariants/replay.rs"]
mod replay;
#[path = "../../../../fuzz/invariants/udt_conversation.rs"]
mod udt_conversation;
#[path = "../../../../fuzz/invariants/udt_packet.rs"]
mod udt_packet;

use proptest::{collection::vec, prelude::*};
use replay::replay;

#[test]
fn packets_are_read_as_written() {
    replay("udt_packet", udt_packet::check);
}

#[test]
fn conversations_end_well_or_are_seen_to_break() {
    replay("udt_conversation", udt_conversation::check);
}

proptest! {
    #[test]
    fn whatever_happens_to_a_conversation(input in vec(any::<u8>(), 0..400)) {
        udt_conversation::check(&input);
    }

    #[test]
    fn whatever_a_network_does_to_a_conversation(first: u8, script in vec((0_u8..12, any::<bool>(), 0_u8..60), 0..150)) {
        let pairs = script.into_iter().flat_map(|(what, end, much)| {
            // Seconds only now and then, for a connection that is silent breaks.
            let much = if what == 1 { much / 8 } else { much };
            [what | u8::from(end) << 4, much]
        });
        let input: Vec<u8> = std::iter::once(first | 2).chain(pairs).collect();
        udt_conversation::check(&input);
    }
}
