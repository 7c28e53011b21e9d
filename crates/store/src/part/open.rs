// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a partial file: begins a new one, or continues after an earlier run.

use super::{
    PartError,
    file::{BlockState, BlockStates, Part},
    finished::RenamedFile,
    paths::{PartPaths, SourceInfo},
    slices,
};
use crate::{
    blocks::{BLOCK_LEN, BlockHash, Blocks, FileHash},
    part::journal::{self, BlockRecord, Header, Journal},
    vfs::{Dir, Directory, FileOps, OpenMode, file::DirectFile},
};
use parking_lot::Mutex;
use std::{io, ops::Range};

/// Outcome of [`Part::open`].
pub enum OpenOutcome<D: Directory = Dir> {
    /// The file is being written by another copy.
    Busy,
    /// New part: no usable one was found.
    Fresh(Part<D>),
    /// Existing part with some durable blocks, maybe none: [`Part::durable`].
    Resumed(Part<D>),
    /// The whole file has its final name already. The last copy ended before it recorded that.
    Renamed(RenamedFile<D>),
}

impl<D: Directory> Part<D> {
    /// Opens the part of the file `name` in `dir`, or creates it.
    pub fn open(
        dir: &D,
        name: &[u8],
        source_info: &SourceInfo,
    ) -> Result<OpenOutcome<D>, PartError> {
        Self::open_with_block_len(dir, name, source_info, BLOCK_LEN)
    }

    pub(crate) fn open_with_block_len(
        dir: &D,
        name: &[u8],
        source_info: &SourceInfo,
        block_len: u64,
    ) -> Result<OpenOutcome<D>, PartError> {
        let paths = PartPaths::new(dir, name)?;
        let header = paths.header(source_info, block_len)?;
        busy_to_outcome(
            PartOpener::new(paths, header, source_info.sparse).and_then(PartOpener::open),
        )
    }

    /// Opens blocks of a file while other processes write other blocks of it, or the same. At most
    /// [`SLICES_MAX`](super::SLICES_MAX) slices are open at once, on hosts that share the file
    /// system and its locks.
    ///
    /// `blocks` are ascending, disjoint ranges. Blocks between them count as missing here, but must
    /// not be written. Numbers beyond the end of the file are ignored. Durable blocks of the slice
    /// are read again; those that do not match their records count as missing. [`Part::open`]
    /// returns busy as long as a slice is open.
    pub fn open_slice(
        dir: &D,
        name: &[u8],
        source_info: &SourceInfo,
        blocks: &[Range<u64>],
    ) -> Result<OpenOutcome<D>, PartError> {
        Self::open_slice_with_block_len(dir, name, source_info, blocks, BLOCK_LEN)
    }

    pub(crate) fn open_slice_with_block_len(
        dir: &D,
        name: &[u8],
        source_info: &SourceInfo,
        blocks: &[Range<u64>],
        block_len: u64,
    ) -> Result<OpenOutcome<D>, PartError> {
        let open_existing = || {
            let paths = PartPaths::new(dir, name)?;
            let header = paths.header(source_info, block_len)?;
            slices::open_slice(paths, header, source_info.sparse, blocks)
        };
        busy_to_outcome(open_existing().and_then(|slice| {
            if let Some(slice) = slice {
                return Ok(OpenOutcome::Resumed(slice));
            }
            match Self::open_with_block_len(dir, name, source_info, block_len)? {
                // Created; from now on slices can share it.
                OpenOutcome::Fresh(whole) | OpenOutcome::Resumed(whole) => drop(whole),
                other => return Ok(other),
            }
            Ok(open_existing()?.map_or(OpenOutcome::Busy, OpenOutcome::Resumed))
        }))
    }
}

/// Turns the error that another process holds the file into an outcome.
fn busy_to_outcome<D: Directory>(
    opened: Result<OpenOutcome<D>, PartError>,
) -> Result<OpenOutcome<D>, PartError> {
    match opened {
        Err(error) if error.is_busy() => Ok(OpenOutcome::Busy),
        opened => opened,
    }
}

/// State known when a part is opened. The journal is opened first, because its lock is held
/// longest.
struct PartOpener<D: Directory> {
    paths: PartPaths<D>,
    header: Header,
    sparse: bool,
    journal: D::File,
    /// The journal was used before, so journals of slices may exist.
    used: bool,
    contents: Option<journal::Contents>,
}

impl<D: Directory> PartOpener<D> {
    fn new(paths: PartPaths<D>, header: Header, sparse: bool) -> Result<Self, PartError> {
        // Another version of the file may have been so small that it was written whole.
        paths.remove_unlocked(&paths.whole)?;
        let journal = paths.create(&paths.journal)?;
        let used = !paths.io_context("read the size of its journal", journal.is_empty())?;
        let contents = paths.io_context("read its journal", journal::read(&journal, &header))?;
        Ok(Self {
            paths,
            header,
            sparse,
            journal,
            used,
            contents,
        })
    }

    fn open(mut self) -> Result<OpenOutcome<D>, PartError> {
        let part = self.paths.open_earlier_part()?;
        let contents = self.contents.take();
        match (part, contents) {
            (Some(part), Some(contents)) if self.has_expected_len(&part)? => {
                Ok(OpenOutcome::Resumed(self.resume(part, contents)?))
            }
            (None, Some(contents)) => match self.find_renamed(&contents.records)? {
                Some((file, hash)) => Ok(OpenOutcome::Renamed(RenamedFile {
                    paths: self.paths,
                    hash,
                    file,
                    journal: self.journal,
                })),
                None => Ok(OpenOutcome::Fresh(self.create()?)),
            },
            (part, _) => {
                drop(part);
                Ok(OpenOutcome::Fresh(self.create()?))
            }
        }
    }

    fn has_expected_len(&self, part: &D::File) -> Result<bool, PartError> {
        let len = self
            .paths
            .io_context("read the size of its part", part.len())?;
        Ok(len == self.header.blocks.file_len())
    }

    fn create(self) -> Result<Part<D>, PartError> {
        let (paths, header) = (self.paths, self.header);
        paths.remove_piece_header()?;
        if self.used {
            paths.remove_slice_journals()?;
        }
        let file = paths.create_part()?;
        let journal =
            paths.io_context("create its journal", Journal::create(self.journal, &header))?;
        paths.io_context("make its name durable", paths.dir.sync())?;
        let sized = set_size(&file, header.blocks.file_len(), self.sparse);
        if sized.is_err() {
            let _frees_space = file.set_len(0);
        }
        paths.io_context("reserve space for it", sized)?;
        let state = BlockStates::empty(0..header.blocks.count());
        Ok(assemble(paths, &header, self.sparse, file, journal, state))
    }

    /// Continues a part. It has its length, so its name and the journal's are durable.
    fn resume(self, file: D::File, contents: journal::Contents) -> Result<Part<D>, PartError> {
        let (paths, header) = (self.paths, self.header);
        let journal::Contents { records, end } = contents;
        let sized = set_size(&file, header.blocks.file_len(), self.sparse);
        paths.io_context("reserve space for it", sized)?;
        let journal = Journal::resume(self.journal, &header, end);
        let mut journal = paths.io_context("make its journal durable", journal)?;
        let records = slices::merge_slices(&paths, &header, &mut journal, records)?;
        let state = BlockStates::from_records(0..header.blocks.count(), &records);
        Ok(assemble(paths, &header, self.sparse, file, journal, state))
    }

    /// File that has the final name, if every block of it matches the journal.
    fn find_renamed(
        &self,
        records: &[BlockRecord],
    ) -> Result<Option<(D::File, FileHash)>, PartError> {
        let (paths, blocks) = (&self.paths, self.header.blocks);
        let state = BlockStates::from_records(0..blocks.count(), records);
        let Ok(Some(file)) = paths.dir.open(&paths.name, OpenMode::Read) else {
            return Ok(None);
        };
        let all_known = !state.states.contains(&BlockState::Missing) && state.all_hashed();
        if !all_known
            || !paths.io_context(
                "read it again",
                matches_hashes(&file, blocks, &state.hashes),
            )?
        {
            return Ok(None);
        }
        Ok(blocks.file_hash(&state.hashes).map(|hash| (file, hash)))
    }
}

fn matches_hashes(file: &impl FileOps, blocks: Blocks, hashes: &[BlockHash]) -> io::Result<bool> {
    if file.len()? != blocks.file_len() {
        return Ok(false);
    }
    let mut buffer = Vec::new();
    for (index, hash) in hashes.iter().enumerate() {
        if blocks.read_hash(file, index as u64, &mut buffer)? != *hash {
            return Ok(false);
        }
    }
    Ok(true)
}

fn assemble<D: Directory>(
    paths: PartPaths<D>,
    header: &Header,
    sparse: bool,
    file: D::File,
    journal: Journal<D::File>,
    state: BlockStates,
) -> Part<D> {
    Part {
        state: Mutex::new(state),
        blocks: header.blocks,
        is_slice: false,
        sparse,
        paths,
        direct: DirectFile::open(&file),
        file,
        journal: Mutex::new(journal),
    }
}

fn set_size(file: &impl FileOps, len: u64, sparse: bool) -> io::Result<()> {
    if !sparse {
        file.allocate(len)?;
    }
    file.set_len(len)
}
