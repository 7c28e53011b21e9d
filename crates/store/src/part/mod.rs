// SPDX-License-Identifier: MIT OR Apache-2.0
//! Partial files: blocks arrive in any order, from any number of threads. After a crash, only
//! blocks that were not durable are written again.
//!
//! While the file NAME is incomplete, two internal files exist beside it, locked by the writer.
//! `.longhaul-HASH.part` has the bytes. `.longhaul-HASH.journal` lists the durable blocks (see
//! [`journal`]). HASH is the first half of the BLAKE3 of NAME. The following order keeps both
//! consistent through a loss of power:
//!
//! - Start: the part is created empty. Then the journal is emptied and synced, then the names of
//!   both, and only then the part gets its length. A journal beside a part of another length is
//!   ignored. So a journal that outlived its part is ignored, and so is one whose name came back.
//! - Block: write bytes, sync, write record, sync. Then the block is durable.
//! - End: the owner adds the file to the manifest. Then metadata, sync, rename, sync of the
//!   directory, and removal of the journal. A crash before that leaves a journal without a part,
//!   beside the file that it describes.
//!
//! A part whose file has other blocks on other hosts stays a part. Its name is then
//! `.longhaul-HASH.piece-data`, and it has a piece header ([`Part::keep_as_piece`],
//! [`crate::piece`]).
//!
//! Several processes may write one file, each a slice ([`Part::open_slice`]): see `part/slices.rs`.

mod error;
mod file;
mod finished;
pub mod journal;
mod open;
mod paths;
pub(crate) mod piece_header;
mod slices;

pub use error::PartError;
pub use file::Part;
pub use finished::{FinishedFile, RenamedFile};
pub use open::OpenOutcome;
pub(crate) use paths::{PartPaths, remove_leftovers_with_hash};
pub use paths::{SLICES_MAX, SourceInfo, remove_leftovers};

/// Prefix of all internal names. Other files should not have it.
pub const INTERNAL_PREFIX: &str = ".longhaul-";

#[cfg(test)]
mod tests;
