// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection, as Wireshark's tools wrote it in each format (`fuzz/write-captures`).

use crate::reading::{Said, read};
use std::path::Path;

/// 2026-11-21, when the connection begins.
const BEGIN_NS: u64 = 1_795_219_200_000_000_000;
/// When its packets follow.
const TIMES_NS: [u64; 9] = [
    0,
    200_000_001,
    200_050_002,
    200_060_003,
    200_070_004,
    400_080_005,
    999_999_999,
    1_000_000_000,
    1_200_000_006,
];
const LENGTHS: [u32; 9] = [74, 74, 66, 166, 166, 78, 60, 120, 60];

fn written(name: &str) -> Said {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = std::fs::read(workspace.join("fuzz/corpus").join(name)).unwrap();
    let said = read(&file);
    assert_eq!(said.damages, []);
    said
}

/// Times since the beginning and lengths on the wire, each interface alone.
fn times(said: &Said, interface: u32) -> Vec<u64> {
    let packets = said
        .packets
        .iter()
        .filter(|packet| packet.interface == interface);
    packets.map(|packet| packet.at_ns - BEGIN_NS).collect()
}

#[test]
fn every_format_says_the_same() {
    let reference = written("pcap/written-nsecpcap");
    assert_eq!(times(&reference, 0), TIMES_NS);
    let lengths: Vec<_> = reference
        .packets
        .iter()
        .map(|packet| packet.wire_len)
        .collect();
    assert_eq!(lengths, LENGTHS);
    assert_eq!(written("pcapng/written-pcapng").packets, reference.packets);
    for format in ["pcap", "modpcap", "nokiapcap", "rh6_1pcap", "suse6_3pcap"] {
        let said = written(&format!("pcap/written-{format}"));
        assert_eq!(said.payloads(), reference.payloads(), "{format}");
        assert_eq!(
            times(&said, 0),
            TIMES_NS.map(|ns| ns / 1000 * 1000),
            "{format}"
        );
    }
}

#[test]
fn a_snaplen_cuts_frames_and_nothing_else() {
    for name in ["pcap/written-snaplen-60", "pcapng/written-snaplen-60"] {
        let said = written(name);
        assert!(said.payloads().iter().all(|bytes| bytes.len() == 60));
        let lengths: Vec<_> = said.packets.iter().map(|packet| packet.wire_len).collect();
        assert_eq!(lengths, LENGTHS);
    }
}

#[test]
fn interfaces_have_clocks_of_their_own() {
    let said = written("pcapng/written-two-interfaces");
    assert_eq!(times(&said, 0), TIMES_NS);
    assert_eq!(times(&said, 1), TIMES_NS.map(|ns| ns / 1000 * 1000));
}
