// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads blocks of a file. A block without data on disk is not read, so that the time for a file
//! with holes depends on its data, not on its length.

use crate::{
    blocks::{BlockError, BlockHash, Blocks},
    vfs::FileOps,
};
use std::io;

/// Content of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockContent<'a> {
    /// Bytes of the block.
    Data(&'a [u8]),
    /// The file has no data here on disk, and reads as zeros.
    Hole,
}

impl BlockContent<'_> {
    /// Hashes the content as block `index`.
    ///
    /// # Errors
    /// The file has no such block, or the block has another length.
    pub fn hash(self, blocks: Blocks, index: u64) -> Result<BlockHash, BlockError> {
        match self {
            Self::Data(bytes) => blocks.hash(index, bytes),
            Self::Hole => blocks.hole_hash(index),
        }
    }
}

/// Reads block `index` of a file. The buffer grows to a block; a hole leaves it as it is.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] if the file ends within the block; otherwise as pread(2).
pub fn read_block<'a>(
    file: &impl FileOps,
    blocks: Blocks,
    index: u64,
    buffer: &'a mut Vec<u8>,
) -> io::Result<BlockContent<'a>> {
    let range = blocks.range(index).map_err(io::Error::other)?;
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
/// As [`read_block`].
pub fn hash_block(
    file: &impl FileOps,
    blocks: Blocks,
    index: u64,
    buffer: &mut Vec<u8>,
) -> io::Result<BlockHash> {
    let content = read_block(file, blocks, index, buffer)?;
    content.hash(blocks, index).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    const LEN: u64 = 64 << 10;

    #[test]
    fn reads_data_and_leaves_holes_unread() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 * LEN + 7).unwrap();
        file.write_all_at(&[1], 2 * LEN + 9).unwrap();
        let (blocks, mut buffer) = (Blocks::with_block_len(4 * LEN + 7, LEN), Vec::new());
        let mut holes = Vec::new();
        for index in 0..5 {
            let bytes = match read_block(&file, blocks, index, &mut buffer).unwrap() {
                BlockContent::Data(bytes) => bytes.to_vec(),
                BlockContent::Hole => {
                    holes.push(index);
                    let range = blocks.range(index).unwrap();
                    vec![0; (range.end - range.start) as usize]
                }
            };
            let hash = blocks.hash(index, &bytes).unwrap();
            let hashed = hash_block(&file, blocks, index, &mut buffer).unwrap();
            assert_eq!(hashed, hash, "{index}");
        }
        // On a file system without holes, each block is data.
        assert!(holes.is_empty() || holes == [0, 1, 3, 4], "{holes:?}");
    }

    #[test]
    fn end_within_a_block_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 100], 0).unwrap();
        let read = hash_block(&file, Blocks::new(101), 0, &mut Vec::new());
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let beyond = hash_block(&file, Blocks::new(100), 1, &mut Vec::new());
        assert_eq!(beyond.unwrap_err().kind(), io::ErrorKind::Other);
    }
}
