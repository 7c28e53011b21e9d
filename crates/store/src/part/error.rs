// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors when writing a file in parts.

use crate::{
    blocks::{BlockError, BlockHash, FILE_LEN_MAX, FileHash},
    part::piece_header::PieceHeaderError,
    vfs::{OpenError, UntrustedFile},
};
use std::io;

/// Reason why a file cannot be written. Blocks that were durable before stay so for the next run.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// The name is not a single component.
    #[error("{name}: not a file name")]
    Name {
        /// The file.
        name: String,
    },
    /// Longer than [`FILE_LEN_MAX`].
    #[error("{name}: {len} bytes are more than the maximum of {FILE_LEN_MAX}")]
    TooLong {
        /// The file.
        name: String,
        /// Its length.
        len: u64,
    },
    /// An internal file cannot be opened.
    #[error("{name}: cannot open {internal} beside it: {source}")]
    Open {
        /// The file.
        name: String,
        /// Name of the internal file.
        internal: String,
        /// Reason.
        source: OpenError,
    },
    /// The system refused an operation: a full disk, a quota, a disk error.
    #[error("{name}: cannot {action}: {source}")]
    Io {
        /// The file.
        name: String,
        /// Operation that failed.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The system refused to write a block.
    #[error("{name}: cannot write at offset {offset}: {source}")]
    Write {
        /// The file.
        name: String,
        /// Offset of the block in the file, in bytes.
        offset: u64,
        /// Error of the system.
        source: io::Error,
    },
    /// The bytes cannot be this block of the file.
    #[error("{name}: {source}")]
    Block {
        /// The file.
        name: String,
        /// Reason.
        source: BlockError,
    },
    /// The bytes are not those that were hashed: they were damaged on the way.
    #[error(
        "{name}: the block at offset {offset} was damaged in transit: its hash is {got}, not {expected}"
    )]
    Damaged {
        /// The file.
        name: String,
        /// Offset of the block in the file, in bytes.
        offset: u64,
        /// Hash that was expected.
        expected: BlockHash,
        /// Hash of the bytes.
        got: BlockHash,
    },
    /// An earlier commit failed, so it is unknown which blocks reached the disk.
    #[error(
        "{name}: cannot continue after an earlier error; blocks that were durable before are kept"
    )]
    Broken {
        /// The file.
        name: String,
    },
    /// Bytes that an earlier run made durable have changed. The part was discarded.
    #[error(
        "{name}: the block at offset {offset} changed on the disk since it was written; copy it again"
    )]
    Changed {
        /// The file.
        name: String,
        /// Offset of the block in the file, in bytes.
        offset: u64,
    },
    /// The file cannot be finished: blocks are not durable.
    #[error("{name}: not durable yet: the block at offset {offset}, and {more} more")]
    Incomplete {
        /// The file.
        name: String,
        /// Offset of the first such block, in bytes.
        offset: u64,
        /// Further such blocks.
        more: usize,
    },
    /// The part cannot be kept as a piece.
    #[error("{name}: cannot be kept as a piece: {reason}")]
    PieceHeader {
        /// The file.
        name: String,
        /// Reason.
        reason: PieceHeaderError,
    },
    /// The file has another hash than expected, though each block was right: the source changed
    /// while it was read. The part was discarded.
    #[error("{name}: its hash is {got}, not {expected}; copy it again")]
    Mismatch {
        /// The file.
        name: String,
        /// Hash that was expected.
        expected: FileHash,
        /// Hash of the file.
        got: FileHash,
    },
}

impl PartError {
    /// Whether the error only means that another copy is writing this file.
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

    /// Whether an internal file already has its final owner or mode, so that it cannot be written
    /// any more.
    pub(crate) fn has_final_owner_or_mode(&self) -> bool {
        match self {
            Self::Open { source, .. } => match source {
                OpenError::Untrusted(refusal) => *refusal == UntrustedFile::Owner,
                OpenError::Io(error) => error.kind() == io::ErrorKind::PermissionDenied,
                OpenError::Busy => false,
            },
            _ => false,
        }
    }
}
