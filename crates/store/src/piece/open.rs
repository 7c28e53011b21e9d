// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a piece for reading, in a directory that other users may write to.

use super::{header, known, read, runs_of};
use crate::{
    blocks::{BLOCK, BlockHash},
    entry::{Entry, Version},
    metadata::handle::open_handle,
    part::{
        journal::Record,
        label::{self, BadLabel},
    },
    path::{BadPath, KEPT, RelPath, own_name},
    root::Failure,
    vfs,
};
use rustix::{fd::BorrowedFd, fs::FileType, io::Errno};
use std::{fs::File, io, ops::Range};

/// Piece that is open for reading.
#[derive(Debug)]
pub struct OpenPiece {
    /// Part, as long as the whole file. Blocks that the piece does not have are undefined.
    pub file: File,
    /// Version of the file.
    pub version: Version,
    /// Blocks that the piece has: 40 bytes of memory each.
    records: Vec<Record>,
}

impl OpenPiece {
    /// Hash of a block, [`BlockHash::UNKNOWN`] if it came without a hash. `None` if the piece does
    /// not have the block.
    #[must_use]
    pub fn hash_of(&self, index: u64) -> Option<BlockHash> {
        let found = self
            .records
            .binary_search_by_key(&index, |(index, _)| *index);
        found.ok().map(|at| self.records[at].1)
    }

    /// Whether the piece has the block, and it may have this hash. An unknown hash
    /// ([`BlockHash::UNKNOWN`]), on either side, agrees with every hash.
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
        // Opened before the journal, for the reason given at [`super::held`]. Under the name that
        // earlier versions used, or if power was lost before the part was renamed.
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

/// Records of a journal, if it exists, for the part in this version.
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

/// Internal file of a piece that is not valid.
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

    /// Error for this file in the directory `dir`.
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

/// Opens an internal file for reading, and checks that no other user can have placed it: the copied
/// data gets the owner and mode in the label.
fn own_file(dir: BorrowedFd<'_>, own: &[u8]) -> Result<File, Unusable> {
    let opened = || {
        let held = open_handle(dir, own)?;
        if held.kind() != FileType::RegularFile {
            return Err(BadLabel::Refused(vfs::UntrustedFile::NotRegular));
        }
        vfs::check_owned(&held.stat).map_err(BadLabel::Refused)?;
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

/// Reads the label of a file's piece. Returns the entry, and the ranges of the blocks that the
/// piece has.
pub(crate) fn look(dir: BorrowedFd<'_>, file: &[u8]) -> Result<(Entry, Vec<Range<u64>>), Unusable> {
    let entry = read_label(dir, &own_name(file, "piece"))?;
    let held = match OpenPiece::of(dir, &entry) {
        Ok(piece) => runs_of(&piece.records),
        Err(unusable) if unusable.is_not_found() => Vec::new(),
        Err(unusable) => return Err(unusable),
    };
    Ok((entry, held))
}
