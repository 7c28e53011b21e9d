// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segmentation of arbitrary packets never panics and never reads beyond the packet.

use longhaul_packet::{super_packet::SuperPacket, vnet};
use proptest::prelude::*;

/// A packet with nearly valid headers, which passes the first checks of the parser.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![Just(0x45_u8), Just(0x4f), Just(0x60), any::<u8>()];
    (first, prop::collection::vec(any::<u8>(), 0..400)).prop_map(|(first, mut rest)| {
        rest.insert(0, first);
        rest
    })
}

fn vnet_header() -> impl Strategy<Value = [u8; vnet::LEN]> {
    let gso = prop_oneof![
        Just(0_u8),
        Just(1),
        Just(4),
        Just(5),
        Just(0x81),
        any::<u8>()
    ];
    (
        any::<u8>(),
        gso,
        any::<u16>(),
        0_u16..200,
        0_u16..120,
        prop_oneof![Just(16_u16), Just(6), 0_u16..40],
    )
        .prop_map(|(flags, gso, hint, size, start, offset)| {
            let mut bytes = [0; vnet::LEN];
            (bytes[0], bytes[1]) = (flags, gso);
            for (at, word) in [(2, hint), (4, size), (6, start), (8, offset)] {
                bytes[at..at + 2].copy_from_slice(&word.to_le_bytes());
            }
            bytes
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn segments_cover_the_payload_exactly_once(vnet in vnet_header(), packet in packet()) {
        let Some(parsed) = SuperPacket::parse(&vnet, &packet) else { return Ok(()) };
        let count = parsed.segments();
        let mut damaged = Vec::new();
        let mut covered = 0;
        let mut wire_len = 0;
        for index in 0..count {
            let run = parsed.run(&packet, index..index + 1);
            covered += packet[run.payload.clone()].len();
            wire_len += u64::from(parsed.segment_len(index));
            parsed.corrupt_into(&packet, index, u32::from(index) * 7919, &mut damaged);
        }
        let headers = parsed.run(&packet, 0..count).head().len() - vnet::LEN;
        prop_assert_eq!(covered + headers, packet.len());
        prop_assert_eq!(wire_len, parsed.wire_len());
    }
}
