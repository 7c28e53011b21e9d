// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures whose packets are out of order or there twice, beside tshark (docs/tap-peers.md, D14 to D16).

use crate::tap_peers::{KEPT, have, ours, rules, tshark};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A packet with its header, and when it was captured.
type Record = Vec<u8>;

/// The file's header, and its packets.
fn records(file: &Path) -> (Vec<u8>, Vec<Record>) {
    let bytes = fs::read(file).unwrap();
    let (header, mut rest) = bytes.split_at(24);
    let mut records = Vec::new();
    while !rest.is_empty() {
        let kept: [u8; 4] = rest[8..12].try_into().unwrap();
        let (record, after) = rest.split_at(16 + u32::from_le_bytes(kept) as usize);
        records.push(record.to_vec());
        rest = after;
    }
    (header.to_vec(), records)
}

/// Each packet is put up to `reach` places later, by numbers that are the same each time.
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

struct Variants {
    directory: tempfile::TempDir,
    name: &'static str,
    header: Vec<u8>,
    records: Vec<Record>,
}

impl Variants {
    fn of(name: &'static str) -> Self {
        let place = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures"));
        let (header, records) = records(&place.join(name));
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
        for (way, ours) in &ours {
            rule(&format!("{} {what} {way:?}", self.name), ours, &tshark[way]);
        }
    }
}

/// Those of `KEPT` that no SYN ends in the middle, in little-endian order.
fn kept() -> impl Iterator<Item = Variants> {
    KEPT.into_iter()
        .filter(|name| !name.starts_with("vendor"))
        .map(Variants::of)
}

#[test]
fn packets_that_are_there_twice() {
    if !have(&["tshark"]) {
        return;
    }
    for variants in kept() {
        let twice = variants.records.iter().flat_map(|record| [record, record]);
        let twice: Vec<_> = twice.cloned().collect();
        variants.compare("twice", &twice, rules::counts_beside_tshark);
    }
}

#[test]
fn packets_that_are_near_their_places() {
    if !have(&["tshark"]) {
        return;
    }
    for variants in kept() {
        for reach in [2, 3, 6, 10] {
            let near = shuffled(&variants.records, reach);
            let what = format!("shuffled by {reach}");
            variants.compare(&what, &near, rules::counts_beside_tshark);
        }
    }
}

/// D15, D16: what is sent again and what is late depends on where a flow begins.
#[test]
fn packets_that_are_anywhere() {
    if !have(&["tshark"]) {
        return;
    }
    for variants in kept() {
        let backwards: Vec<_> = variants.records.iter().rev().cloned().collect();
        let anywhere = shuffled(&variants.records, 1 << 20);
        variants.compare("backwards", &backwards, rules::packets_beside_tshark);
        variants.compare("shuffled", &anywhere, rules::packets_beside_tshark);
    }
}
