// SPDX-License-Identifier: MIT OR Apache-2.0
//! A piece of which blocks are read, found in a directory that others may write to.

use super::{header, known, read, runs_of};
use crate::{
    blocks::{BLOCK, BlockHash},
    entry::{Entry, Version},
    medium,
    metadata::handle::handle,
    part::{
        journal::Record,
        label::{self, BadLabel},
    },
    path::{BadPath, KEPT, RelPath, own_name},
    root::Failure,
};
use rustix::{fd::BorrowedFd, fs::FileType, io::Errno};
use std::{fs::File, io, ops::Range};

/// A piece that is read from.
#[derive(Debug)]
pub struct OpenPiece {
    /// As long as the whole file; what is not held is anything.
    pub file: File,
    /// The state of the file that it is a piece of.
    pub version: Version,
    /// 40 bytes of memory for each block that is held.
    records: Vec<Record>,
}

impl OpenPiece {
    /// The hash of a block, [`BlockHash::UNKNOWN`] if it came without; `None` if the block is not held.
    #[must_use]
    pub fn hash_of(&self, index: u64) -> Option<BlockHash> {
        let found = self
            .records
            .binary_search_by_key(&index, |(index, _)| *index);
        found.ok().map(|at| self.records[at].1)
    }

    /// Whether a block that is held may have this hash: also if it came without one, or this is
    /// [`BlockHash::UNKNOWN`].
    #[must_use]
    pub fn agrees(&self, index: u64, hash: BlockHash) -> bool {
        let unknown = BlockHash::UNKNOWN;
        let known = self.hash_of(index);
        known.is_some_and(|known| known == hash || known == unknown || hash == unknown)
    }

    pub(crate) fn open(dir: BorrowedFd<'_>, file: &[u8]) -> Result<Self, Unusable> {
        let entry = read_label(dir, &own_name(file, "piece"))?;
        Self::of(dir, &entry)
    }

    fn of(dir: BorrowedFd<'_>, entry: &Entry) -> Result<Self, Unusable> {
        let name = |kind| own_name(entry.path.name(), kind);
        let label = name("piece");
        let version = *label::of_file(entry).map_err(|why| Unusable::new(&label, why))?;
        // Before the journal, for the reason that [`super::held`] has.
        // As earlier versions called it, or where the power was lost before it had its name.
        let file = match own_file(dir, &name(KEPT)) {
            Err(unusable) if unusable.is_not_found() => own_file(dir, &name("part"))?,
            found => found?,
        };
        let records = records(dir, &name("journal"), &file, &version)?;
        Ok(Self {
            file,
            version,
            records,
        })
    }
}

/// What a journal says, if it is there, of the part in this version.
fn records(
    dir: BorrowedFd<'_>,
    journal: &[u8],
    part: &File,
    version: &Version,
) -> Result<Vec<Record>, Unusable> {
    match own_file(dir, journal) {
        Ok(file) => match known(part, &file, &header(version, BLOCK)) {
            Ok(records) => Ok(records.unwrap_or_default()),
            Err(error) => Err(Unusable::new(journal, errno(&error))),
        },
        Err(unusable) if unusable.is_not_found() => Ok(Vec::new()),
        Err(unusable) => Err(unusable),
    }
}

/// One of our own files with a piece that is not as it should be.
#[derive(Debug)]
pub(crate) struct Unusable {
    own: Vec<u8>,
    why: BadLabel,
}

impl Unusable {
    fn new(own: &[u8], why: BadLabel) -> Self {
        Self {
            own: own.into(),
            why,
        }
    }

    fn is_not_found(&self) -> bool {
        self.why == BadLabel::System(Errno::NOENT)
    }

    /// By its place.
    pub(crate) fn at(self, dir: Option<&RelPath>) -> Failure {
        match below(dir, &self.own) {
            Ok(path) => Failure::Piece {
                path,
                why: self.why,
            },
            Err(bad) => bad.into(),
        }
    }
}

fn below(dir: Option<&RelPath>, name: &[u8]) -> Result<RelPath, BadPath> {
    match dir {
        Some(dir) => dir.join(name),
        None => RelPath::parse(name),
    }
}

fn errno(error: &io::Error) -> BadLabel {
    Errno::from_io_error(error).unwrap_or(Errno::IO).into()
}

/// A file of ours, for reading, that nobody else can have put there: what is in it is given the owner and mode that a
/// label says.
fn own_file(dir: BorrowedFd<'_>, own: &[u8]) -> Result<File, Unusable> {
    let opened = || {
        let held = handle(dir, own)?;
        if held.kind() != FileType::RegularFile {
            return Err(BadLabel::Refused(medium::Refusal::NotRegular));
        }
        medium::ours(&held.stat).map_err(BadLabel::Refused)?;
        held.unreadable.map_or(Ok(()), Err)?;
        Ok(File::from(held.fd))
    };
    opened().map_err(|why| Unusable::new(own, why))
}

pub(super) fn read_label(dir: BorrowedFd<'_>, own: &[u8]) -> Result<Entry, Unusable> {
    let file = own_file(dir, own)?;
    let entry = read(&file, own).unwrap_or_else(|error| Err(errno(&error)));
    entry.map_err(|why| Unusable::new(own, why))
}

/// The entry of a file that there is a piece of, by its label, and the blocks that are here, as runs.
pub(crate) fn look(dir: BorrowedFd<'_>, file: &[u8]) -> Result<(Entry, Vec<Range<u64>>), Unusable> {
    let entry = read_label(dir, &own_name(file, "piece"))?;
    let held = match OpenPiece::of(dir, &entry) {
        Ok(piece) => runs_of(&piece.records),
        Err(unusable) if unusable.is_not_found() => Vec::new(),
        Err(unusable) => return Err(unusable),
    };
    Ok((entry, held))
}
