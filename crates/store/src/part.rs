// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file on its way: its blocks come in any order, from any number of threads, and again after a
//! crash only those that were not durable.
//!
//! Beside the file NAME stand, while it is incomplete, two of our own with the lock of whoever
//! writes it: `.longhaul-HASH.part`, the bytes, and `.longhaul-HASH.journal`, which of them are
//! durable (see [`crate::journal`]). HASH is the first half of the BLAKE3 of NAME. The order that makes this true through a loss of power:
//!
//! - At the start, the part is new and empty, then the journal is emptied and synced, then the names
//!   of both are, and only then the part gets its length. A journal beside a part of another length
//!   is never believed, so one that outlived its part is not, nor one that comes back with its name.
//! - A block: bytes, sync, record, sync. Then it is durable.
//! - At the end: the owner puts it into the manifest; metadata, sync, rename, sync of the directory,
//!   and then the journal goes. A crash before that leaves a journal without part, beside the file
//!   that it describes.
//!
//! A part that is to stay one, because other blocks of the file stay elsewhere, is called `.longhaul-HASH.piece-data` then and has a
//! label besides ([`Part::keep`], [`crate::piece`]).
//!
//! Several may write one file, a slice each ([`Part::open_slice`]): see `part/slots.rs`.

mod error;
mod site;
mod slots;
mod start;
mod state;

pub use error::PartError;
pub(crate) use site::{KEPT, Site, own_name};
pub use slots::SLICES_MAX;

use crate::{
    blocks::{BLOCK, BlockHash, Blocks, FileHash, NoSuchBlock},
    direct::Direct,
    entry::Entry,
    holes::{Run, runs},
    journal::{Header, Journal, Record, Version},
    medium::{Dir, Directory, Medium},
    piece::{BadLabel, label},
};
use start::Start;
use state::{Kind, State};
use std::{
    fmt, io,
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Every name of our own begins so; no other file's name should.
pub const OWN_PREFIX: &str = ".longhaul-";

/// What a file is a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The source's version: blocks of another one are of no use.
    pub version: Version,
    /// Bytes in the file.
    pub length: u64,
    /// Whether holes are to be kept. If not, space for the whole is reserved at once.
    pub sparse: bool,
}

/// What [`Part::open`] found.
pub enum Opened<D: Directory = Dir> {
    /// Another copy is writing this file.
    Busy,
    /// Nothing of use: it begins anew.
    Fresh(Part<D>),
    /// Some blocks, maybe none: [`Part::durable`].
    Resumed(Part<D>),
    /// All of it, under its final name: the last copy came to its end, but not to that of its
    /// bookkeeping.
    Renamed(Renamed<D>),
}

/// A file on its way.
pub struct Part<D: Directory = Dir> {
    site: Site<D>,
    blocks: Blocks,
    /// Others may be at the same file.
    shared: bool,
    /// It gets holes wherever it is zero.
    sparse: bool,
    file: D::File,
    direct: Direct<D::File>,
    journal: Mutex<Journal<D::File>>,
    state: Mutex<State>,
}

impl<D: Directory> Part<D> {
    /// Opens what there is of the file `name` in `dir`, or begins it.
    pub fn open(dir: &D, name: &[u8], origin: &Origin) -> Result<Opened<D>, PartError> {
        Self::open_sized(dir, name, origin, BLOCK)
    }

    pub(crate) fn open_sized(
        dir: &D,
        name: &[u8],
        origin: &Origin,
        block_len: u64,
    ) -> Result<Opened<D>, PartError> {
        let site = Site::new(dir, name)?;
        let header = site.header(origin, block_len)?;
        unless_busy(Start::new(site, header, origin.sparse).and_then(Start::open))
    }

    /// Opens blocks of a file while others write others of it, or the same: at most
    /// [`SLICES_MAX`] at once, on hosts that share the file system and its locks. The blocks are runs in order, none twice; others
    /// between them are missing here, and not to be written. What is durable of
    /// them already was read again: what is not as its record says is missing. [`Part::open`] finds
    /// the file busy as long as one of them is there. Blocks that the file does not have are passed over.
    pub fn open_slice(
        dir: &D,
        name: &[u8],
        origin: &Origin,
        blocks: &[Range<u64>],
    ) -> Result<Opened<D>, PartError> {
        Self::open_slice_sized(dir, name, origin, blocks, BLOCK)
    }

    pub(crate) fn open_slice_sized(
        dir: &D,
        name: &[u8],
        origin: &Origin,
        blocks: &[Range<u64>],
        block_len: u64,
    ) -> Result<Opened<D>, PartError> {
        let join = || {
            let site = Site::new(dir, name)?;
            let header = site.header(origin, block_len)?;
            slots::join(site, header, origin.sparse, blocks)
        };
        unless_busy(join().and_then(|joined| {
            if let Some(slice) = joined {
                return Ok(Opened::Resumed(slice));
            }
            match Self::open_sized(dir, name, origin, block_len)? {
                // Begun, and from now on everybody's.
                Opened::Fresh(whole) | Opened::Resumed(whole) => drop(whole),
                other => return Ok(other),
            }
            Ok(join()?.map_or(Opened::Busy, Opened::Resumed))
        }))
    }

    /// How the file is cut.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        self.blocks
    }

    #[cfg(test)]
    pub(crate) fn own_name(&self) -> &[u8] {
        match self.site.open_part(crate::medium::How::Read) {
            Ok(Some((_, own))) => own,
            _ => &self.site.part,
        }
    }

    /// Those of its blocks that this is about: all of a file's, or a slice's.
    #[must_use]
    pub fn within(&self) -> Range<u64> {
        self.state().within.clone()
    }

    /// What was there from the start is not read again at the end: whoever brought it did, or it was
    /// brought in the same copy.
    pub fn trust(&self) {
        self.state().inherited.clear();
    }

    /// Reads a block again that was there from the start; whether there are more. Who has time for it while others
    /// come, does [`Part::finish`] a favour. One that is not as its record says stays for that to find.
    pub fn check_next(&self) -> Result<bool, PartError> {
        let Some((index, hash)) = self.state().inherited.pop() else {
            return Ok(false);
        };
        let mut buffer = vec![0; self.blocks.block_len() as usize];
        let as_known = self.is_as_known(index, hash, &mut buffer)?;
        let mut state = self.state();
        if !as_known {
            state.inherited.push((index, hash));
        }
        Ok(as_known && !state.inherited.is_empty())
    }

    /// The durable blocks, in their order.
    #[must_use]
    pub fn durable(&self) -> Vec<Record> {
        self.state().durable()
    }

    /// The blocks that are neither here nor on their way to the disk, as runs.
    #[must_use]
    pub fn missing(&self) -> Vec<Range<u64>> {
        self.state().missing()
    }

    /// Takes a block, if its bytes have this hash; false if the block was here already, or is none
    /// of this slice's. It is durable when [`Part::commit`] says so. Without a hash its bytes are believed, and the file
    /// has none.
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

    /// Takes a block of which the source has only a hole; false if the block was here already.
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

    /// Makes durable what was written before the call, and says which blocks that are. Others may
    /// write meanwhile. After an error nothing more can be done with this part; what was durable
    /// before is there when it is opened again.
    pub fn commit(&self) -> Result<Vec<u64>, PartError> {
        let mut journal = lock(&self.journal);
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

    /// Gives the file its final name. All its blocks have to be durable, and together have the hash
    /// that is expected; `prepare` sets its metadata. Blocks that were there when it was opened are
    /// read again: nobody held their lock meanwhile.
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
            journal: lock_owned(self.journal).into_file(),
        })
    }

    /// Where the first block begins that was there from the start and is not what its record says.
    fn changed(&self) -> Result<Option<u64>, PartError> {
        let first = self.not_as_known().next().transpose()?;
        first.map(|index| Ok(self.range(index)?.start)).transpose()
    }

    /// The blocks that were there from the start and are not what their records say, one after the other.
    fn not_as_known(&self) -> impl Iterator<Item = Result<u64, PartError>> {
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

    /// The hash of the whole, unless a block came without one. All its blocks have to be durable.
    pub fn hash(&self) -> Result<Option<FileHash>, PartError> {
        self.merged()
    }

    /// Ends it as a piece of the file, which has more in other places: a label of this `entry` beside it says what
    /// it is (see [`crate::piece`]), part and journal stay. What was written is made durable first.
    ///
    /// # Errors
    /// The entry is not that of this file in this version, this is a slice, a commit failed before, or the system
    /// refuses. The part is as good as before.
    pub fn keep(self, entry: &Entry) -> Result<(), PartError> {
        self.commit()?;
        let label = self.label(entry).map_err(|why| PartError::Label {
            name: self.site.shown(),
            why,
        })?;
        // Its length, if no block came.
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
        if entry.path.name() != self.site.name || !lock(&self.journal).is_of(&header) {
            return Err(BadLabel::Other);
        }
        label::encode(entry)
    }

    /// Throws the part and its journal away. A slice is only let go: others may be at the same file.
    pub fn discard(self) -> Result<(), PartError> {
        if self.shared {
            return Ok(());
        }
        let site = &self.site;
        site.remove_label()?;
        site.io("remove its journal", site.dir.remove(&site.journal))?;
        site.remove_part()
    }

    /// The hash of the file, if it is known of all its blocks.
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

    /// Writes a block, unless another thread is at it.
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

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl<D: Directory> fmt::Debug for Part<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({})", self.site.shown())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock_owned<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Somebody else at the file is no error.
fn unless_busy<D: Directory>(opened: Result<Opened<D>, PartError>) -> Result<Opened<D>, PartError> {
    match opened {
        Err(error) if error.is_busy() => Ok(Opened::Busy),
        opened => opened,
    }
}

/// A file of which every byte was read under its final name, and is what the journal says.
pub struct Renamed<D: Directory = Dir> {
    site: Site<D>,
    hash: FileHash,
    file: D::File,
    journal: D::File,
}

impl<D: Directory> Renamed<D> {
    /// Makes it durable, and its metadata, for it may be another copy with the same bytes.
    pub fn finish(
        self,
        prepare: impl FnOnce(&D::File) -> io::Result<()>,
    ) -> Result<Finished<D>, PartError> {
        let site = self.site;
        site.io("set its metadata", prepare(&self.file))?;
        site.io("make it durable", self.file.sync_all())?;
        site.io("make its name durable", site.dir.sync())?;
        Ok(Finished {
            site,
            hash: Some(self.hash),
            journal: self.journal,
        })
    }
}

/// A file that has its final name, durably.
pub struct Finished<D: Directory = Dir> {
    site: Site<D>,
    /// The hash of the whole, unless a block came without one.
    pub hash: Option<FileHash>,
    /// Still locked: nobody begins the file again, and finds the journal gone, before
    /// [`Finished::forget_journal`].
    journal: D::File,
}

impl<D: Directory> Finished<D> {
    /// Removes the journal, and the label of a piece that grew to the whole. It is for the owner to
    /// call, once the manifest says durably that the file is complete: until then the journal saves
    /// it from being copied again.
    pub fn forget_journal(self) -> Result<(), PartError> {
        let site = &self.site;
        let ours = site.io(
            "look for its journal",
            site.dir.names(&site.journal, &self.journal),
        )?;
        if !ours {
            return Ok(());
        }
        site.remove_own(&site.label)?;
        site.io("remove its journal", site.dir.remove(&site.journal))
    }
}

/// Removes what is left beside a file that is complete and known to the manifest, or that nobody
/// wants any more.
pub fn remove_leftovers<D: Directory>(dir: &D, name: &[u8]) -> Result<(), PartError> {
    Site::new(dir, name)?.remove_leftovers()
}

#[cfg(test)]
mod tests;
