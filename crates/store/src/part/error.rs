// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a file cannot be written.

use crate::{
    blocks::{BlockHash, FILE_LEN_MAX, FileHash, NoSuchBlock},
    medium::{OpenError, Refusal},
    part::label::BadLabel,
};
use std::io;

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
    /// It cannot be kept as a piece.
    #[error("{name}: cannot be kept as a piece: {why}")]
    Label {
        /// The file.
        name: String,
        /// Why not.
        why: BadLabel,
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

    /// Whether a file of ours has an owner or a mode already with which we can't write it any more.
    pub(super) fn is_given_away(&self) -> bool {
        match self {
            Self::Open { source, .. } => match source {
                OpenError::Refused(refusal) => *refusal == Refusal::Owner,
                OpenError::Io(error) => error.kind() == io::ErrorKind::PermissionDenied,
                OpenError::Busy => false,
            },
            _ => false,
        }
    }
}
