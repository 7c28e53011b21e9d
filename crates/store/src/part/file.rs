// SPDX-License-Identifier: MIT OR Apache-2.0
//! Partial file: which blocks were written, which are durable, and how the file gets its name.

use super::{PartError, finished::FinishedFile, paths::PartPaths};
use crate::{
    blocks::{BlockError, BlockHash, Blocks, FileHash, to_ranges},
    entry::Entry,
    part::{
        journal::{BlockRecord, Header, Journal},
        piece_header::{self, PieceHeaderError},
    },
    vfs::{
        Dir, Directory, FileOps,
        file::DirectFile,
        sparse::{Run, runs},
    },
};
use parking_lot::{Mutex, MutexGuard};
use std::{fmt, io, ops::Range};

/// File that is being written block by block.
pub struct Part<D: Directory = Dir> {
    pub(super) paths: PartPaths<D>,
    pub(super) blocks: Blocks,
    /// This is a slice: other processes may write the same file.
    pub(super) is_slice: bool,
    /// The file gets holes for its zeros.
    pub(super) sparse: bool,
    pub(super) file: D::File,
    pub(super) direct: DirectFile<D::File>,
    pub(super) journal: Mutex<Journal<D::File>>,
    pub(super) state: Mutex<BlockStates>,
}

impl<D: Directory> Part<D> {
    /// Division of the file into blocks.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        self.blocks
    }

    #[cfg(test)]
    pub(crate) fn internal_name(&self) -> &[u8] {
        match self.paths.open_part(crate::vfs::OpenMode::Read) {
            Ok(Some((_, internal))) => internal,
            _ => &self.paths.part,
        }
    }

    /// Block numbers that this part covers: all of the file's, or a slice's.
    #[must_use]
    pub fn block_range(&self) -> Range<u64> {
        self.state().range.clone()
    }

    /// Skips reading inherited blocks again at the end: the caller has read them, or they were
    /// written in the same copy.
    pub fn trust_inherited(&self) {
        self.state().inherited.clear();
    }

    /// Reads an inherited block again; returns whether there are more. Calling it while other
    /// blocks arrive shortens [`Part::finish`]. A block that does not match its record, or cannot
    /// be read, is left for `finish` to report.
    pub fn verify_next_inherited(&self) -> Result<bool, PartError> {
        let Some((index, hash)) = self.state().inherited.pop() else {
            return Ok(false);
        };
        let mut buffer = vec![0; self.blocks.block_len() as usize];
        let matches = self.matches_record(index, hash, &mut buffer);
        let mut state = self.state();
        if !matches!(matches, Ok(true)) {
            state.inherited.push((index, hash));
        }
        Ok(matches? && !state.inherited.is_empty())
    }

    /// Durable blocks, in order.
    #[must_use]
    pub fn durable(&self) -> Vec<BlockRecord> {
        self.state().durable()
    }

    /// Whether all blocks of these ranges are durable.
    #[must_use]
    pub fn are_durable(&self, ranges: &[Range<u64>]) -> bool {
        let state = self.state();
        ranges.iter().all(|blocks| state.are_durable(blocks))
    }

    /// Ranges of the blocks that are neither written nor being written.
    #[must_use]
    pub fn missing(&self) -> Vec<Range<u64>> {
        self.state().missing()
    }

    /// Writes a block if its bytes have this hash. Returns false if the block was written already,
    /// or is outside this slice. The block is durable when [`Part::commit`] returns it. Without a
    /// hash the bytes are not checked, and the file gets no hash.
    pub fn write(
        &self,
        index: u64,
        bytes: &[u8],
        hash: Option<BlockHash>,
    ) -> Result<bool, PartError> {
        let range = self.range(index)?;
        if !self.state().is_missing(index) {
            return Ok(false);
        }
        match hash {
            Some(hash) => self.check(index, bytes, hash)?,
            None => self.check_len(index, bytes.len() as u64)?,
        }
        self.write_claimed(index, hash.unwrap_or(BlockHash::UNKNOWN), || {
            if self.sparse {
                self.write_sparse(bytes, range.start)
            } else {
                self.direct.write(&self.file, bytes, range.start)
            }
        })
    }

    fn write_sparse(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        runs(bytes).try_for_each(|run| match run {
            Run::Data(range) => {
                let at = offset + range.start as u64;
                self.direct.write(&self.file, &bytes[range], at)
            }
            Run::Zeros(range) => {
                self.make_hole(offset + range.start as u64..offset + range.end as u64)
            }
        })
    }

    /// Writes a block that is a hole at the source. Returns false if the block was written already.
    pub fn write_hole(&self, index: u64) -> Result<bool, PartError> {
        let range = self.range(index)?;
        if !self.state().is_missing(index) {
            return Ok(false);
        }
        let hash = self.with_name(self.blocks.hole_hash(index))?;
        self.write_claimed(index, hash, || self.make_hole(range))
    }

    fn make_hole(&self, range: Range<u64>) -> io::Result<()> {
        let reads_as_zeros = self.state().reads_as_zeros;
        if reads_as_zeros {
            Ok(())
        } else {
            self.file.zero(range)
        }
    }

    /// Makes all blocks durable that were written before the call, and returns their numbers. Other
    /// threads may write meanwhile. After an error the part cannot be used any more. Blocks that
    /// were durable before are there when the part is opened again.
    pub fn commit(&self) -> Result<Vec<u64>, PartError> {
        let mut journal = self.journal.lock();
        self.check_usable()?;
        let batch = self.state().take_written();
        if !batch.is_empty() {
            let done = self.make_durable(&mut journal, &batch);
            self.state().finish_commit(&batch, done.is_ok());
            done?;
        }
        Ok(batch.into_iter().map(|(index, _)| index).collect())
    }

    fn make_durable(
        &self,
        journal: &mut Journal<D::File>,
        batch: &[BlockRecord],
    ) -> Result<(), PartError> {
        let paths = &self.paths;
        paths.io_context("make its blocks durable", self.file.sync_data())?;
        paths.io_context("write its journal", journal.append(batch))
    }

    /// Gives the file its final name. All blocks must be durable, and the file must have the
    /// expected hash. `prepare` sets the metadata. Inherited blocks are read again, because they
    /// were not locked between the runs.
    pub fn finish(
        self,
        expected: Option<FileHash>,
        prepare: impl FnOnce(&D::File) -> io::Result<()>,
    ) -> Result<FinishedFile<D>, PartError> {
        self.check_usable()?;
        let got = self.hash()?;
        let differs = |got: &FileHash| expected.is_some_and(|expected| expected != *got);
        if let (Some(got), Some(expected)) = (got.filter(differs), expected) {
            let name = self.paths.display_name();
            self.discard()?;
            return Err(PartError::Mismatch {
                name,
                expected,
                got,
            });
        }
        if let Some(offset) = self.first_mismatch()? {
            let name = self.paths.display_name();
            self.discard()?;
            return Err(PartError::Changed { name, offset });
        }
        self.paths.finalize(&self.file, prepare)?;
        Ok(FinishedFile {
            paths: self.paths,
            hash: got,
            journal: self.journal.into_inner().into_file(),
        })
    }

    /// Offset of the first inherited block that does not match its record.
    fn first_mismatch(&self) -> Result<Option<u64>, PartError> {
        let first = self.mismatched_blocks().next().transpose()?;
        first.map(|index| Ok(self.range(index)?.start)).transpose()
    }

    /// Inherited blocks that do not match their records, in turn.
    pub(super) fn mismatched_blocks(&self) -> impl Iterator<Item = Result<u64, PartError>> {
        let inherited = std::mem::take(&mut self.state().inherited);
        let mut buffer = Vec::new();
        inherited.into_iter().filter_map(move |(index, hash)| {
            match self.matches_record(index, hash, &mut buffer) {
                Ok(true) => None,
                other => Some(other.map(|_| index)),
            }
        })
    }

    fn matches_record(
        &self,
        index: u64,
        hash: BlockHash,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, PartError> {
        let read = self.blocks.read_hash(&self.file, index, buffer);
        Ok(self.paths.io_context("read it again", read)? == hash)
    }

    /// Keeps the part as a piece of the file, whose other blocks are on other hosts. Part and
    /// journal stay; a piece header with this `entry` is added (see [`crate::piece`]). Written
    /// blocks are made durable first.
    ///
    /// # Errors
    /// The entry is of another file or version, this is a slice, a commit failed before, or the
    /// system refuses. The part stays as it was.
    pub fn keep_as_piece(self, entry: &Entry) -> Result<(), PartError> {
        self.commit()?;
        let piece_header = self
            .piece_header(entry)
            .map_err(|reason| PartError::PieceHeader {
                name: self.paths.display_name(),
                reason,
            })?;
        // Makes the length durable if no block came.
        self.paths
            .io_context("make it durable", self.file.sync_data())?;
        self.paths.rename_to_piece()?;
        self.paths.write_piece_header(&piece_header)
    }

    fn piece_header(&self, entry: &Entry) -> Result<Vec<u8>, PieceHeaderError> {
        let version = piece_header::file_version(entry)?;
        let header = Header {
            version: version.into(),
            blocks: Blocks::with_block_len(version.size, self.blocks.block_len()),
        };
        if self.is_slice {
            return Err(PieceHeaderError::Slice);
        }
        if entry.path.name() != self.paths.name || !self.journal.lock().has_header(&header) {
            return Err(PieceHeaderError::OtherVersion);
        }
        piece_header::encode(entry)
    }

    /// Removes the part and its journal. A slice is only closed, because other processes may write
    /// the same file.
    pub fn discard(self) -> Result<(), PartError> {
        if self.is_slice {
            return Ok(());
        }
        let paths = &self.paths;
        paths.remove_piece_header()?;
        paths.io_context("remove its journal", paths.dir.remove(&paths.journal))?;
        paths.remove_part()
    }

    /// Hash of the file, unless a block came without a hash. All blocks must be durable.
    pub fn hash(&self) -> Result<Option<FileHash>, PartError> {
        let state = self.state();
        let states = state.states.iter().zip(state.range.clone());
        let mut unfinished = states.filter(|(state, _)| **state != BlockState::Durable);
        match (unfinished.next(), self.blocks.file_hash(&state.hashes)) {
            (None, Some(hash)) => Ok(state.all_hashed().then_some(hash)),
            (first, _) => Err(PartError::Incomplete {
                name: self.paths.display_name(),
                offset: first.map_or(0, |(_, index)| index) * self.blocks.block_len(),
                more: unfinished.count(),
            }),
        }
    }

    fn check_len(&self, index: u64, got: u64) -> Result<(), PartError> {
        self.with_name(self.blocks.check_len(index, got))
    }

    fn check(&self, index: u64, bytes: &[u8], expected: BlockHash) -> Result<(), PartError> {
        let got = self.with_name(self.blocks.hash(index, bytes))?;
        if got == expected {
            return Ok(());
        }
        Err(PartError::Damaged {
            name: self.paths.display_name(),
            offset: self.range(index)?.start,
            expected,
            got,
        })
    }

    /// Writes a block, unless another thread is writing it.
    fn write_claimed(
        &self,
        index: u64,
        hash: BlockHash,
        write: impl FnOnce() -> io::Result<()>,
    ) -> Result<bool, PartError> {
        let range = self.range(index)?;
        self.check_usable()?;
        if !self.state().claim(index) {
            return Ok(false);
        }
        let written = write();
        self.state().finish_write(index, hash, written.is_ok());
        written.map_err(|source| PartError::Write {
            name: self.paths.display_name(),
            offset: range.start,
            source,
        })?;
        Ok(true)
    }

    fn range(&self, index: u64) -> Result<Range<u64>, PartError> {
        self.with_name(self.blocks.range(index))
    }

    fn with_name<T>(&self, block: Result<T, BlockError>) -> Result<T, PartError> {
        let name = || self.paths.display_name();
        block.map_err(|source| PartError::Block {
            name: name(),
            source,
        })
    }

    fn check_usable(&self) -> Result<(), PartError> {
        if !self.state().commit_failed {
            Ok(())
        } else {
            Err(PartError::Broken {
                name: self.paths.display_name(),
            })
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, BlockStates> {
        self.state.lock()
    }
}

impl<D: Directory> fmt::Debug for Part<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({})", self.paths.display_name())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockState {
    Missing,
    Writing,
    Written,
    Durable,
}

/// State and hash of each block. Memory per block: 33 bytes, 40 more if the block is inherited, and
/// 8 more while it is written but not durable.
pub(super) struct BlockStates {
    /// Block numbers that the states cover.
    pub(super) range: Range<u64>,
    pub(super) states: Vec<BlockState>,
    pub(super) hashes: Vec<BlockHash>,
    pub(super) written: Vec<u64>,
    /// Blocks that an earlier run made durable, until they are checked: 40 bytes each.
    pub(super) inherited: Vec<BlockRecord>,
    /// Whether all missing blocks read as zeros.
    pub(super) reads_as_zeros: bool,
    pub(super) commit_failed: bool,
}

impl BlockStates {
    pub(super) fn empty(range: Range<u64>) -> Self {
        let count = (range.end - range.start) as usize;
        Self {
            range,
            states: vec![BlockState::Missing; count],
            hashes: vec![BlockHash::default(); count],
            written: Vec::new(),
            inherited: Vec::new(),
            reads_as_zeros: true,
            commit_failed: false,
        }
    }

    /// States for the records of an earlier run. Records of blocks outside the range are ignored.
    pub(super) fn from_records(range: Range<u64>, records: &[BlockRecord]) -> Self {
        let mut state = Self::empty(range);
        state.reads_as_zeros = false;
        for (index, hash) in records {
            if let Some(at) = state.position(*index) {
                state.states[at] = BlockState::Durable;
                state.hashes[at] = *hash;
            }
        }
        state.inherited = state.durable();
        state
            .inherited
            .retain(|(_, hash)| *hash != BlockHash::UNKNOWN);
        state
    }

    /// Position of a block in the vectors.
    pub(super) fn position(&self, index: u64) -> Option<usize> {
        let range = self.range.contains(&index);
        range.then(|| (index - self.range.start) as usize)
    }

    pub(super) fn all_hashed(&self) -> bool {
        !self.hashes.contains(&BlockHash::UNKNOWN)
    }

    pub(super) fn is_missing(&self, index: u64) -> bool {
        let at = self.position(index);
        at.is_some_and(|at| self.states[at] == BlockState::Missing)
    }

    pub(super) fn set_state(&mut self, index: u64, kind: BlockState) {
        if let Some(at) = self.position(index) {
            self.states[at] = kind;
        }
    }

    pub(super) fn claim(&mut self, index: u64) -> bool {
        let is_missing = self.is_missing(index);
        if is_missing {
            self.set_state(index, BlockState::Writing);
        }
        is_missing
    }

    pub(super) fn finish_write(&mut self, index: u64, hash: BlockHash, done: bool) {
        let Some(at) = self.position(index) else {
            return;
        };
        if done {
            self.states[at] = BlockState::Written;
            self.hashes[at] = hash;
            self.written.push(index);
        } else {
            self.states[at] = BlockState::Missing;
            self.reads_as_zeros = false;
        }
    }

    pub(super) fn take_written(&mut self) -> Vec<BlockRecord> {
        let mut indexes = std::mem::take(&mut self.written);
        indexes.sort_unstable();
        let record = |index: u64| Some((index, self.hashes[self.position(index)?]));
        indexes.into_iter().filter_map(record).collect()
    }

    /// Ends a commit. The kernel reports a failed sync only once, and then counts the pages as
    /// clean. So after a failure no block that was not durable before can be trusted.
    pub(super) fn finish_commit(&mut self, batch: &[BlockRecord], done: bool) {
        self.commit_failed |= !done;
        for (index, _) in batch.iter().filter(|_| done) {
            self.set_state(*index, BlockState::Durable);
        }
    }

    pub(super) fn durable(&self) -> Vec<BlockRecord> {
        let all = self.states.iter().zip(&self.hashes).zip(self.range.clone());
        all.filter(|((kind, _), _)| **kind == BlockState::Durable)
            .map(|((_, hash), index)| (index, *hash))
            .collect()
    }

    /// Returns whether all blocks of a range are durable.
    pub(super) fn are_durable(&self, blocks: &Range<u64>) -> bool {
        blocks.clone().all(|index| {
            let at = self.position(index);
            at.is_some_and(|at| self.states[at] == BlockState::Durable)
        })
    }

    pub(super) fn missing(&self) -> Vec<Range<u64>> {
        let all = self.states.iter().zip(self.range.clone());
        let missing = all.filter(|(kind, _)| **kind == BlockState::Missing);
        to_ranges(missing.map(|(_, index)| index))
    }
}
