// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the source knows of a file that the target wants.

use crate::{copy::open_file::OpenFile, protocol::message::Share};
use longhaul_store::entry::{Entry, Kind};
use longhaul_store::{
    blocks::{BlockHash, Blocks, FileHash},
    entry::Version,
    path::RelPath,
    tree::scan::Source,
};
use rustix::{
    fs::{Advice, SeekFrom, fadvise, seek},
    io::Errno,
};
use std::{
    collections::HashMap, fs::File, io, num::NonZeroU64, ops::Range, os::unix::fs::FileExt,
    sync::Arc,
};

/// A file where it lies.
#[derive(Debug)]
pub(super) struct SourceFile {
    pub(super) sources: Arc<[Source]>,
    /// Which of them it is in.
    pub(super) source: usize,
    /// Its name in the copy.
    pub(super) path: RelPath,
    pub(super) version: Version,
    pub(super) sparse: bool,
    /// How often it was announced; it changed each time but this.
    pub(super) tries: u32,
    /// How much of it is copied here.
    pub(super) share: Share,
    /// It lies there as a piece, which an earlier copy brought.
    pub(super) in_piece: bool,
    /// The extent that it is of, if the driver assigned it.
    pub(super) assignment: Option<u64>,
}

/// Why bytes of a file can't be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    #[error("it changed each time that it was read")]
    Changed,
    #[error(
        "the block at offset {offset} is not what was copied there: remove {own} beside it, and copy it there again"
    )]
    Damaged { offset: u64, own: String },
    #[error("{0}")]
    Unreadable(String),
}

impl SourceFile {
    pub(super) fn blocks(&self) -> Blocks {
        Blocks::of(self.version.size)
    }

    /// So many are copied here, at most.
    pub(super) fn bytes(&self) -> u64 {
        let blocks = self.blocks();
        let end = |index: u64| blocks.file_len().min(index * blocks.block_len());
        match &self.share {
            Share::Whole => blocks.file_len(),
            Share::Blocks(within) => end(within.end) - end(within.start),
            Share::Kept(ranges) | Share::Piece(ranges) => ranges
                .iter()
                .map(|range| end(range.end) - end(range.start))
                .sum(),
            Share::Assembled => 0,
        }
    }

    pub(super) fn open(&self) -> Result<OpenFile, Lost> {
        let place = &self.sources[self.source];
        match OpenFile::of(place, &self.path, self.in_piece) {
            Ok(OpenFile::Piece(piece)) if piece.version != self.version => Err(Lost::Changed),
            other => other.map_err(|error| Lost::Unreadable(error.to_string())),
        }
    }

    /// Block `index` will be read soon: the disk may begin with it. None that the file has not is asked for.
    pub(super) fn expect(&self, from: &OpenFile, index: u64) {
        let Ok(range) = self.blocks().range(index) else {
            return;
        };
        let length = NonZeroU64::new(range.end - range.start);
        let _only_slower = fadvise(from.file(), range.start, length, Advice::WillNeed);
    }

    /// The bytes of block `index`, if the file is still the one that was announced; whether they are a hole.
    pub(super) fn read(
        &self,
        from: &OpenFile,
        index: u64,
        into: &mut Vec<u8>,
    ) -> Result<bool, Lost> {
        let range = self.blocks().range(index);
        let range = range.map_err(|error| Lost::Unreadable(error.to_string()))?;
        into.resize((range.end - range.start) as usize, 0);
        let file = from.file();
        if self.sparse && is_hole(file, &range) {
            into.fill(0);
            return self.check(from).map(|()| true);
        }
        match file.read_exact_at(into, range.start) {
            Ok(()) => self.check(from).map(|()| false),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Lost::Changed),
            // What is no file any more can't be read as one.
            Err(error) => Err(self
                .check(from)
                .err()
                .unwrap_or(Lost::Unreadable(error.to_string()))),
        }
    }

    /// Of a piece each block is known by its hash.
    fn check(&self, from: &OpenFile) -> Result<(), Lost> {
        let OpenFile::Whole(file) = from else {
            return Ok(());
        };
        let now = Version::of_file(file).map_err(|error| Lost::Unreadable(error.to_string()))?;
        match now == self.version {
            true => Ok(()),
            false => Err(Lost::Changed),
        }
    }
}

/// Whether nothing of a range is on the disk. What can't be told is data.
fn is_hole(file: &File, range: &Range<u64>) -> bool {
    match seek(file, SeekFrom::Data(range.start)) {
        Ok(data) => data >= range.end,
        // Nothing behind it either.
        Err(error) => error == Errno::NXIO,
    }
}

/// A file on its way. Memory: some 50 bytes a block, 12 MiB for a terabyte.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) file: Arc<SourceFile>,
    /// Blocks that the target lacks.
    missing: u64,
    /// Those that were read once.
    read: HashMap<u64, BlockHash>,
}

impl Sending {
    pub(super) fn new(file: Arc<SourceFile>, missing: u64) -> Self {
        Self {
            file,
            missing,
            read: HashMap::new(),
        }
    }

    /// A block was read, maybe again; whether all that is missing was read now for the first time.
    pub(super) fn was_read(&mut self, index: u64, hash: BlockHash) -> bool {
        self.read.insert(index, hash).is_none() && self.read.len() as u64 == self.missing
    }

    /// The file's hash, if all of it was read.
    pub(super) fn hash(&self) -> Option<FileHash> {
        let blocks = self.file.blocks();
        let known = |index| self.read.get(&index).copied();
        let all = (0..blocks.count())
            .map(|index| known(index).filter(|hash| *hash != BlockHash::UNKNOWN));
        blocks.file_hash(&all.collect::<Option<Vec<_>>>()?)
    }
}

/// All of a file, if it is one.
pub(super) fn file_of(entry: &Entry, sources: &Arc<[Source]>, source: usize) -> Option<SourceFile> {
    let Kind::File { version, sparse } = entry.kind else {
        return None;
    };
    Some(SourceFile {
        sources: sources.clone(),
        source,
        path: entry.path.clone(),
        version,
        sparse,
        tries: 1,
        share: Share::Whole,
        in_piece: false,
        assignment: None,
    })
}
