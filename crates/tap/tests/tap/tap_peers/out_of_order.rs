// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison with tshark for captures with packets out of order or duplicated (docs/tap-peers.md, D14 to D16).

use crate::tap_peers::{STORED_CAPTURES, has_programs, ours, rules, tshark};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Packet with its pcap record header.
type Record = Vec<u8>;

/// Reads the header of a file, and its packets.
fn records(file: &Path) -> (Vec<u8>, Vec<Record>) {
    let bytes = fs::read(file).unwrap();
    let (header, mut rest) = bytes.split_at(24);
    let mut records = Vec::new();
    while !rest.is_empty() {
        let captured_len: [u8; 4] = rest[8..12].try_into().unwrap();
        let (record, after) = rest.split_at(16 + u32::from_le_bytes(captured_len) as usize);
        records.push(record.to_vec());
        rest = after;
    }
    (header.to_vec(), records)
}

/// Moves each packet later by less than `reach` places, with pseudo-random numbers that are the same each time.
fn shuffled(records: &[Record], reach: u64) -> Vec<Record> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut placed: Vec<_> = (0..)
        .zip(records)
        .map(|(at, record)| (8 * at + random() % (8 * reach), record))
        .collect();
    placed.sort_by_key(|(at, _)| *at);
    placed
        .into_iter()
        .map(|(_, record)| record.clone())
        .collect()
}

/// Stored capture whose packets are written again in other orders.
struct Variants {
    directory: tempfile::TempDir,
    name: &'static str,
    header: Vec<u8>,
    records: Vec<Record>,
}

impl Variants {
    fn of(name: &'static str) -> Self {
        let captures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures"));
        let (header, records) = records(&captures.join(name));
        Self {
            directory: tempfile::tempdir().unwrap(),
            name,
            header,
            records,
        }
    }

    fn write(&self, records: &[Record]) -> PathBuf {
        let file = self.directory.path().join("variant.pcap");
        let parts = [std::slice::from_ref(&self.header), records].concat();
        fs::write(&file, parts.concat()).unwrap();
        file
    }

    fn compare(
        &self,
        what: &str,
        records: &[Record],
        rule: fn(&str, &ours::Ours, &tshark::Tshark),
    ) {
        let file = self.write(records);
        let (ours, tshark) = (ours::read(&file), tshark::read(&file));
        assert!(ours.keys().eq(tshark.keys()), "{} {what}", self.name);
        for (direction, ours) in &ours {
            rule(
                &format!("{} {what} {direction:?}", self.name),
                ours,
                &tshark[direction],
            );
        }
    }
}

/// Returns the stored captures that are in little-endian byte order and have no SYN in the middle of a connection.
fn stored_captures() -> impl Iterator<Item = Variants> {
    STORED_CAPTURES
        .into_iter()
        .filter(|name| !name.starts_with("vendor"))
        .map(Variants::of)
}

/// tshark counts copies as retransmissions and duplicate ACKs. Captures of IPv6 without the SYN are left out: their first
/// packets count twice.
#[test]
fn packets_that_were_captured_twice_count_once() {
    let begins_late = |variants: &Variants| variants.name == "a-late-ack-ipv6.pcap";
    for variants in stored_captures().filter(|variants| !begins_late(variants)) {
        let once = ours::read(&variants.write(&variants.records));
        let twice = variants.records.iter().flat_map(|record| [record, record]);
        let twice: Vec<_> = twice.cloned().collect();
        assert_eq!(
            ours::read(&variants.write(&twice)),
            once,
            "{}",
            variants.name
        );
    }
}

#[test]
#[ignore = "needs tshark: make test-peers"]
fn agrees_on_slightly_shuffled_packets() {
    if !has_programs(&["tshark"]) {
        return;
    }
    for variants in stored_captures() {
        for reach in [2, 3, 6, 10] {
            let shuffled_near = shuffled(&variants.records, reach);
            let what = format!("shuffled by {reach}");
            variants.compare(&what, &shuffled_near, rules::compare_counts_with_tshark);
        }
    }
}

/// D15, D16: retransmissions and late packets depend on where a flow begins.
#[test]
#[ignore = "needs tshark: make test-peers"]
fn agrees_on_fully_shuffled_packets() {
    if !has_programs(&["tshark"]) {
        return;
    }
    for variants in stored_captures() {
        let backwards: Vec<_> = variants.records.iter().rev().cloned().collect();
        let shuffled_far = shuffled(&variants.records, 1 << 20);
        variants.compare("backwards", &backwards, rules::compare_packets_with_tshark);
        variants.compare(
            "shuffled",
            &shuffled_far,
            rules::compare_packets_with_tshark,
        );
    }
}
