// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks of a file, how they are read, and the hashes of blocks and files.
//!
//! A block's hash is the BLAKE3 chaining value of the subtree at its offset. A hash therefore fits
//! no other offset and no other length. Merged, the hashes of all blocks are the BLAKE3 hash of the
//! file, which `b3sum FILE` prints. A block that is the whole file has the file's hash.
//!
//! A block of only zeros is the exception: in a file of several blocks, its hash is a constant
//! ([`BlockHash::ZEROS`]) if it has the full length. Holes are such blocks, and are hashed without
//! being read. The hash of a file with such blocks is therefore not what `b3sum` prints.

use crate::vfs::FileOps;
use blake3::{
    Hasher,
    hazmat::{HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root},
};
use serde::{Deserialize, Serialize};
use std::{fmt, io, ops::Range, str::FromStr};

/// Bytes in every block of a file except the last: 4 MiB. A receiver needs one buffer of this size for each stream.
/// Hashing 4 MiB takes about 1 ms, and sending it 34 ms at 1 Gbit/s. That is short enough that a resumed copy sends
/// little again, and long enough that the cost of a block's header is negligible.
pub const BLOCK_LEN: u64 = 4 << 20;

/// Longest file, in bytes: 64 TiB. While a file is written, the hash and state of each block take
/// 33 bytes of memory: 528 MiB for a file of this length.
pub const FILE_LEN_MAX: u64 = 64 << 40;

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// BLAKE3 hash of a block at its offset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct BlockHash(pub [u8; 32]);

impl BlockHash {
    /// Stands for the hash of a block that was not hashed. No known input has this hash.
    pub const UNKNOWN: Self = Self([0; 32]);

    /// Hash of a block of [`BLOCK_LEN`] zeros in a longer file. No known input has this hash as its
    /// chaining value.
    pub const ZEROS: Self = Self(*b"longhaul block that is all zeros");
}

/// BLAKE3 hash of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct FileHash(pub [u8; 32]);

/// Error for a text that is not a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hash has 64 hexadecimal digits")]
pub struct BadHash;

/// Reason why bytes cannot be the block with the given number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The file ends before this block.
    #[error("there is no block {index} in a file of {file_len} bytes")]
    Beyond {
        /// The block's number, from 0.
        index: u64,
        /// Bytes in the file.
        file_len: u64,
    },
    /// Too many or too few bytes.
    #[error("block {index} at offset {offset} has {len} bytes, not {got}")]
    Length {
        /// The block's number, from 0.
        index: u64,
        /// Offset of the block in the file, in bytes.
        offset: u64,
        /// Bytes that this block has.
        len: u64,
        /// Bytes that were given.
        got: u64,
    },
}

/// Content of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockContent<'a> {
    /// Bytes of the block.
    Data(&'a [u8]),
    /// The file has no data here on disk, and reads as zeros.
    Hole,
}

/// Division of a file of a certain length into blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    file_len: u64,
    block_len: u64,
}

impl Blocks {
    /// Divides a file into blocks of [`BLOCK_LEN`] bytes.
    #[must_use]
    pub fn new(file_len: u64) -> Self {
        Self::with_block_len(file_len, BLOCK_LEN)
    }

    /// Divides a file into blocks of another size: a power of two, and at least 1024, a chunk of
    /// BLAKE3.
    pub(crate) fn with_block_len(file_len: u64, block_len: u64) -> Self {
        assert!(block_len.is_power_of_two() && block_len >= blake3::CHUNK_LEN as u64);
        Self {
            file_len,
            block_len,
        }
    }

    /// Bytes in the file.
    #[must_use]
    pub fn file_len(self) -> u64 {
        self.file_len
    }

    /// Bytes in every block except the last.
    #[must_use]
    pub fn block_len(self) -> u64 {
        self.block_len
    }

    /// Blocks in the file: 0 for an empty file.
    #[must_use]
    pub fn count(self) -> u64 {
        self.file_len.div_ceil(self.block_len)
    }

    /// Byte range of a block in the file.
    pub fn range(self, index: u64) -> Result<Range<u64>, BlockError> {
        let file_len = self.file_len;
        let start = index.checked_mul(self.block_len);
        let start = start.filter(|start| *start < file_len);
        let start = start.ok_or(BlockError::Beyond { index, file_len })?;
        Ok(start..file_len.min(start.saturating_add(self.block_len)))
    }

    /// Reads block `index` of a file. The buffer grows to a block; a hole leaves it as it is. A hole is not read, so that
    /// the time for a file with holes depends on its data, not on its length.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends within the block; otherwise as pread(2).
    pub fn read<'a>(
        self,
        file: &impl FileOps,
        index: u64,
        buffer: &'a mut Vec<u8>,
    ) -> io::Result<BlockContent<'a>> {
        let range = self.range(index).map_err(io::Error::other)?;
        if file.is_hole(&range) {
            return Ok(BlockContent::Hole);
        }
        buffer.resize((range.end - range.start) as usize, 0);
        match file.read_at(buffer, range.start)? {
            read if read == buffer.len() => Ok(BlockContent::Data(buffer)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Reads block `index` of a file, and hashes it.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_hash(
        self,
        file: &impl FileOps,
        index: u64,
        buffer: &mut Vec<u8>,
    ) -> io::Result<BlockHash> {
        let content = self.read(file, index, buffer)?;
        self.hash_content(index, content).map_err(io::Error::other)
    }

    /// Hashes the content of block `index`.
    ///
    /// # Errors
    /// The file has no such block, or the block has another length.
    pub fn hash_content(
        self,
        index: u64,
        content: BlockContent<'_>,
    ) -> Result<BlockHash, BlockError> {
        match content {
            BlockContent::Data(bytes) => self.hash(index, bytes),
            BlockContent::Hole => self.hole_hash(index),
        }
    }

    /// Hashes the bytes of a block.
    pub fn hash(self, index: u64, bytes: &[u8]) -> Result<BlockHash, BlockError> {
        self.check_len(index, bytes.len() as u64)?;
        let range = self.range(index)?;
        Ok(if self.has_constant(&range) && is_zeros(bytes) {
            BlockHash::ZEROS
        } else {
            self.subtree_hash(range.start, bytes)
        })
    }

    /// Whether the hash of this block is a constant if its bytes are zeros.
    fn has_constant(self, range: &Range<u64>) -> bool {
        self.file_len > self.block_len && range.end - range.start == self.block_len
    }

    /// Checks that a block has this number of bytes.
    pub fn check_len(self, index: u64, got: u64) -> Result<(), BlockError> {
        let range = self.range(index)?;
        let (offset, len) = (range.start, range.end - range.start);
        if got == len {
            Ok(())
        } else {
            Err(BlockError::Length {
                index,
                offset,
                len,
                got,
            })
        }
    }

    /// Hash of a block of zeros. Needs 64 KiB of memory, not a whole block.
    pub fn hole_hash(self, index: u64) -> Result<BlockHash, BlockError> {
        let range = self.range(index)?;
        Ok(if self.has_constant(&range) {
            BlockHash::ZEROS
        } else {
            self.hash_zeros(&range)
        })
    }

    fn hash_zeros(self, range: &Range<u64>) -> BlockHash {
        let mut hasher = Hasher::new();
        hasher.set_input_offset(range.start);
        let mut rest = (range.end - range.start) as usize;
        while rest > 0 {
            let piece = rest.min(ZEROS.len());
            hasher.update(&ZEROS[..piece]);
            rest -= piece;
        }
        self.finalize(&hasher)
    }

    fn subtree_hash(self, offset: u64, bytes: &[u8]) -> BlockHash {
        let mut hasher = Hasher::new();
        hasher.set_input_offset(offset).update(bytes);
        self.finalize(&hasher)
    }

    fn finalize(self, hasher: &Hasher) -> BlockHash {
        BlockHash(if self.file_len <= self.block_len {
            *hasher.finalize().as_bytes()
        } else {
            hasher.finalize_non_root()
        })
    }

    /// Merges the hashes of all blocks, in order, into the hash of the file. `None` if there are
    /// too many or too few.
    #[must_use]
    pub fn file_hash(self, hashes: &[BlockHash]) -> Option<FileHash> {
        if hashes.len() as u64 != self.count() {
            return None;
        }
        Some(FileHash(match hashes {
            [] => *blake3::hash(b"").as_bytes(),
            [whole] => whole.0,
            _ => {
                let (left, right) = self.merge_halves(self.file_len, hashes);
                *merge_subtrees_root(&left, &right, Mode::Hash).as_bytes()
            }
        }))
    }

    fn merge_halves(self, len: u64, hashes: &[BlockHash]) -> ([u8; 32], [u8; 32]) {
        let left_len = left_subtree_len(len);
        let (left, right) = hashes.split_at((left_len / self.block_len) as usize);
        (
            self.merge(left_len, left),
            self.merge(len - left_len, right),
        )
    }

    fn merge(self, len: u64, hashes: &[BlockHash]) -> [u8; 32] {
        if let [block] = hashes {
            return block.0;
        }
        let (left, right) = self.merge_halves(len, hashes);
        merge_subtrees_non_root(&left, &right, Mode::Hash)
    }
}

fn is_zeros(bytes: &[u8]) -> bool {
    let mut pieces = bytes.chunks(ZEROS.len());
    pieces.all(|piece| *piece == ZEROS[..piece.len()])
}

/// Merges ascending block numbers into ranges of consecutive numbers.
pub(crate) fn to_ranges(indexes: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for index in indexes {
        match runs.last_mut() {
            Some(run) if run.end == index => run.end += 1,
            _ => runs.push(index..index + 1),
        }
    }
    runs
}

fn from_hex(text: &str) -> Result<[u8; 32], BadHash> {
    let hash = blake3::Hash::from_hex(text).map_err(|_| BadHash)?;
    Ok(*hash.as_bytes())
}

macro_rules! hexadecimal {
    ($hash:ident) => {
        impl fmt::Display for $hash {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
            }
        }

        impl fmt::Debug for $hash {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $hash {
            type Err = BadHash;
            fn from_str(text: &str) -> Result<Self, BadHash> {
                from_hex(text).map(Self)
            }
        }
    };
}

hexadecimal!(BlockHash);
hexadecimal!(FileHash);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::FileExt;

    fn content(len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    }

    fn hashes(blocks: Blocks, content: &[u8]) -> Vec<BlockHash> {
        (0..blocks.count())
            .map(|index| {
                let range = blocks.range(index).unwrap();
                let bytes = &content[range.start as usize..range.end as usize];
                blocks.hash(index, bytes).unwrap()
            })
            .collect()
    }

    /// Hash of a file with this content.
    pub(crate) fn hash_of(blocks: Blocks, content: &[u8]) -> FileHash {
        blocks.file_hash(&hashes(blocks, content)).unwrap()
    }

    fn merges(len: u64, block_len: u64) -> bool {
        let (blocks, content) = (Blocks::with_block_len(len, block_len), content(len));
        hash_of(blocks, &content).0 == *blake3::hash(&content).as_bytes()
    }

    #[test]
    fn merged_hash_equals_whole_hash_at_block_boundaries() {
        for block_len in [1024, 2048, 8192] {
            for boundary in (0u64..=20 * block_len).step_by(1024) {
                for len in boundary.saturating_sub(1)..=boundary + 1 {
                    assert!(merges(len, block_len), "{len} in {block_len}");
                }
            }
        }
    }

    #[test]
    fn merged_hash_equals_whole_hash_with_4_mib_blocks() {
        for len in [
            0,
            1,
            1024,
            BLOCK_LEN - 1,
            BLOCK_LEN,
            BLOCK_LEN + 1,
            2 * BLOCK_LEN,
            5 * BLOCK_LEN + 1025,
        ] {
            assert!(merges(len, BLOCK_LEN), "{len}");
        }
    }

    proptest! {
        #[test]
        fn merged_hash_equals_whole_hash(len in 0u64..200_000, shift in 0u32..6) {
            prop_assert!(merges(len, 1024 << shift));
        }

        #[test]
        fn parses_displayed_hashes(bytes: [u8; 32]) {
            prop_assert_eq!(FileHash(bytes).to_string().parse(), Ok(FileHash(bytes)));
            prop_assert_eq!(BlockHash(bytes).to_string().parse(), Ok(BlockHash(bytes)));
        }
    }

    #[test]
    fn hash_depends_on_offset_and_length() {
        let (len, ones) = (3 * BLOCK_LEN + 5, vec![1; BLOCK_LEN as usize]);
        let first = Blocks::new(len).hash(0, &ones).unwrap();
        assert_ne!(first, Blocks::new(len).hash(1, &ones).unwrap(), "displaced");
        assert_ne!(first.0, *blake3::hash(&ones).as_bytes(), "a whole file");
        assert!(Blocks::new(len).hash(0, &ones[1..]).is_err(), "truncated");
        assert!(
            Blocks::new(len).hash(3, &ones).is_err(),
            "longer than the rest"
        );
        assert!(Blocks::new(len).hash(4, &ones).is_err(), "beyond the end");
        assert!(Blocks::new(len).hash(u64::MAX, &ones).is_err());
        assert!(
            Blocks::new(0).hash(0, b"").is_err(),
            "nothing has no blocks"
        );
    }

    #[test]
    fn hole_hash_equals_hash_of_zeros() {
        for len in [1, BLOCK_LEN - 1, BLOCK_LEN, 2 * BLOCK_LEN + 70_000] {
            let blocks = Blocks::new(len);
            for index in 0..blocks.count() {
                let range = blocks.range(index).unwrap();
                let zeros = vec![0; (range.end - range.start) as usize];
                assert_eq!(blocks.hole_hash(index), blocks.hash(index, &zeros), "{len}");
            }
        }
    }

    #[test]
    fn full_blocks_of_zeros_have_a_constant_hash_in_files_of_several_blocks() {
        let mut bytes = content(4 * 1024 + 700);
        for block in [0, 2, 4] {
            let end = bytes.len().min(block * 1024 + 1024);
            bytes[block * 1024..end].fill(0);
        }
        let blocks = Blocks::with_block_len(bytes.len() as u64, 1024);
        let hashes = hashes(blocks, &bytes);
        let constant = |hash: &BlockHash| *hash == BlockHash::ZEROS;
        let found: Vec<_> = hashes.iter().map(constant).collect();
        assert_eq!(found, [true, false, true, false, false]);
        let b3sum = FileHash(*blake3::hash(&bytes).as_bytes());
        assert_ne!(blocks.file_hash(&hashes), Some(b3sum));

        let single = Blocks::with_block_len(1024, 1024);
        let hash = single.hash(0, &[0; 1024]).unwrap();
        assert_eq!(hash.0, *blake3::hash(&[0; 1024]).as_bytes());
        bytes[2048 + 1023] = 1;
        assert_ne!(blocks.hash(2, &bytes[2048..3072]), Ok(BlockHash::ZEROS));
    }

    #[test]
    fn swapped_or_truncated_blocks_change_the_file_hash() {
        let blocks = Blocks::with_block_len(4096, 1024);
        let mut hashes = hashes(blocks, &content(4096));
        let whole = blocks.file_hash(&hashes).unwrap();
        assert_eq!(blocks.file_hash(&hashes[1..]), None);
        assert_ne!(
            Blocks::with_block_len(3072, 1024).file_hash(&hashes[..3]),
            Some(whole)
        );
        hashes.swap(1, 2);
        assert_ne!(blocks.file_hash(&hashes), Some(whole));
    }

    #[test]
    fn rejects_invalid_hexadecimal() {
        for text in ["", "00", &"0g".repeat(32), &"0".repeat(65)] {
            assert_eq!(text.parse::<FileHash>(), Err(BadHash), "{text}");
        }
    }

    #[test]
    fn reads_data_and_leaves_holes_unread() {
        const LEN: u64 = 64 << 10;
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 * LEN + 7).unwrap();
        file.write_all_at(&[1], 2 * LEN + 9).unwrap();
        let (blocks, mut buffer) = (Blocks::with_block_len(4 * LEN + 7, LEN), Vec::new());
        let mut holes = Vec::new();
        for index in 0..5 {
            let bytes = match blocks.read(&file, index, &mut buffer).unwrap() {
                BlockContent::Data(bytes) => bytes.to_vec(),
                BlockContent::Hole => {
                    holes.push(index);
                    let range = blocks.range(index).unwrap();
                    vec![0; (range.end - range.start) as usize]
                }
            };
            let hash = blocks.hash(index, &bytes).unwrap();
            let hashed = blocks.read_hash(&file, index, &mut buffer).unwrap();
            assert_eq!(hashed, hash, "{index}");
        }
        // On a file system without holes, each block is data.
        assert!(holes.is_empty() || holes == [0, 1, 3, 4], "{holes:?}");
    }

    #[test]
    fn end_within_a_block_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 100], 0).unwrap();
        let read = Blocks::new(101).read_hash(&file, 0, &mut Vec::new());
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let beyond = Blocks::new(100).read_hash(&file, 1, &mut Vec::new());
        assert_eq!(beyond.unwrap_err().kind(), io::ErrorKind::Other);
    }
}
