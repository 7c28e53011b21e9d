// SPDX-License-Identifier: MIT OR Apache-2.0
//! Partial file: which blocks were written, which are durable, and how the file gets its name.

use super::{
    PartError,
    finished::Finished,
    site::Site,
    state::{Kind, State},
};
use crate::{
    blocks::{BlockHash, Blocks, FileHash, NoSuchBlock},
    entry::Entry,
    part::{
        journal::{Header, Journal, Record},
        label::{self, BadLabel},
    },
    vfs::{
        Dir, Directory, FileOps,
        direct::DirectFile,
        sparse::{Run, runs},
    },
};
use parking_lot::{Mutex, MutexGuard};
use std::{fmt, io, ops::Range};

/// File that is being written block by block.
pub struct Part<D: Directory = Dir> {
    pub(super) site: Site<D>,
    pub(super) blocks: Blocks,
    /// This is a slice: other processes may write the same file.
    pub(super) shared: bool,
    /// The file gets holes for its zeros.
    pub(super) sparse: bool,
    pub(super) file: D::File,
    pub(super) direct: DirectFile<D::File>,
    pub(super) journal: Mutex<Journal<D::File>>,
    pub(super) state: Mutex<State>,
}

impl<D: Directory> Part<D> {
    /// Division of the file into blocks.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        self.blocks
    }

    #[cfg(test)]
    pub(crate) fn own_name(&self) -> &[u8] {
        match self.site.open_part(crate::vfs::OpenMode::Read) {
            Ok(Some((_, own))) => own,
            _ => &self.site.part,
        }
    }

    /// Block numbers that this part covers: all of the file's, or a slice's.
    #[must_use]
    pub fn within(&self) -> Range<u64> {
        self.state().within.clone()
    }

    /// Skips reading inherited blocks again at the end: the caller has read them, or they were
    /// written in the same copy.
    pub fn trust(&self) {
        self.state().inherited.clear();
    }

    /// Reads an inherited block again; returns whether there are more. Calling it while other
    /// blocks arrive shortens [`Part::finish`]. A block that does not match its record, or cannot
    /// be read, is left for `finish` to report.
    pub fn check_next(&self) -> Result<bool, PartError> {
        let Some((index, hash)) = self.state().inherited.pop() else {
            return Ok(false);
        };
        let mut buffer = vec![0; self.blocks.block_len() as usize];
        let as_known = self.is_as_known(index, hash, &mut buffer);
        let mut state = self.state();
        if !matches!(as_known, Ok(true)) {
            state.inherited.push((index, hash));
        }
        Ok(as_known? && !state.inherited.is_empty())
    }

    /// Durable blocks, in order.
    #[must_use]
    pub fn durable(&self) -> Vec<Record> {
        self.state().durable()
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
        if !self.state().lacks(index) {
            return Ok(false);
        }
        match hash {
            Some(hash) => self.check(index, bytes, hash)?,
            None => self.has_length(index, bytes.len() as u64)?,
        }
        self.put(index, hash.unwrap_or(BlockHash::UNKNOWN), || {
            match self.sparse {
                true => self.lay_sparse(bytes, range.start),
                false => self.direct.write(&self.file, bytes, range.start),
            }
        })
    }

    fn lay_sparse(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
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
    pub fn hole(&self, index: u64) -> Result<bool, PartError> {
        let range = self.range(index)?;
        if !self.state().lacks(index) {
            return Ok(false);
        }
        let hash = self.named(self.blocks.hole_hash(index))?;
        self.put(index, hash, || self.make_hole(range))
    }

    fn make_hole(&self, range: Range<u64>) -> io::Result<()> {
        let reads_as_zeros = self.state().clean;
        match reads_as_zeros {
            true => Ok(()),
            false => self.file.zero(range),
        }
    }

    /// Makes all blocks durable that were written before the call, and returns their numbers. Other
    /// threads may write meanwhile. After an error the part cannot be used any more. Blocks that
    /// were durable before are there when the part is opened again.
    pub fn commit(&self) -> Result<Vec<u64>, PartError> {
        let mut journal = self.journal.lock();
        self.sound()?;
        let batch = self.state().take_written();
        if !batch.is_empty() {
            let done = self.make_durable(&mut journal, &batch);
            self.state().settle(&batch, done.is_ok());
            done?;
        }
        Ok(batch.into_iter().map(|(index, _)| index).collect())
    }

    fn make_durable(
        &self,
        journal: &mut Journal<D::File>,
        batch: &[Record],
    ) -> Result<(), PartError> {
        let site = &self.site;
        site.io("make its blocks durable", self.file.sync_data())?;
        site.io("write its journal", journal.add(batch))
    }

    /// Gives the file its final name. All blocks must be durable, and the file must have the
    /// expected hash. `prepare` sets the metadata. Inherited blocks are read again, because they
    /// were not locked between the runs.
    pub fn finish(
        self,
        expected: Option<FileHash>,
        prepare: impl FnOnce(&D::File) -> io::Result<()>,
    ) -> Result<Finished<D>, PartError> {
        self.sound()?;
        let got = self.merged()?;
        let differs = |got: &FileHash| expected.is_some_and(|expected| expected != *got);
        if let (Some(got), Some(expected)) = (got.filter(differs), expected) {
            let name = self.site.shown();
            self.discard()?;
            return Err(PartError::Mismatch {
                name,
                expected,
                got,
            });
        }
        if let Some(offset) = self.changed()? {
            let name = self.site.shown();
            self.discard()?;
            return Err(PartError::Changed { name, offset });
        }
        self.site.publish(&self.file, prepare)?;
        Ok(Finished {
            site: self.site,
            hash: got,
            journal: self.journal.into_inner().into_file(),
        })
    }

    /// Offset of the first inherited block that does not match its record.
    fn changed(&self) -> Result<Option<u64>, PartError> {
        let first = self.not_as_known().next().transpose()?;
        first.map(|index| Ok(self.range(index)?.start)).transpose()
    }

    /// Inherited blocks that do not match their records, in turn.
    pub(super) fn not_as_known(&self) -> impl Iterator<Item = Result<u64, PartError>> {
        let inherited = std::mem::take(&mut self.state().inherited);
        let mut buffer = vec![0; self.blocks.block_len() as usize];
        inherited.into_iter().filter_map(move |(index, hash)| {
            match self.is_as_known(index, hash, &mut buffer) {
                Ok(true) => None,
                other => Some(other.map(|_| index)),
            }
        })
    }

    fn is_as_known(
        &self,
        index: u64,
        hash: BlockHash,
        buffer: &mut [u8],
    ) -> Result<bool, PartError> {
        let offset = self.range(index)?.start;
        let read = self.file.read_at(buffer, offset);
        let read = self.site.io("read it again", read)?;
        Ok(self.blocks.hash(index, &buffer[..read]) == Ok(hash))
    }

    /// Hash of the file, unless a block came without a hash. All blocks must be durable.
    pub fn hash(&self) -> Result<Option<FileHash>, PartError> {
        self.merged()
    }

    /// Keeps the part as a piece of the file, whose other blocks are on other hosts. Part and
    /// journal stay; a label with this `entry` is added (see [`crate::piece`]). Written blocks are
    /// made durable first.
    ///
    /// # Errors
    /// The entry is of another file or version, this is a slice, a commit failed before, or the
    /// system refuses. The part stays as it was.
    pub fn keep(self, entry: &Entry) -> Result<(), PartError> {
        self.commit()?;
        let label = self.label(entry).map_err(|why| PartError::Label {
            name: self.site.shown(),
            why,
        })?;
        // Makes the length durable if no block came.
        self.site.io("make it durable", self.file.sync_data())?;
        self.site.keep_part()?;
        self.site.put_label(&label)
    }

    fn label(&self, entry: &Entry) -> Result<Vec<u8>, BadLabel> {
        let version = label::of_file(entry)?;
        let header = Header {
            version: version.into(),
            blocks: Blocks::sized(version.size, self.blocks.block_len()),
        };
        if self.shared {
            return Err(BadLabel::Slice);
        }
        if entry.path.name() != self.site.name || !self.journal.lock().is_of(&header) {
            return Err(BadLabel::Other);
        }
        label::encode(entry)
    }

    /// Removes the part and its journal. A slice is only closed, because other processes may write
    /// the same file.
    pub fn discard(self) -> Result<(), PartError> {
        if self.shared {
            return Ok(());
        }
        let site = &self.site;
        site.remove_label()?;
        site.io("remove its journal", site.dir.remove(&site.journal))?;
        site.remove_part()
    }

    /// Hash of the file, if all blocks have one.
    fn merged(&self) -> Result<Option<FileHash>, PartError> {
        let state = self.state();
        let kinds = state.kinds.iter().zip(state.within.clone());
        let mut awaited = kinds.filter(|(kind, _)| **kind != Kind::Durable);
        match (awaited.next(), self.blocks.file_hash(&state.hashes)) {
            (None, Some(hash)) => Ok(state.all_hashed().then_some(hash)),
            (first, _) => Err(PartError::Incomplete {
                name: self.site.shown(),
                offset: first.map_or(0, |(_, index)| index) * self.blocks.block_len(),
                more: awaited.count(),
            }),
        }
    }

    fn has_length(&self, index: u64, got: u64) -> Result<(), PartError> {
        self.named(self.blocks.has_length(index, got))
    }

    fn check(&self, index: u64, bytes: &[u8], expected: BlockHash) -> Result<(), PartError> {
        let got = self.named(self.blocks.hash(index, bytes))?;
        if got == expected {
            return Ok(());
        }
        Err(PartError::Damaged {
            name: self.site.shown(),
            offset: self.range(index)?.start,
            expected,
            got,
        })
    }

    /// Writes a block, unless another thread is writing it.
    fn put(
        &self,
        index: u64,
        hash: BlockHash,
        write: impl FnOnce() -> io::Result<()>,
    ) -> Result<bool, PartError> {
        let range = self.range(index)?;
        self.sound()?;
        if !self.state().claim(index) {
            return Ok(false);
        }
        let written = write();
        self.state().written(index, hash, written.is_ok());
        written.map_err(|source| PartError::Write {
            name: self.site.shown(),
            offset: range.start,
            source,
        })?;
        Ok(true)
    }

    fn range(&self, index: u64) -> Result<Range<u64>, PartError> {
        self.named(self.blocks.range(index))
    }

    fn named<T>(&self, block: Result<T, NoSuchBlock>) -> Result<T, PartError> {
        let name = || self.site.shown();
        block.map_err(|source| PartError::Block {
            name: name(),
            source,
        })
    }

    fn sound(&self) -> Result<(), PartError> {
        match self.state().broken {
            false => Ok(()),
            true => Err(PartError::Broken {
                name: self.site.shown(),
            }),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl<D: Directory> fmt::Debug for Part<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({})", self.site.shown())
    }
}
