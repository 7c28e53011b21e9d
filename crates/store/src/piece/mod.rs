// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pieces: a file whose blocks are spread over several hosts has a piece on each.
//!
//! On each host, the part and the journal stay ([`crate::part`]). The part is as long as the file,
//! and its name is `.longhaul-HASH.piece-data`. A piece header beside them, `.longhaul-HASH.piece`,
//! has the file's name and entry, because the hash cannot be turned back into a name. The piece
//! header is written when the part is kept as a piece ([`crate::part::Part::keep_as_piece`]). It is
//! removed when the file gets its final name on this host, is discarded or is begun again.
//!
//! A piece header alone does not say which blocks exist. The journal says that, for the version in
//! the piece header, and only beside a part of the file's length. So a piece header, a part or a
//! journal that a loss of power restores does no harm.

mod in_tree;
mod open;

pub use crate::part::piece_header::{PIECE_HEADER_LEN_MAX, PieceHeaderError};
pub(crate) use in_tree::{PieceFileNames, exists, find_in_directory, remove};
pub use open::OpenPiece;
pub(crate) use open::read_piece;

use crate::{
    blocks::{BLOCK_LEN, Blocks, to_ranges},
    entry::{Entry, Version},
    part::{
        PartError, PartPaths,
        journal::{self, BlockRecord, Header},
        piece_header,
    },
    path::{PIECE_DATA, internal_name},
    vfs::{Directory, FileOps, OpenMode},
};
use std::{io, ops::Range};

/// Ranges of the blocks of this file, in this version, that a piece in `dir` has durably. Takes up
/// to 16 bytes of memory for every second block. `None` if there is no piece header of this
/// version, or no matching part and journal. Reads no block and takes no lock, so another process
/// may be changing the piece. Records of slices are ignored until the part is opened as a whole.
///
/// # Errors
/// Errors of the system.
pub fn held_blocks<D: Directory>(
    dir: &D,
    entry: &Entry,
) -> Result<Option<Vec<Range<u64>>>, PartError> {
    held_blocks_with_len(dir, entry, BLOCK_LEN)
}

/// Opens the part before the journal. A journal that is read later belongs to this part or to a
/// later one. A later one has another header before its part gets its length.
pub(crate) fn held_blocks_with_len<D: Directory>(
    dir: &D,
    entry: &Entry,
    block_len: u64,
) -> Result<Option<Vec<Range<u64>>>, PartError> {
    let paths = PartPaths::new(dir, entry.path.name())?;
    let Ok(version) = piece_header::file_version(entry) else {
        return Ok(None);
    };
    let header = header(version, block_len);
    let (Some((part, _)), Some(journal)) = (
        paths.open_part(OpenMode::Read)?,
        paths.open(&paths.journal, OpenMode::Read)?,
    ) else {
        return Ok(None);
    };
    if !piece_header_matches(&paths, &header)? {
        return Ok(None);
    }
    let records = matching_records(&part, &journal, &header);
    let records = paths.io_context("read its piece", records)?;
    paths.io_context("make its journal durable", journal.sync_data())?;
    Ok(records.map(|records| ranges_of(&records)))
}

/// Entry in the piece header of this file, if there is one. The metadata is from the time when the
/// piece was last kept.
///
/// # Errors
/// Errors of the system.
pub fn piece_header_entry<D: Directory>(dir: &D, file: &[u8]) -> Result<Option<Entry>, PartError> {
    read_piece_header_entry(&PartPaths::new(dir, file)?)
}

fn read_piece_header_entry<D: Directory>(paths: &PartPaths<D>) -> Result<Option<Entry>, PartError> {
    let Some(piece_header) = paths.open(&paths.piece_header, OpenMode::Read)? else {
        return Ok(None);
    };
    let entry = paths.io_context(
        "read its piece header",
        read(&piece_header, &paths.piece_header),
    )?;
    Ok(entry.ok())
}

/// Name of the part that is kept as a piece of the file, for users who are to remove it.
#[must_use]
pub fn piece_data_name(file: &[u8]) -> String {
    String::from_utf8_lossy(&internal_name(file, PIECE_DATA)).into_owned()
}

fn header(version: &Version, block_len: u64) -> Header {
    Header {
        version: version.into(),
        blocks: Blocks::with_block_len(version.size, block_len),
    }
}

fn piece_header_matches<D: Directory>(
    paths: &PartPaths<D>,
    header: &Header,
) -> Result<bool, PartError> {
    let entry = read_piece_header_entry(paths)?;
    let version = entry
        .as_ref()
        .and_then(|entry| piece_header::file_version(entry).ok());
    Ok(version.is_some_and(|version| journal::Version::from(version) == header.version))
}

fn read(
    piece_header: &impl FileOps,
    internal: &[u8],
) -> io::Result<Result<Entry, PieceHeaderError>> {
    let mut bytes = vec![0; piece_header.len()?.min(PIECE_HEADER_LEN_MAX as u64 + 1) as usize];
    let read = piece_header.read_at(&mut bytes, 0)?;
    Ok(piece_header::decode(&bytes[..read], internal))
}

/// One record for each block, in order, if journal and part match.
fn matching_records<M: FileOps>(
    part: &M,
    journal: &M,
    header: &Header,
) -> io::Result<Option<Vec<BlockRecord>>> {
    if part.len()? != header.blocks.file_len() {
        return Ok(None);
    }
    let contents = journal::read(journal, header)?;
    Ok(contents.map(|contents| last_records(contents.records)))
}

/// Last record of each block.
fn last_records(mut records: Vec<BlockRecord>) -> Vec<BlockRecord> {
    records.reverse();
    records.sort_by_key(|(index, _)| *index);
    records.dedup_by_key(|(index, _)| *index);
    records
}

fn ranges_of(records: &[BlockRecord]) -> Vec<Range<u64>> {
    to_ranges(records.iter().map(|(index, _)| *index))
}

#[cfg(test)]
mod tests;
