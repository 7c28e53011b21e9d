// SPDX-License-Identifier: MIT OR Apache-2.0
//! Journal of an unfinished file's durable blocks: a header with the version of the file, and a
//! record for each block.
//!
//! A disk that loses power keeps an arbitrary part of what was not synced. So each record has its
//! own check, bound to the header, and lies at a multiple of its length after the header. A record
//! with a correct check is valid whatever surrounds it. All other bytes are ignored.
//!
//! All numbers are big-endian. The fields of the header, with their lengths in bytes:
//!
//! - Magic (8) and format (4).
//! - Nanoseconds of mtime (4) and of ctime (4), zeros (4).
//! - Bytes in a block (8) and in the file (8).
//! - Size, mtime in seconds, ctime in seconds and inode of the source (8 each).
//! - Zeros (8), BLAKE3 of all this (32).
//!
//! A record has the block's number (8), its hash (32), and the BLAKE3 of both, keyed by the header
//! and truncated (8).

use crate::{
    blocks::{BlockHash, Blocks},
    entry,
    metadata::Time,
    vfs::FileOps,
};
use std::io;

/// Bytes in the header: less than a sector, so that it is written as a whole or not at all.
pub const HEADER_LEN: usize = 112;

/// Bytes in a record.
pub const RECORD_LEN: usize = 48;

/// Records read at once: 192 KiB of memory, whatever the length of the journal.
const READ_RECORDS: usize = 4096;

const MAGIC: &[u8; 8] = b"longhaul";
const FORMAT: u32 = 3;
const CHECKED_LEN: usize = HEADER_LEN - 32;
const KEY_CONTEXT: &str = "longhaul 2026 journal record";

/// State of a source file. A change of the source that alters none of these fields goes unnoticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Version {
    /// Bytes in the file.
    pub size: u64,
    /// Modification time: seconds since 1970, and nanoseconds.
    pub mtime: (i64, u32),
    /// Change time of the metadata: seconds since 1970, and nanoseconds.
    pub ctime: (i64, u32),
    /// Inode number. The device number is not included: it differs between the hosts of a shared
    /// file system, and may change at a reboot.
    pub inode: u64,
}

impl From<&entry::Version> for Version {
    fn from(version: &entry::Version) -> Self {
        let time = |time: Time| (time.seconds, time.nanos);
        Self {
            size: version.size,
            mtime: time(version.modified),
            ctime: time(version.changed),
            inode: version.inode,
        }
    }
}

/// Header of a journal: the version of the file that it is about, and the length of the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Version of the source file.
    pub version: Version,
    /// Length of the file and of its blocks.
    pub blocks: Blocks,
}

/// Number and hash of a durable block.
pub type BlockRecord = (u64, BlockHash);

impl Header {
    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let version = &self.version;
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_be_bytes());
        bytes[12..16].copy_from_slice(&version.mtime.1.to_be_bytes());
        bytes[16..20].copy_from_slice(&version.ctime.1.to_be_bytes());
        let words = [
            self.blocks.block_len(),
            self.blocks.file_len(),
            version.size,
            version.mtime.0.cast_unsigned(),
            version.ctime.0.cast_unsigned(),
            version.inode,
        ];
        let (places, _) = bytes[24..].as_chunks_mut();
        for (word, place) in words.iter().zip(places) {
            *place = word.to_be_bytes();
        }
        let check = blake3::hash(&bytes[..CHECKED_LEN]);
        bytes[CHECKED_LEN..].copy_from_slice(check.as_bytes());
        bytes
    }

    fn key(&self) -> Key {
        Key(blake3::derive_key(KEY_CONTEXT, &self.encode()))
    }

    fn accepts(&self, record: &BlockRecord) -> bool {
        record.0 < self.blocks.count()
    }
}

/// Whether a journal begins with this header, undamaged.
#[must_use]
pub fn has_header(journal: &[u8], header: &Header) -> bool {
    journal.starts_with(&header.encode())
}

/// Valid records in the bytes of a journal with this header.
pub fn records(journal: &[u8], header: &Header) -> Vec<BlockRecord> {
    if !has_header(journal, header) {
        return Vec::new();
    }
    valid_records(&journal[HEADER_LEN..], header, &header.key()).collect()
}

fn valid_records<'a>(
    slots: &'a [u8],
    header: &'a Header,
    key: &'a Key,
) -> impl Iterator<Item = BlockRecord> + 'a {
    let slots = slots.as_chunks().0.iter();
    slots
        .filter_map(|slot| key.open(slot))
        .filter(|record| header.accepts(record))
}

/// Key that binds records to their header.
#[derive(Clone)]
struct Key([u8; 32]);

impl Key {
    fn seal(&self, (index, hash): &BlockRecord) -> [u8; RECORD_LEN] {
        let mut slot = [0; RECORD_LEN];
        slot[..8].copy_from_slice(&index.to_be_bytes());
        slot[8..40].copy_from_slice(&hash.0);
        let check = self.check(&slot[..40]);
        slot[40..].copy_from_slice(&check);
        slot
    }

    fn open(&self, slot: &[u8; RECORD_LEN]) -> Option<BlockRecord> {
        let (index, rest) = slot.split_first_chunk()?;
        let (hash, check) = rest.split_first_chunk()?;
        let is_valid = *check == self.check(&slot[..40]);
        is_valid.then_some((u64::from_be_bytes(*index), BlockHash(*hash)))
    }

    fn check(&self, bytes: &[u8]) -> [u8; 8] {
        let mut check = [0; 8];
        check.copy_from_slice(&blake3::keyed_hash(&self.0, bytes).as_bytes()[..8]);
        check
    }
}

/// Contents of a journal.
#[derive(Debug)]
pub struct Contents {
    /// Valid records: 40 bytes of memory each.
    pub records: Vec<BlockRecord>,
    /// Offset at which the next record is written.
    pub end: u64,
}

/// Reads a journal in chunks; `None` if it has another header.
pub fn read(file: &impl FileOps, header: &Header) -> io::Result<Option<Contents>> {
    let mut start = [0; HEADER_LEN];
    file.read_at(&mut start, 0)?;
    if !has_header(&start, header) {
        return Ok(None);
    }
    let (key, mut records) = (header.key(), Vec::new());
    let mut end = HEADER_LEN as u64;
    let mut slots = vec![0; READ_RECORDS * RECORD_LEN];
    loop {
        let read = file.read_at(&mut slots, end)?;
        records.extend(valid_records(&slots[..read], header, &key));
        end += read.next_multiple_of(RECORD_LEN) as u64;
        if read < slots.len() {
            return Ok(Some(Contents { records, end }));
        }
    }
}

/// Journal that is open for writing. Its owner holds the lock of the file.
pub struct Journal<M> {
    file: M,
    key: Key,
    /// Offset at which the next record is written.
    end: u64,
}

impl<M: FileOps> Journal<M> {
    /// Continues the journal that was read from this file. Syncs it first: it may have been written
    /// by a process that died before its sync.
    pub fn resume(file: M, header: &Header, end: u64) -> io::Result<Self> {
        file.sync_data()?;
        let key = header.key();
        Ok(Self { file, key, end })
    }

    /// Writes an empty journal, durably. The former contents of the file are lost.
    pub fn create(file: M, header: &Header) -> io::Result<Self> {
        file.set_len(0)?;
        file.write_at(&header.encode(), 0)?;
        file.sync_data()?;
        Ok(Self {
            file,
            key: header.key(),
            end: HEADER_LEN as u64,
        })
    }

    /// Appends records and makes them durable. After an error, any of them may be durable.
    pub fn append(&mut self, records: &[BlockRecord]) -> io::Result<()> {
        let mut slots = Vec::with_capacity(records.len() * RECORD_LEN);
        for record in records {
            slots.extend(self.key.seal(record));
        }
        self.file.write_at(&slots, self.end)?;
        self.file.sync_data()?;
        self.end += slots.len() as u64;
        Ok(())
    }

    /// Whether the journal has this header.
    pub(crate) fn has_header(&self, header: &Header) -> bool {
        self.key.0 == header.key().0
    }

    /// Returns the file, which still holds the lock.
    pub(crate) fn into_file(self) -> M {
        self.file
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{Dir, Directory, OpenMode};
    use proptest::prelude::*;
    use std::os::fd::AsFd;

    fn header() -> Header {
        Header {
            version: Version {
                size: 10,
                mtime: (-1, 2),
                ctime: (3, 4),
                inode: 5,
            },
            blocks: Blocks::with_block_len(100 * 1024, 1024),
        }
    }

    fn journal(header: &Header, records: &[BlockRecord]) -> Vec<u8> {
        let key = header.key();
        let slots = records.iter().flat_map(|record| key.seal(record));
        header.encode().into_iter().chain(slots).collect()
    }

    fn some_records() -> Vec<BlockRecord> {
        (0..5).map(|n| (n * 7, BlockHash([n as u8; 32]))).collect()
    }

    #[test]
    fn writes_the_documented_header() {
        let bytes = header().encode();
        let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(&bytes[..12], b"longhaul\0\0\0\x03");
        let numbers: Vec<u64> = (8..80).step_by(8).map(number).collect();
        let format_and_nanoseconds = [3 << 32 | 2, 4 << 32];
        assert_eq!(numbers[..2], format_and_nanoseconds);
        assert_eq!(numbers[2..], [1024, 102_400, 10, u64::MAX, 3, 5, 0]);
        assert_eq!(bytes[80..], *blake3::hash(&bytes[..80]).as_bytes());
    }

    #[test]
    fn reads_valid_records_at_any_position() {
        let mut bytes = journal(&header(), &some_records());
        bytes[HEADER_LEN + RECORD_LEN..][..RECORD_LEN].fill(0);
        bytes[HEADER_LEN + 3 * RECORD_LEN + 20] ^= 1;
        bytes.truncate(bytes.len() - 1);
        let kept = [some_records()[0], some_records()[2]];
        assert_eq!(records(&bytes, &header()), kept);
    }

    #[test]
    fn ignores_records_of_blocks_beyond_the_file() {
        let beyond = (100, BlockHash::default());
        assert_eq!(records(&journal(&header(), &[beyond]), &header()), []);
    }

    #[test]
    fn ignores_all_records_under_another_header() {
        let bytes = journal(&header(), &some_records());
        type Change = fn(&mut Header);
        let changes: [Change; 7] = [
            |header| header.version.size += 1,
            |header| header.version.mtime.0 += 1,
            |header| header.version.mtime.1 += 1,
            |header| header.version.ctime.0 += 1,
            |header| header.version.ctime.1 += 1,
            |header| header.version.inode += 1,
            |header| header.blocks = Blocks::with_block_len(header.blocks.file_len() + 1, 1024),
        ];
        for change in changes {
            let mut other = header();
            change(&mut other);
            assert_eq!(records(&bytes, &other), [], "{other:?}");
            let mut grafted = bytes.clone();
            grafted[..HEADER_LEN].copy_from_slice(&other.encode());
            assert_eq!(records(&grafted, &other), [], "records of another header");
        }
    }

    #[test]
    fn ignores_all_records_under_a_torn_header() {
        let whole = journal(&header(), &some_records());
        for at in 0..HEADER_LEN {
            let mut torn = whole.clone();
            torn[at] ^= 1;
            assert_eq!(records(&torn, &header()), [], "{at}");
            assert_eq!(records(&whole[..at], &header()), [], "{at}");
        }
    }

    #[test]
    fn appends_after_a_torn_record_and_reads_many_records() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::new(std::fs::File::open(temp.path()).unwrap().as_fd()).unwrap();
        let open = || {
            dir.open(b"journal", OpenMode::CreateExclusive)
                .unwrap()
                .unwrap()
        };
        let header = Header {
            blocks: Blocks::with_block_len(1 << 40, 1024),
            ..header()
        };
        let many = READ_RECORDS as u64 * 2;
        let mut want: Vec<BlockRecord> = (0..many).map(|n| (n, BlockHash::default())).collect();
        let mut journal = Journal::create(open(), &header).unwrap();
        journal.append(&want).unwrap();
        journal.file.append(b"torn").unwrap();
        drop(journal);
        let file = open();
        let contents = read(&file, &header).unwrap().unwrap();
        assert_eq!(contents.records, want);
        let mut journal = Journal::resume(file, &header, contents.end).unwrap();
        journal.append(&[(many, BlockHash::default())]).unwrap();
        drop(journal);
        want.push((many, BlockHash::default()));
        let contents = read(&open(), &header).unwrap().unwrap();
        assert_eq!(contents.records, want);
    }

    proptest! {
        /// Only records that were written are read, whatever happened to the bytes.
        #[test]
        fn damage_never_creates_a_record(damage in prop::collection::vec((0usize..400, any::<u8>()), 0..20), cut in 0usize..400) {
            let mut bytes = journal(&header(), &some_records());
            for (at, byte) in damage {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            bytes.truncate(cut);
            for record in records(&bytes, &header()) {
                prop_assert!(some_records().contains(&record));
            }
        }

        #[test]
        fn arbitrary_bytes_contain_no_records(bytes: Vec<u8>, slots: Vec<u8>) {
            prop_assert_eq!(records(&bytes, &header()), []);
            let mut bytes = header().encode().to_vec();
            bytes.extend(slots);
            prop_assert_eq!(records(&bytes, &header()), []);
        }
    }
}
