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
//! Several may write one file, a slice each ([`Part::open_slice`]): see `part/slots.rs`.

mod slots;

pub use slots::SLICES_MAX;

use crate::{
    blocks::{BLOCK, BlockHash, Blocks, FILE_LEN_MAX, FileHash, NoSuchBlock},
    direct::Direct,
    escape::Escaped,
    journal::{self, Header, Journal, Record, Version},
    medium::{Dir, Directory, How, Medium, OpenError},
};
use std::{
    fmt, io,
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Every name of our own begins so; no other file's name should.
pub const OWN_PREFIX: &str = ".longhaul-";

/// Why a file cannot be written. What was durable before stays so, for the next time.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// Not one component.
    #[error("{name}: no name of a file")]
    Name {
        /// The file.
        name: String,
    },
    /// Longer than [`FILE_LEN_MAX`].
    #[error("{name}: {len} bytes are more than a file may have, {FILE_LEN_MAX}")]
    TooLong {
        /// The file.
        name: String,
        /// Its length.
        len: u64,
    },
    /// One of our own files cannot be opened.
    #[error("{name}: cannot open {own} beside it: {source}")]
    Open {
        /// The file.
        name: String,
        /// Ours.
        own: String,
        /// Why.
        source: OpenError,
    },
    /// The system refused something: a full disk, a quota, a broken disk.
    #[error("{name}: cannot {action}: {source}")]
    Io {
        /// The file.
        name: String,
        /// What could not be done.
        action: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The system refused to write a block.
    #[error("{name}: cannot write at offset {offset}: {source}")]
    Write {
        /// The file.
        name: String,
        /// Where in the file the block begins.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// These bytes are no block of the file.
    #[error("{name}: {source}")]
    Block {
        /// The file.
        name: String,
        /// Why.
        source: NoSuchBlock,
    },
    /// The bytes are not those that were hashed: something between changed them.
    #[error(
        "{name}: the block at offset {offset} was damaged on its way: its hash is {got}, not {expected}"
    )]
    Damaged {
        /// The file.
        name: String,
        /// Where in the file the block begins.
        offset: u64,
        /// What the hash should be.
        expected: BlockHash,
        /// What it is.
        got: BlockHash,
    },
    /// An earlier commit failed, so that nobody knows what of the file reached the disk.
    #[error("{name}: cannot go on after an earlier error; what was durable before is kept")]
    Broken {
        /// The file.
        name: String,
    },
    /// Bytes that an earlier run made durable are not what it wrote. All was thrown away.
    #[error(
        "{name}: the block at offset {offset} changed on the disk since it was written; it is to be copied anew"
    )]
    Changed {
        /// The file.
        name: String,
        /// Where in the file the block begins.
        offset: u64,
    },
    /// It cannot be finished.
    #[error("{name}: not durable yet: the block at offset {offset}, and {more} more")]
    Incomplete {
        /// The file.
        name: String,
        /// Where in the file the first block begins that is not.
        offset: u64,
        /// Blocks after it that are not.
        more: usize,
    },
    /// The whole is not what it should be, though each block is: it changed while it was read. It
    /// was thrown away.
    #[error("{name}: its hash is {got}, not {expected}; it is to be copied anew")]
    Mismatch {
        /// The file.
        name: String,
        /// What the hash should be.
        expected: FileHash,
        /// What it is.
        got: FileHash,
    },
}

impl PartError {
    /// Whether another copy is at this file, and nothing is wrong.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::Open {
                source: OpenError::Busy,
                ..
            }
        )
    }
}

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
    /// [`SLICES_MAX`] at once, on hosts that share the file system and its locks. What is durable of
    /// them already was read again: what is not as its record says is missing. [`Part::open`] finds
    /// the file busy as long as one of them is there. Blocks that the file does not have are passed over.
    pub fn open_slice(
        dir: &D,
        name: &[u8],
        origin: &Origin,
        within: Range<u64>,
    ) -> Result<Opened<D>, PartError> {
        Self::open_slice_sized(dir, name, origin, within, BLOCK)
    }

    pub(crate) fn open_slice_sized(
        dir: &D,
        name: &[u8],
        origin: &Origin,
        within: Range<u64>,
        block_len: u64,
    ) -> Result<Opened<D>, PartError> {
        let join = || {
            let site = Site::new(dir, name)?;
            let header = site.header(origin, block_len)?;
            slots::join(site, header, within.clone())
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
        &self.site.part
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
            self.direct.write(&self.file, bytes, range.start)
        })
    }

    /// Takes a block of which the source has only a hole; false if the block was here already.
    pub fn hole(&self, index: u64) -> Result<bool, PartError> {
        let range = self.range(index)?;
        if !self.state().lacks(index) {
            return Ok(false);
        }
        let hash = self.named(self.blocks.hole_hash(index))?;
        self.put(index, hash, || {
            let reads_as_zeros = self.state().clean;
            if reads_as_zeros {
                return Ok(());
            }
            self.file.zero(range)
        })
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

    /// Throws the part and its journal away. A slice is only let go: others may be at the same file.
    pub fn discard(self) -> Result<(), PartError> {
        if self.shared {
            return Ok(());
        }
        let site = &self.site;
        site.io("remove its journal", site.dir.remove(&site.journal))?;
        site.io("remove its part", site.dir.remove(&site.part))
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
    /// Removes the journal. It is for the owner to call, once the manifest says durably that the
    /// file is complete: until then the journal saves it from being copied again.
    pub fn forget_journal(self) -> Result<(), PartError> {
        let site = &self.site;
        let ours = site.io(
            "look for its journal",
            site.dir.names(&site.journal, &self.journal),
        )?;
        if !ours {
            return Ok(());
        }
        site.io("remove its journal", site.dir.remove(&site.journal))
    }
}

/// Removes what is left beside a file that is complete and known to the manifest, or that nobody
/// wants any more.
pub fn remove_leftovers<D: Directory>(dir: &D, name: &[u8]) -> Result<(), PartError> {
    let site = Site::new(dir, name)?;
    site.remove_journals()?;
    [&site.part, &site.whole]
        .into_iter()
        .try_for_each(|own| site.remove_own(own).map(drop))
}

/// A file's name and those of our own beside it.
pub(crate) struct Site<D> {
    pub(crate) dir: D,
    pub(crate) name: Vec<u8>,
    pub(crate) part: Vec<u8>,
    pub(crate) journal: Vec<u8>,
    pub(crate) whole: Vec<u8>,
}

impl<D: Directory> Site<D> {
    pub(crate) fn new(dir: &D, name: &[u8]) -> Result<Self, PartError> {
        if !is_component(name) {
            let name = Escaped(name).to_string();
            return Err(PartError::Name { name });
        }
        Ok(Self {
            dir: dir.clone(),
            name: name.to_vec(),
            part: own_name(name, "part"),
            journal: own_name(name, "journal"),
            whole: own_name(name, "whole"),
        })
    }

    pub(crate) fn shown(&self) -> String {
        Escaped(&self.name).to_string()
    }

    fn header(&self, origin: &Origin, block_len: u64) -> Result<Header, PartError> {
        let len = origin.length;
        if len > FILE_LEN_MAX {
            let name = self.shown();
            return Err(PartError::TooLong { name, len });
        }
        Ok(Header {
            version: origin.version,
            blocks: Blocks::sized(len, block_len),
        })
    }

    /// Names the file in an error of the system.
    pub(crate) fn io<T>(&self, action: &'static str, done: io::Result<T>) -> Result<T, PartError> {
        let name = || self.shown();
        done.map_err(|source| PartError::Io {
            name: name(),
            action,
            source,
        })
    }

    fn open(&self, own: &[u8], how: How) -> Result<Option<D::File>, PartError> {
        self.dir.open(own, how).map_err(|source| PartError::Open {
            name: self.shown(),
            own: Escaped(own).to_string(),
            source,
        })
    }

    /// The journal of a slice.
    fn slot(&self, number: usize) -> Vec<u8> {
        own_name(&self.name, &format!("journal-{number}"))
    }

    fn make(&self, own: &[u8]) -> Result<D::File, PartError> {
        let made = self.open(own, How::Make)?;
        self.io("make it", made.ok_or(io::ErrorKind::NotFound.into()))
    }

    /// An empty part. A former one is not cut but replaced, because its journal may still be
    /// believed after a crash.
    fn new_part(&self) -> Result<D::File, PartError> {
        self.remove_own(&self.part)?;
        self.empty(&self.part)
    }

    /// An empty file for bytes that come whole. It is not the part, whose length means something.
    pub(crate) fn new_whole(&self) -> Result<D::File, PartError> {
        self.remove_journals()?;
        self.remove_own(&self.part)?;
        self.empty(&self.whole)
    }

    fn empty(&self, own: &[u8]) -> Result<D::File, PartError> {
        let file = self.make(own)?;
        self.io("empty what is beside it", file.set_len(0))?;
        Ok(file)
    }

    /// Removes a file of ours unless somebody is at it; whether it was there.
    fn remove_own(&self, own: &[u8]) -> Result<bool, PartError> {
        let held = self.open(own, How::Hold)?;
        if held.is_some() {
            self.io("remove what is beside it", self.dir.remove(own))?;
        }
        Ok(held.is_some())
    }

    /// Removes its journal, and before that those of slices, which are nowhere without it.
    fn remove_journals(&self) -> Result<(), PartError> {
        let Some(_held) = self.open(&self.journal, How::Hold)? else {
            return Ok(());
        };
        slots::remove(self)?;
        self.io("remove its journal", self.dir.remove(&self.journal))
    }

    /// Under the final name only what is complete, even after a loss of power.
    fn publish(
        &self,
        file: &D::File,
        prepare: impl FnOnce(&D::File) -> io::Result<()>,
    ) -> Result<(), PartError> {
        self.io("set its metadata", prepare(file))?;
        self.io("make it durable", file.sync_all())?;
        self.rename(&self.part)?;
        self.io("make its name durable", self.dir.sync())
    }

    pub(crate) fn rename(&self, own: &[u8]) -> Result<(), PartError> {
        self.io("give it its name", self.dir.rename(own, &self.name))
    }
}

fn is_component(name: &[u8]) -> bool {
    let special = matches!(name, b"" | b"." | b"..");
    !special && name.len() <= 255 && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

pub(crate) fn own_name(name: &[u8], kind: &str) -> Vec<u8> {
    let hash = blake3::hash(name).to_hex();
    format!("{OWN_PREFIX}{}.{kind}", &hash[..32]).into_bytes()
}

/// What is known when a part is opened. The journal comes first: its lock is held longest.
struct Start<D: Directory> {
    site: Site<D>,
    header: Header,
    sparse: bool,
    journal: D::File,
    /// Somebody wrote it once, so those of slices may be there.
    used: bool,
    contents: Option<journal::Contents>,
}

impl<D: Directory> Start<D> {
    fn new(site: Site<D>, header: Header, sparse: bool) -> Result<Self, PartError> {
        let journal = site.make(&site.journal)?;
        let used = !site.io("look at its journal", journal.is_empty())?;
        let contents = site.io("read its journal", journal::read(&journal, &header))?;
        Ok(Self {
            site,
            header,
            sparse,
            journal,
            used,
            contents,
        })
    }

    fn open(mut self) -> Result<Opened<D>, PartError> {
        let part = self.site.open(&self.site.part, How::Hold)?;
        let contents = self.contents.take();
        match (part, contents) {
            (Some(part), Some(contents)) if self.has_its_length(&part)? => {
                Ok(Opened::Resumed(self.resume(part, contents)?))
            }
            (None, Some(contents)) => match self.renamed(&contents.records)? {
                Some((file, hash)) => Ok(Opened::Renamed(Renamed {
                    site: self.site,
                    hash,
                    file,
                    journal: self.journal,
                })),
                None => Ok(Opened::Fresh(self.begin()?)),
            },
            (part, _) => {
                drop(part);
                Ok(Opened::Fresh(self.begin()?))
            }
        }
    }

    fn has_its_length(&self, part: &D::File) -> Result<bool, PartError> {
        let len = self.site.io("look at its part", part.len())?;
        Ok(len == self.header.blocks.file_len())
    }

    fn begin(self) -> Result<Part<D>, PartError> {
        let (site, header) = (self.site, self.header);
        if self.used {
            slots::remove(&site)?;
        }
        let file = site.new_part()?;
        let journal = site.io("begin its journal", Journal::begin(self.journal, &header))?;
        site.io("make its name durable", site.dir.sync())?;
        let sized = size(&file, header.blocks.file_len(), self.sparse);
        if sized.is_err() {
            let _gives_back_the_space = file.set_len(0);
        }
        site.io("make room for it", sized)?;
        Ok(Part {
            state: Mutex::new(State::empty(0..header.blocks.count())),
            blocks: header.blocks,
            shared: false,
            site,
            direct: Direct::into(&file),
            file,
            journal: Mutex::new(journal),
        })
    }

    /// The part has its length, so the names are durable.
    fn resume(self, file: D::File, contents: journal::Contents) -> Result<Part<D>, PartError> {
        let (site, header) = (self.site, self.header);
        let journal::Contents { records, end } = contents;
        let sized = size(&file, header.blocks.file_len(), self.sparse);
        site.io("make room for it", sized)?;
        let journal = Journal::resume(self.journal, &header, end);
        let mut journal = site.io("make its journal durable", journal)?;
        let records = slots::gather(&site, &header, &mut journal, records)?;
        Ok(Part {
            state: Mutex::new(State::with(0..header.blocks.count(), &records)),
            blocks: header.blocks,
            shared: false,
            site,
            direct: Direct::into(&file),
            file,
            journal: Mutex::new(journal),
        })
    }

    /// What has the final name, if every block of it is what the journal says.
    fn renamed(&self, records: &[Record]) -> Result<Option<(D::File, FileHash)>, PartError> {
        let (site, blocks) = (&self.site, self.header.blocks);
        let state = State::with(0..blocks.count(), records);
        let Ok(Some(file)) = site.dir.open(&site.name, How::Read) else {
            return Ok(None);
        };
        let all_known = !state.kinds.contains(&Kind::Missing) && state.all_hashed();
        if !all_known || !site.io("read it again", is_as_known(&file, blocks, &state.hashes))? {
            return Ok(None);
        }
        Ok(blocks.file_hash(&state.hashes).map(|hash| (file, hash)))
    }
}

fn is_as_known(file: &impl Medium, blocks: Blocks, hashes: &[BlockHash]) -> io::Result<bool> {
    if file.len()? != blocks.file_len() {
        return Ok(false);
    }
    let mut buffer = vec![0; blocks.block_len() as usize];
    for (index, hash) in hashes.iter().enumerate() {
        let offset = index as u64 * blocks.block_len();
        let read = file.read_at(&mut buffer, offset)?;
        if blocks.hash(index as u64, &buffer[..read]) != Ok(*hash) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn size(file: &impl Medium, len: u64, sparse: bool) -> io::Result<()> {
    if !sparse {
        file.allocate(len)?;
    }
    file.set_len(len)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Missing,
    Writing,
    Written,
    Durable,
}

/// What is known of each block: 33 bytes of memory a block, 40 more if it was there from the start, and 8 more while it is written but not
/// durable.
struct State {
    /// Those that this is about.
    within: Range<u64>,
    kinds: Vec<Kind>,
    hashes: Vec<BlockHash>,
    written: Vec<u64>,
    /// Of those, what an earlier run made durable, 40 bytes each, until it was checked.
    inherited: Vec<Record>,
    /// Whether all that is missing reads as zeros.
    clean: bool,
    broken: bool,
}

impl State {
    fn empty(within: Range<u64>) -> Self {
        let count = (within.end - within.start) as usize;
        Self {
            within,
            kinds: vec![Kind::Missing; count],
            hashes: vec![BlockHash::default(); count],
            written: Vec::new(),
            inherited: Vec::new(),
            clean: true,
            broken: false,
        }
    }

    /// Records of other blocks are passed over.
    fn with(within: Range<u64>, records: &[Record]) -> Self {
        let mut state = Self::empty(within);
        state.clean = false;
        for (index, hash) in records {
            if let Some(at) = state.at(*index) {
                state.kinds[at] = Kind::Durable;
                state.hashes[at] = *hash;
            }
        }
        state.inherited = state.durable();
        state
            .inherited
            .retain(|(_, hash)| *hash != BlockHash::UNKNOWN);
        state
    }

    /// Where a block is in here.
    fn at(&self, index: u64) -> Option<usize> {
        let within = self.within.contains(&index);
        within.then(|| (index - self.within.start) as usize)
    }

    fn all_hashed(&self) -> bool {
        !self.hashes.contains(&BlockHash::UNKNOWN)
    }

    fn lacks(&self, index: u64) -> bool {
        let at = self.at(index);
        at.is_some_and(|at| self.kinds[at] == Kind::Missing)
    }

    fn become_kind(&mut self, index: u64, kind: Kind) {
        if let Some(at) = self.at(index) {
            self.kinds[at] = kind;
        }
    }

    fn claim(&mut self, index: u64) -> bool {
        let lacks = self.lacks(index);
        if lacks {
            self.become_kind(index, Kind::Writing);
        }
        lacks
    }

    fn written(&mut self, index: u64, hash: BlockHash, done: bool) {
        let Some(at) = self.at(index) else { return };
        if done {
            self.kinds[at] = Kind::Written;
            self.hashes[at] = hash;
            self.written.push(index);
        } else {
            self.kinds[at] = Kind::Missing;
            self.clean = false;
        }
    }

    fn take_written(&mut self) -> Vec<Record> {
        let mut indexes = std::mem::take(&mut self.written);
        indexes.sort_unstable();
        let record = |index: u64| Some((index, self.hashes[self.at(index)?]));
        indexes.into_iter().filter_map(record).collect()
    }

    /// An error of a sync is told once, and the pages count as clean afterwards: nothing that was
    /// not durable then can be relied upon.
    fn settle(&mut self, batch: &[Record], done: bool) {
        self.broken |= !done;
        for (index, _) in batch.iter().filter(|_| done) {
            self.become_kind(*index, Kind::Durable);
        }
    }

    fn durable(&self) -> Vec<Record> {
        let all = self.kinds.iter().zip(&self.hashes).zip(self.within.clone());
        all.filter(|((kind, _), _)| **kind == Kind::Durable)
            .map(|((_, hash), index)| (index, *hash))
            .collect()
    }

    fn missing(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let all = self.kinds.iter().zip(self.within.clone());
        for (_, index) in all.filter(|(kind, _)| **kind == Kind::Missing) {
            match runs.last_mut() {
                Some(run) if run.end == index => run.end += 1,
                _ => runs.push(index..index + 1),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests;
