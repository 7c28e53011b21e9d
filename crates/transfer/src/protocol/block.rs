// SPDX-License-Identifier: MIT OR Apache-2.0
//! What stands before each block of a file on a data stream of `longhaul copy`.
//!
//! 64 bytes, big-endian: the file's number in this conversation (8), the block's number in the file (8), the bytes that
//! follow (4), a kind (1), three zeroes, the block's hash (32), and eight zeroes. The block follows at once. A hole has
//! a header and no bytes.

/// Bytes in a header.
pub const HEADER_LEN: usize = 64;

/// The longest block, in bytes, and the length of every block of a file but its last. A receiver needs one buffer of
/// it for each stream. Hashing 4 MiB takes about a millisecond, sending it 34 ms at 1 Gbit/s: short enough that a
/// resume loses little, long enough that 64 bytes and a hash are nothing beside it.
pub const BLOCK_LEN: u32 = 4 << 20;

const DATA: u8 = 0;
const HOLE: u8 = 1;

/// A header's meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The file, as the sender numbered it in this conversation.
    pub file: u64,
    /// The block's number in the file, from 0; its offset is [`BLOCK_LEN`] times that.
    pub block: u64,
    /// What the block holds.
    pub content: Content,
    /// BLAKE3's chaining value of the block where it stands in the file, or of a file of one block the file's hash.
    pub hash: [u8; 32],
}

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// So many bytes, 1 to [`BLOCK_LEN`], follow.
    Data(u32),
    /// Nothing but a hole of the file: zeroes that no disk keeps.
    Hole,
}

/// Why 64 bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no header of a block")]
pub struct BadHeader;

impl Header {
    /// The header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let (length, kind) = match self.content {
            Content::Data(length) => (length, DATA),
            Content::Hole => (0, HOLE),
        };
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&self.file.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.block.to_be_bytes());
        bytes[16..20].copy_from_slice(&length.to_be_bytes());
        bytes[20] = kind;
        bytes[24..56].copy_from_slice(&self.hash);
        bytes
    }

    /// Reads a header. A block beyond the largest offset of a file (2⁶³ − 1, Linux's `loff_t`) is refused too.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, BadHeader> {
        let (file, rest) = bytes.split_first_chunk::<8>().ok_or(BadHeader)?;
        let (block, rest) = rest.split_first_chunk::<8>().ok_or(BadHeader)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or(BadHeader)?;
        let (&[kind, 0, 0, 0], rest) = rest.split_first_chunk::<4>().ok_or(BadHeader)? else {
            return Err(BadHeader);
        };
        let (&hash, &[0, 0, 0, 0, 0, 0, 0, 0]) = rest.split_first_chunk::<32>().ok_or(BadHeader)?
        else {
            return Err(BadHeader);
        };
        let block = u64::from_be_bytes(*block);
        if block > i64::MAX as u64 / u64::from(BLOCK_LEN) {
            return Err(BadHeader);
        }
        let content = match (kind, u32::from_be_bytes(*length)) {
            (DATA, length @ 1..=BLOCK_LEN) => Content::Data(length),
            (HOLE, 0) => Content::Hole,
            _ => return Err(BadHeader),
        };
        Ok(Self {
            file: u64::from_be_bytes(*file),
            block,
            content,
            hash,
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
            hash: [9; 32],
        }
    }

    #[test]
    fn the_layout_is_as_documented() {
        let bytes = header().encode();
        assert_eq!(bytes[..8], [0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(bytes[8..16], [0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(bytes[16..24], [0, 0, 0, 4, DATA, 0, 0, 0]);
        assert_eq!(bytes[24..56], [9; 32]);
        assert_eq!(bytes[56..], [0; 8]);
    }

    #[test]
    fn impossible_headers_are_refused() {
        let changed = |at: usize, value: &[u8]| {
            let mut bytes = header().encode();
            bytes[at..at + value.len()].copy_from_slice(value);
            Header::parse(&bytes)
        };
        assert_eq!(changed(0, &[0]), Ok(header()));
        assert_eq!(changed(16, &[0; 4]), Err(BadHeader), "nothing");
        assert_eq!(
            changed(16, &(BLOCK_LEN + 1).to_be_bytes()),
            Err(BadHeader),
            "too long"
        );
        assert_eq!(changed(20, &[HOLE]), Err(BadHeader), "a hole with bytes");
        assert_eq!(changed(20, &[2]), Err(BadHeader), "unknown kind");
        assert_eq!(changed(23, &[1]), Err(BadHeader), "not zero");
        assert_eq!(changed(63, &[1]), Err(BadHeader), "not zero");
        assert_eq!(changed(8, &[0x10]), Err(BadHeader), "beyond every file");
    }

    proptest! {
        #[test]
        fn whatever_parses_is_encoded_alike(bytes in proptest::array::uniform32(any::<u8>()), more in proptest::array::uniform32(any::<u8>())) {
            let mut all = [0; HEADER_LEN];
            all[..32].copy_from_slice(&bytes);
            all[32..].copy_from_slice(&more);
            // Most are refused; make some of them likely.
            all[8] = 0;
            all[16..24].copy_from_slice(&[0, 0, bytes[18], bytes[19], DATA, 0, 0, 0]);
            all[56..].fill(0);
            if let Ok(header) = Header::parse(&all) {
                prop_assert_eq!(header.encode(), all);
            }
        }
    }
}
