// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a partial file: begins a new one, or continues after an earlier run.

use super::{
    PartError,
    file::Part,
    finished::Renamed,
    site::{Origin, Site},
    slots,
    state::{Kind, State},
};
use crate::{
    blocks::{BLOCK, BlockHash, Blocks, FileHash},
    part::journal::{self, Header, Journal, Record},
    vfs::{Dir, Directory, FileOps, OpenMode, direct::DirectFile},
};
use parking_lot::Mutex;
use std::{io, ops::Range};

/// Outcome of [`Part::open`].
pub enum Opened<D: Directory = Dir> {
    /// The file is being written by another copy.
    Busy,
    /// New part: no usable one was found.
    Fresh(Part<D>),
    /// Existing part with some durable blocks, maybe none: [`Part::durable`].
    Resumed(Part<D>),
    /// The whole file has its final name already. The last copy ended before it recorded that.
    Renamed(Renamed<D>),
}

impl<D: Directory> Part<D> {
    /// Opens the part of the file `name` in `dir`, or creates it.
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
                // Created; from now on slices can share it.
                Opened::Fresh(whole) | Opened::Resumed(whole) => drop(whole),
                other => return Ok(other),
            }
            Ok(join()?.map_or(Opened::Busy, Opened::Resumed))
        }))
    }
}

/// Turns the error that another process holds the file into an outcome.
fn unless_busy<D: Directory>(opened: Result<Opened<D>, PartError>) -> Result<Opened<D>, PartError> {
    match opened {
        Err(error) if error.is_busy() => Ok(Opened::Busy),
        opened => opened,
    }
}

/// State known when a part is opened. The journal is opened first, because its lock is held
/// longest.
struct Start<D: Directory> {
    site: Site<D>,
    header: Header,
    sparse: bool,
    journal: D::File,
    /// The journal was used before, so journals of slices may exist.
    used: bool,
    contents: Option<journal::Contents>,
}

impl<D: Directory> Start<D> {
    fn new(site: Site<D>, header: Header, sparse: bool) -> Result<Self, PartError> {
        // Another version of the file may have been so small that it was written whole.
        site.displace(&site.whole)?;
        let journal = site.make(&site.journal)?;
        let used = !site.io("read the size of its journal", journal.is_empty())?;
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
        let part = self.site.earlier_part()?;
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
        let len = self.site.io("read the size of its part", part.len())?;
        Ok(len == self.header.blocks.file_len())
    }

    fn begin(self) -> Result<Part<D>, PartError> {
        let (site, header) = (self.site, self.header);
        site.remove_label()?;
        if self.used {
            site.remove_slots()?;
        }
        let file = site.new_part()?;
        let journal = site.io("create its journal", Journal::begin(self.journal, &header))?;
        site.io("make its name durable", site.dir.sync())?;
        let sized = size(&file, header.blocks.file_len(), self.sparse);
        if sized.is_err() {
            let _gives_back_the_space = file.set_len(0);
        }
        site.io("reserve space for it", sized)?;
        let state = State::empty(0..header.blocks.count());
        Ok(whole(site, &header, self.sparse, file, journal, state))
    }

    /// Continues a part. It has its length, so its name and the journal's are durable.
    fn resume(self, file: D::File, contents: journal::Contents) -> Result<Part<D>, PartError> {
        let (site, header) = (self.site, self.header);
        let journal::Contents { records, end } = contents;
        let sized = size(&file, header.blocks.file_len(), self.sparse);
        site.io("reserve space for it", sized)?;
        let journal = Journal::resume(self.journal, &header, end);
        let mut journal = site.io("make its journal durable", journal)?;
        let records = slots::gather(&site, &header, &mut journal, records)?;
        let state = State::with(0..header.blocks.count(), &records);
        Ok(whole(site, &header, self.sparse, file, journal, state))
    }

    /// File that has the final name, if every block of it matches the journal.
    fn renamed(&self, records: &[Record]) -> Result<Option<(D::File, FileHash)>, PartError> {
        let (site, blocks) = (&self.site, self.header.blocks);
        let state = State::with(0..blocks.count(), records);
        let Ok(Some(file)) = site.dir.open(&site.name, OpenMode::Read) else {
            return Ok(None);
        };
        let all_known = !state.kinds.contains(&Kind::Missing) && state.all_hashed();
        if !all_known || !site.io("read it again", is_as_known(&file, blocks, &state.hashes))? {
            return Ok(None);
        }
        Ok(blocks.file_hash(&state.hashes).map(|hash| (file, hash)))
    }
}

fn is_as_known(file: &impl FileOps, blocks: Blocks, hashes: &[BlockHash]) -> io::Result<bool> {
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

fn whole<D: Directory>(
    site: Site<D>,
    header: &Header,
    sparse: bool,
    file: D::File,
    journal: Journal<D::File>,
    state: State,
) -> Part<D> {
    Part {
        state: Mutex::new(state),
        blocks: header.blocks,
        shared: false,
        sparse,
        site,
        direct: DirectFile::open(&file),
        file,
        journal: Mutex::new(journal),
    }
}

fn size(file: &impl FileOps, len: u64, sparse: bool) -> io::Result<()> {
    if !sparse {
        file.allocate(len)?;
    }
    file.set_len(len)
}
