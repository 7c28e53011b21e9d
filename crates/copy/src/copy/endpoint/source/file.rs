// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files at the source: how they are read, and the state of a file that is being sent.

use crate::protocol::{
    message::Portion,
    sections::{SectionHash, Sections},
};
use longhaul_store::{
    blocks::{BlockContent, BlockHash, Blocks, FileHash},
    entry::{Entry, Kind, Version},
    path::RelPath,
    root::Failure,
    tree::scan::{OpenFile, Source},
    vfs::FileOps as _,
};
use rustix::fs::{Advice, fadvise};
use std::{collections::HashMap, io, num::NonZeroU64, sync::Arc};

/// Maximum attempts to read a file. In the last one it may grow.
pub(super) const ATTEMPTS_MAX: u32 = 3;

/// File at the source.
#[derive(Debug)]
pub(super) struct SourceFile {
    pub(super) sources: Arc<[Source]>,
    /// Index of the file's source in `sources`.
    pub(super) source: usize,
    /// Path in the copy.
    pub(super) path: RelPath,
    pub(super) version: Version,
    /// Number of its announcements. The file changed after each of them but the last.
    pub(super) attempts: u32,
    /// Part of the file that this session copies.
    pub(super) portion: Portion,
    /// Whether the file is a piece of a larger file, stored here by an earlier copy.
    pub(super) is_piece: bool,
    /// Number of the extent to which the file belongs, if the coordinator assigned one.
    pub(super) extent_number: Option<u64>,
}

/// Error of reading a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("it changed each time that it was read")]
    Changed,
    #[error(
        "the block at offset {offset} is not what was copied there: remove {part_name} beside it, and copy it there again"
    )]
    Damaged { offset: u64, part_name: String },
    /// The file was removed meanwhile.
    #[error("it has vanished")]
    Vanished,
    #[error("{0}")]
    Unreadable(String),
}

impl From<Failure> for ReadError {
    fn from(failure: Failure) -> Self {
        if failure.is_not_found() {
            Self::Vanished
        } else {
            Self::Unreadable(failure.to_string())
        }
    }
}

impl SourceFile {
    pub(super) fn blocks(&self) -> Blocks {
        Blocks::new(self.version.size)
    }

    /// Returns the maximum number of bytes that this session copies of the file.
    pub(super) fn bytes(&self) -> u64 {
        let blocks = self.blocks();
        let end = |index: u64| blocks.file_len().min(index * blocks.block_len());
        match &self.portion {
            Portion::Whole => blocks.file_len(),
            Portion::Blocks(within) => end(within.end) - end(within.start),
            Portion::KeepPiece(ranges) | Portion::JoinPiece(ranges) => ranges
                .iter()
                .map(|range| end(range.end) - end(range.start))
                .sum(),
            Portion::Finalize => 0,
        }
    }

    pub(super) fn open(&self) -> Result<OpenFile, ReadError> {
        match self.sources[self.source].open_file(&self.path, self.is_piece) {
            Ok(OpenFile::Piece(piece)) if piece.version != self.version => Err(ReadError::Changed),
            other => Ok(other?),
        }
    }

    /// Whether the file may be copied as it was announced although it grows: after the last announcement.
    pub(super) fn may_grow(&self) -> bool {
        self.attempts >= ATTEMPTS_MAX
    }

    /// Asks the kernel to read block `index` ahead. Ignores a block that the file does not have.
    pub(super) fn read_ahead(&self, from: &OpenFile, index: u64) {
        let Ok(range) = self.blocks().range(index) else {
            return;
        };
        // The kernel would fill its cache with the zeros of a hole.
        if from.file().is_hole(&range) {
            return;
        }
        let length = NonZeroU64::new(range.end - range.start);
        let _only_slower = fadvise(from.file(), range.start, length, Advice::WillNeed);
    }

    /// Reads block `index`, if the file is unchanged since it was announced.
    pub(super) fn read<'a>(
        &self,
        from: &OpenFile,
        index: u64,
        buffer: &'a mut Vec<u8>,
    ) -> Result<BlockContent<'a>, ReadError> {
        match self.blocks().read(from.file(), index, buffer) {
            Ok(content) => self.check_unchanged(from).map(|()| content),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ReadError::Changed),
            // If the file has changed, that explains the error better.
            Err(error) => Err(self
                .check_unchanged(from)
                .err()
                .unwrap_or(ReadError::Unreadable(error.to_string()))),
        }
    }

    /// Checks that the file is unchanged. Blocks of a piece are checked by their hashes instead.
    fn check_unchanged(&self, from: &OpenFile) -> Result<(), ReadError> {
        let OpenFile::Whole(file) = from else {
            return Ok(());
        };
        let current =
            Version::of_file(file).map_err(|error| ReadError::Unreadable(error.to_string()))?;
        if current == self.version || self.may_grow() && current.has_grown_since(&self.version) {
            Ok(())
        } else {
            Err(ReadError::Changed)
        }
    }

    /// Whether the file has grown since it was announced.
    ///
    /// # Errors
    /// A block is not what it was when it was read: then the blocks are of several states of the file.
    pub(super) fn check_growth(
        &self,
        from: &OpenFile,
        read: &HashMap<u64, BlockHash>,
    ) -> Result<bool, ReadError> {
        let OpenFile::Whole(file) = from else {
            return Ok(false);
        };
        if Version::of_file(file).is_ok_and(|current| current == self.version) {
            return Ok(false);
        }
        let mut buffer = Vec::new();
        for (index, hash) in read.iter().filter(|(_, hash)| **hash != BlockHash::UNKNOWN) {
            let content = self.read(from, *index, &mut buffer)?;
            if self.blocks().hash_content(*index, content) != Ok(*hash) {
                return Err(ReadError::Changed);
            }
        }
        Ok(true)
    }
}

/// File being sent. Memory: some 50 bytes per block, 12 MiB for a terabyte.
#[derive(Debug)]
pub(super) struct OutgoingFile {
    pub(super) file: Arc<SourceFile>,
    /// Number of blocks that the target lacks.
    missing: u64,
    /// Hashes of the first sections of the target's version.
    known: Vec<SectionHash>,
    /// Hashes of the blocks read so far.
    hashes: HashMap<u64, BlockHash>,
}

impl OutgoingFile {
    pub(super) fn new(file: Arc<SourceFile>, missing: u64, known: Vec<SectionHash>) -> Self {
        Self {
            file,
            missing,
            known,
            hashes: HashMap::new(),
        }
    }

    /// Records that a block was read. Returns whether this was the last missing block. A block that is read again
    /// does not count.
    pub(super) fn record_read(&mut self, index: u64, hash: BlockHash) -> bool {
        self.hashes.insert(index, hash).is_none() && self.hashes.len() as u64 == self.missing
    }

    /// Returns the hashes of a block's sections in the target's version.
    pub(super) fn known(&self, index: u64) -> Vec<SectionHash> {
        if self.known.is_empty() {
            return Vec::new();
        }
        let sections = Sections::of(self.file.version.size);
        sections.of_block(index, &self.known).to_vec()
    }

    /// Returns the hashes of the blocks that were read, by their index.
    pub(super) fn hashes(&self) -> &HashMap<u64, BlockHash> {
        &self.hashes
    }

    /// Returns the file's hash, if all of it was read.
    pub(super) fn hash(&self) -> Option<FileHash> {
        let blocks = self.file.blocks();
        let known = |index| self.hashes.get(&index).copied();
        let all = (0..blocks.count())
            .map(|index| known(index).filter(|hash| *hash != BlockHash::UNKNOWN));
        blocks.file_hash(&all.collect::<Option<Vec<_>>>()?)
    }
}

/// Returns the source file of an entry, to be copied whole; `None` unless the entry is a regular file.
pub(super) fn source_file(
    entry: &Entry,
    sources: &Arc<[Source]>,
    source: usize,
) -> Option<SourceFile> {
    let Kind::File { version, .. } = entry.kind else {
        return None;
    };
    Some(SourceFile {
        sources: sources.clone(),
        source,
        path: entry.path.clone(),
        version,
        attempts: 1,
        portion: Portion::Whole,
        is_piece: false,
        extent_number: None,
    })
}
