// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is read of a file: all of it, or a piece, whose blocks have hashes.

use longhaul_store::{
    blocks::BlockHash, path::RelPath, piece::OpenPiece, root::Failure, tree::scan::Source,
};
use std::fs::File;

#[derive(Debug)]
pub(super) enum OpenFile {
    Whole(File),
    Piece(OpenPiece),
}

impl OpenFile {
    pub(super) fn open(source: &Source, path: &RelPath, is_piece: bool) -> Result<Self, Failure> {
        match is_piece {
            true => source.open_piece(path).map(Self::Piece),
            false => source.open_file(path).map(Self::Whole),
        }
    }

    pub(super) fn file(&self) -> &File {
        match self {
            Self::Whole(file) => file,
            Self::Piece(piece) => &piece.file,
        }
    }

    /// Whether a block may have this hash: of a piece, it is what arrived.
    pub(super) fn hash_matches(&self, index: u64, hash: BlockHash) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Piece(piece) => piece.agrees(index, hash),
        }
    }
}
