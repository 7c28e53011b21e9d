// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open file of a source: a whole file, or a piece of a file, whose blocks have recorded hashes.

use longhaul_store::{
    blocks::BlockHash, path::RelPath, piece::OpenPiece, root::Failure, tree::scan::Source,
};
use std::fs::File;

/// Open file or piece of a file.
#[derive(Debug)]
pub(super) enum OpenFile {
    Whole(File),
    Piece(OpenPiece),
}

impl OpenFile {
    pub(super) fn open(source: &Source, path: &RelPath, is_piece: bool) -> Result<Self, Failure> {
        if is_piece {
            source.open_piece(path).map(Self::Piece)
        } else {
            source.open_file(path).map(Self::Whole)
        }
    }

    pub(super) fn file(&self) -> &File {
        match self {
            Self::Whole(file) => file,
            Self::Piece(piece) => &piece.file,
        }
    }

    /// Whether the hash of a block matches the recorded one. A whole file has no recorded block hashes.
    pub(super) fn hash_matches(&self, index: u64, hash: BlockHash) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Piece(piece) => piece.may_match(index, hash),
        }
    }
}
