// SPDX-License-Identifier: MIT OR Apache-2.0
//! Header of each block of a file on a data stream of `longhaul copy`.
//!
//! The 64 bytes are, in big-endian order:
//!
//! | bytes | meaning |
//! |---|---|
//! | 8 | number of the file in this session |
//! | 8 | number of the block in the file |
//! | 4 | length of the data, in bytes |
//! | 1 | kind |
//! | 3 | zeroes |
//! | 32 | hash of the block |
//! | 8 | sections of a changed block that follow: a bit for each, the lowest for the first; otherwise zeroes |
//!
//! The data follows the header immediately. A hole has a header and no data, nor has a block that the target has already.

use longhaul_store::blocks::{BLOCK_LEN, BlockHash};

/// Length of a header, in bytes.
pub const HEADER_LEN: usize = 64;

/// Maximum length of the data of a block, in bytes.
const LENGTH_MAX: u32 = BLOCK_LEN as u32;

const DATA: u8 = 0;
const HOLE: u8 = 1;
const CHANGED: u8 = 2;

/// Decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Number that the sender gave the file in this session.
    pub file: u64,
    /// Index of the block in the file, from 0. Its offset is the index times [`BLOCK_LEN`].
    pub block: u64,
    /// Content of the block.
    pub content: Content,
    /// BLAKE3 chaining value of the block at its offset in the file. For a file of one block, the hash of the file.
    pub hash: BlockHash,
}

/// Content of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Data of this length in bytes, 1 to [`BLOCK_LEN`], which follows the header.
    Data(u32),
    /// Part of a hole of the file: zeroes for which no disk space is allocated.
    Hole,
    /// Block that the target has in another version of the file, in part or as a whole.
    Changed {
        /// Sections that follow the header. The target has the others.
        sections: u64,
        /// Length of these sections in bytes, 0 to [`BLOCK_LEN`].
        length: u32,
    },
}

/// Error for 64 bytes that are not a valid header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a block header")]
pub struct BadHeader;

impl Header {
    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let (length, kind, sections) = match self.content {
            Content::Data(length) => (length, DATA, 0),
            Content::Hole => (0, HOLE, 0),
            Content::Changed { sections, length } => (length, CHANGED, sections),
        };
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&self.file.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.block.to_be_bytes());
        bytes[16..20].copy_from_slice(&length.to_be_bytes());
        bytes[20] = kind;
        bytes[24..56].copy_from_slice(&self.hash.0);
        bytes[56..].copy_from_slice(&sections.to_be_bytes());
        bytes
    }

    /// Decodes a header. Rejects a block beyond the largest offset of a file (2⁶³ − 1, Linux's `loff_t`) too.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, BadHeader> {
        let (file, rest) = bytes.split_first_chunk::<8>().ok_or(BadHeader)?;
        let (block, rest) = rest.split_first_chunk::<8>().ok_or(BadHeader)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or(BadHeader)?;
        let (&[kind, 0, 0, 0], rest) = rest.split_first_chunk::<4>().ok_or(BadHeader)? else {
            return Err(BadHeader);
        };
        let (&hash, sections) = rest.split_first_chunk::<32>().ok_or(BadHeader)?;
        let sections = u64::from_be_bytes(sections.try_into().map_err(|_| BadHeader)?);
        let block = u64::from_be_bytes(*block);
        if block > i64::MAX as u64 / BLOCK_LEN {
            return Err(BadHeader);
        }
        let content = match (kind, u32::from_be_bytes(*length), sections) {
            (DATA, length @ 1..=LENGTH_MAX, 0) => Content::Data(length),
            (HOLE, 0, 0) => Content::Hole,
            (CHANGED, length @ 0..=LENGTH_MAX, _) if (length == 0) == (sections == 0) => {
                Content::Changed { sections, length }
            }
            _ => return Err(BadHeader),
        };
        Ok(Self {
            file: u64::from_be_bytes(*file),
            block,
            content,
            hash: BlockHash(hash),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header {
            file: 0x0102,
            block: 3,
            content: Content::Data(4),
            hash: BlockHash([9; 32]),
        }
    }

    #[test]
    fn encodes_the_documented_layout() {
        let bytes = header().encode();
        assert_eq!(bytes[..8], [0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(bytes[8..16], [0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(bytes[16..24], [0, 0, 0, 4, DATA, 0, 0, 0]);
        assert_eq!(bytes[24..56], [9; 32]);
        assert_eq!(bytes[56..], [0; 8]);
    }

    #[test]
    fn rejects_invalid_headers() {
        let changed = |at: usize, value: &[u8]| {
            let mut bytes = header().encode();
            bytes[at..at + value.len()].copy_from_slice(value);
            Header::parse(&bytes)
        };
        assert_eq!(changed(0, &[0]), Ok(header()));
        assert_eq!(changed(16, &[0; 4]), Err(BadHeader), "nothing");
        assert_eq!(
            changed(16, &(LENGTH_MAX + 1).to_be_bytes()),
            Err(BadHeader),
            "too long"
        );
        assert_eq!(changed(20, &[HOLE]), Err(BadHeader), "a hole with bytes");
        assert_eq!(
            changed(20, &[CHANGED]),
            Err(BadHeader),
            "bytes of no section"
        );
        assert_eq!(changed(20, &[3]), Err(BadHeader), "unknown kind");
        assert_eq!(changed(23, &[1]), Err(BadHeader), "not zero");
        assert_eq!(changed(63, &[1]), Err(BadHeader), "not zero");
        assert_eq!(changed(8, &[0x10]), Err(BadHeader), "beyond every file");
    }

    proptest! {
        #[test]
        fn parsed_headers_encode_to_the_same_bytes(bytes in proptest::array::uniform32(any::<u8>()), more in proptest::array::uniform32(any::<u8>())) {
            let mut all = [0; HEADER_LEN];
            all[..32].copy_from_slice(&bytes);
            all[32..].copy_from_slice(&more);
            // Random bytes are mostly rejected; these make a valid header likely.
            all[8] = 0;
            let kind = bytes[20] % 3;
            all[16..24].copy_from_slice(&[0, 0, bytes[18], bytes[19], kind, 0, 0, 0]);
            if kind != CHANGED {
                all[56..].fill(0);
            }
            if let Ok(header) = Header::parse(&all) {
                prop_assert_eq!(header.encode(), all);
            }
        }
    }
}
