// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks a damaged journal: records that are intact are read, wherever they are now, and no others. Records that are
//! appended later are found too.
//!
//! The input is the number of blocks, the number of records, eleven bytes of the source's version, then a script for
//! [`super::damage`].

use super::{damage::apply_damage, memory::MemoryFile};
use longhaul_store::{
    blocks::{BLOCK_LEN, BlockHash, Blocks},
    part::journal::{
        BlockRecord, HEADER_LEN, Header, Journal, RECORD_LEN, Version, has_header, read, records,
    },
};
use std::collections::HashMap;

pub(crate) fn check(input: &[u8]) {
    let Some(([blocks, count, version @ ..], script)) = input.split_first_chunk::<13>() else {
        return;
    };
    let header = header(u64::from(*blocks), *version);
    assert_eq!(records(input, &header), [], "no record is intact");
    let sealed: Vec<BlockRecord> = (0..u64::from(*count)).map(record).collect();
    let file = MemoryFile::default();
    let mut journal = Journal::create(file.clone(), &header).unwrap();
    journal.append(&sealed).unwrap();
    let whole = file.bytes().clone();
    assert_eq!(whole.len(), HEADER_LEN + sealed.len() * RECORD_LEN);
    apply_damage(&mut file.bytes(), script);
    let damaged = file.bytes().clone();
    let expected = intact_records(&header, &sealed, &whole, &damaged);
    assert_eq!(records(&damaged, &header), expected);
    check_next_run(&file, &header, expected);
}

fn header(blocks: u64, v: [u8; 11]) -> Header {
    let (size, seconds, nanos) = (
        u64::from(v[0]),
        i64::from(v[1].cast_signed()),
        u32::from(v[2]),
    );
    let version = Version {
        size,
        mtime: (seconds, nanos),
        ctime: (i64::from(v[3]), u32::from(v[4])),
        inode: u64::from_be_bytes([v[5], 0, 0, 0, 0, 0, 0, v[6]]),
    };
    // The last block may be a whole one, or a byte.
    let short = u64::from_be_bytes([0, 0, 0, 0, 0, v[8], v[9], v[10]]) % BLOCK_LEN;
    let length = (blocks * BLOCK_LEN).saturating_sub(short);
    Header {
        version,
        blocks: Blocks::new(length),
    }
}

/// Returns a record. Some name blocks that the file does not have.
fn record(number: u64) -> BlockRecord {
    (number, BlockHash([number as u8 ^ 0x5a; 32]))
}

/// Returns the records that are intact at a multiple of their length.
fn intact_records(
    header: &Header,
    sealed: &[BlockRecord],
    whole: &[u8],
    damaged: &[u8],
) -> Vec<BlockRecord> {
    if damaged.get(..HEADER_LEN) != Some(&whole[..HEADER_LEN]) {
        return Vec::new();
    }
    let (written, _) = whole[HEADER_LEN..].as_chunks::<RECORD_LEN>();
    let written: HashMap<_, &BlockRecord> = written.iter().zip(sealed).collect();
    let (slots, _) = damaged[HEADER_LEN..].as_chunks();
    let found = slots.iter().filter_map(|slot| written.get(slot));
    let found = found.map(|record| **record);
    found
        .filter(|record| record.0 < header.blocks.count())
        .collect()
}

/// Reads, resumes and appends as the next run does.
fn check_next_run(file: &MemoryFile, header: &Header, mut expected: Vec<BlockRecord>) {
    let header_intact = has_header(&file.bytes(), header);
    let contents = read(file, header).unwrap();
    assert_eq!(contents.is_some(), header_intact);
    let mut journal = match contents {
        Some(contents) => {
            assert_eq!(contents.records, expected, "in pieces, or all at once");
            Journal::resume(file.clone(), header, contents.end).unwrap()
        }
        None => Journal::create(file.clone(), header).unwrap(),
    };
    let Some(last) = header.blocks.count().checked_sub(1) else {
        return;
    };
    let new = (last, BlockHash([7; 32]));
    journal.append(&[new]).unwrap();
    expected.push(new);
    assert_eq!(read(file, header).unwrap().unwrap().records, expected);
}
