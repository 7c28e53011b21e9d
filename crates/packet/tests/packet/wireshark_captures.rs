// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures of a single connection that Wireshark's tools wrote in each format (`fuzz/write-captures`).

use crate::reading::{Contents, read};
use std::path::Path;

/// Beginning of the connection on 2026-11-21, in nanoseconds since 1970.
const BEGIN_NS: u64 = 1_795_219_200_000_000_000;
/// Times of the packets, in nanoseconds since the beginning.
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
/// Lengths of the packets on the wire, in bytes.
const LENGTHS: [u32; 9] = [74, 74, 66, 166, 166, 78, 60, 120, 60];

/// Reads a file of the fuzz corpus and checks that it has no damage.
fn read_corpus(name: &str) -> Contents {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = std::fs::read(workspace.join("fuzz/corpus").join(name)).unwrap();
    let contents = read(&file);
    assert_eq!(contents.damages, []);
    contents
}

/// Times of the packets of an interface, in nanoseconds since the beginning.
fn times(contents: &Contents, interface: u32) -> Vec<u64> {
    let packets = contents
        .packets
        .iter()
        .filter(|packet| packet.interface == interface);
    packets.map(|packet| packet.at_ns - BEGIN_NS).collect()
}

#[test]
fn reads_the_same_packets_from_every_format() {
    let reference = read_corpus("pcap/written-nsecpcap");
    assert_eq!(times(&reference, 0), TIMES_NS);
    let lengths: Vec<_> = reference
        .packets
        .iter()
        .map(|packet| packet.wire_len)
        .collect();
    assert_eq!(lengths, LENGTHS);
    assert_eq!(
        read_corpus("pcapng/written-pcapng").packets,
        reference.packets
    );
    for format in ["pcap", "modpcap", "nokiapcap", "rh6_1pcap", "suse6_3pcap"] {
        let contents = read_corpus(&format!("pcap/written-{format}"));
        assert_eq!(contents.payloads(), reference.payloads(), "{format}");
        assert_eq!(
            times(&contents, 0),
            TIMES_NS.map(|ns| ns / 1000 * 1000),
            "{format}"
        );
    }
}

#[test]
fn snaplen_cuts_frames_and_keeps_wire_lengths() {
    for name in ["pcap/written-snaplen-60", "pcapng/written-snaplen-60"] {
        let contents = read_corpus(name);
        assert!(contents.payloads().iter().all(|bytes| bytes.len() == 60));
        let lengths: Vec<_> = contents
            .packets
            .iter()
            .map(|packet| packet.wire_len)
            .collect();
        assert_eq!(lengths, LENGTHS);
    }
}

#[test]
fn reads_timestamp_resolution_of_each_interface() {
    let contents = read_corpus("pcapng/written-two-interfaces");
    assert_eq!(times(&contents, 0), TIMES_NS);
    assert_eq!(times(&contents, 1), TIMES_NS.map(|ns| ns / 1000 * 1000));
}
