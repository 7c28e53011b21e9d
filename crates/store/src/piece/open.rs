// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a piece for reading, in a directory that other users may write to.

use super::{header, matching_records, ranges_of, read};
use crate::{
    blocks::{BLOCK_LEN, BlockHash},
    entry::{Entry, Version},
    metadata::handle::open_handle,
    part::{
        journal::BlockRecord,
        piece_header::{self, PieceHeaderError},
    },
    path::{BadPath, PIECE_DATA, RelPath, internal_name},
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
    records: Vec<BlockRecord>,
}

impl OpenPiece {
    /// Returns the hash of a block, [`BlockHash::UNKNOWN`] if it came without a hash. `None` if the piece does
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
    pub fn may_match(&self, index: u64, hash: BlockHash) -> bool {
        let unknown = BlockHash::UNKNOWN;
        let known = self.hash_of(index);
        known.is_some_and(|known| known == hash || known == unknown || hash == unknown)
    }

    pub(crate) fn open(dir: BorrowedFd<'_>, file: &[u8]) -> Result<Self, PieceFileError> {
        let entry = read_piece_header(dir, &internal_name(file, "piece"))?;
        Self::open_with_header(dir, &entry)
    }

    fn open_with_header(dir: BorrowedFd<'_>, entry: &Entry) -> Result<Self, PieceFileError> {
        let name = |kind| internal_name(entry.path.name(), kind);
        let piece_header = name("piece");
        let version = *piece_header::file_version(entry)
            .map_err(|reason| PieceFileError::new(&piece_header, reason))?;
        // The part is opened before the journal, for the reason given at [`super::held_blocks`]. Its name may still end
        // in `part`: a power loss may come before the part is renamed.
        let file = match open_internal(dir, &name(PIECE_DATA)) {
            Err(error) if error.is_not_found() => open_internal(dir, &name("part"))?,
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

/// Returns the journal's records for the part in this version; none if there is no journal.
fn records(
    dir: BorrowedFd<'_>,
    journal: &[u8],
    part: &File,
    version: &Version,
) -> Result<Vec<BlockRecord>, PieceFileError> {
    match open_internal(dir, journal) {
        Ok(file) => match matching_records(part, &file, &header(version, BLOCK_LEN)) {
            Ok(records) => Ok(records.unwrap_or_default()),
            Err(error) => Err(PieceFileError::new(journal, errno(&error))),
        },
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Internal file of a piece that cannot be used, with the reason.
#[derive(Debug)]
pub(crate) struct PieceFileError {
    internal: Vec<u8>,
    reason: PieceHeaderError,
}

impl PieceFileError {
    fn new(internal: &[u8], reason: PieceHeaderError) -> Self {
        Self {
            internal: internal.into(),
            reason,
        }
    }

    fn is_not_found(&self) -> bool {
        self.reason == PieceHeaderError::System(Errno::NOENT)
    }

    /// Error for this file in the directory `dir`.
    pub(crate) fn into_failure(self, dir: Option<&RelPath>) -> Failure {
        match join_path(dir, &self.internal) {
            Ok(path) => Failure::Piece {
                path,
                reason: self.reason,
            },
            Err(invalid) => invalid.into(),
        }
    }
}

fn join_path(dir: Option<&RelPath>, name: &[u8]) -> Result<RelPath, BadPath> {
    match dir {
        Some(dir) => dir.join(name),
        None => RelPath::parse(name),
    }
}

fn errno(error: &io::Error) -> PieceHeaderError {
    Errno::from_io_error(error).unwrap_or(Errno::IO).into()
}

/// Opens an internal file for reading, and checks that no other user can have placed it. The piece header gives the
/// copied data its owner and mode, so another user must not choose them.
fn open_internal(dir: BorrowedFd<'_>, internal: &[u8]) -> Result<File, PieceFileError> {
    let open = || {
        let handle = open_handle(dir, internal)?;
        if handle.kind() != FileType::RegularFile {
            return Err(PieceHeaderError::Untrusted(vfs::UntrustedFile::NotRegular));
        }
        vfs::check_owned(&handle.stat).map_err(PieceHeaderError::Untrusted)?;
        handle.unreadable.map_or(Ok(()), Err)?;
        Ok(File::from(handle.fd))
    };
    open().map_err(|reason| PieceFileError::new(internal, reason))
}

pub(super) fn read_piece_header(
    dir: BorrowedFd<'_>,
    internal: &[u8],
) -> Result<Entry, PieceFileError> {
    let file = open_internal(dir, internal)?;
    let entry = read(&file, internal).unwrap_or_else(|error| Err(errno(&error)));
    entry.map_err(|reason| PieceFileError::new(internal, reason))
}

/// Reads the piece header of a file. Returns the entry, and the ranges of the blocks that the
/// piece has.
pub(crate) fn read_piece(
    dir: BorrowedFd<'_>,
    file: &[u8],
) -> Result<(Entry, Vec<Range<u64>>), PieceFileError> {
    let entry = read_piece_header(dir, &internal_name(file, "piece"))?;
    let blocks = match OpenPiece::open_with_header(dir, &entry) {
        Ok(piece) => ranges_of(&piece.records),
        Err(error) if error.is_not_found() => Vec::new(),
        Err(error) => return Err(error),
    };
    Ok((entry, blocks))
}
