// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file on its way: its blocks come in any order, from any number of threads, and again after a
//! crash only those that were not durable.
//!
//! Beside the file NAME stand, while it is incomplete, two of our own with the lock of whoever
//! writes it: `.longhaul-HASH.part`, the bytes, and `.longhaul-HASH.journal`, which of them are
//! durable (see [`journal`]). HASH is the first half of the BLAKE3 of NAME. The order that makes this true through a loss of power:
//!
//! - At the start, the part is new and empty, then the journal is emptied and synced, then the names
//!   of both are, and only then the part gets its length. A journal beside a part of another length
//!   is never believed, so one that outlived its part is not, nor one that comes back with its name.
//! - A block: bytes, sync, record, sync. Then it is durable.
//! - At the end: the owner puts it into the manifest; metadata, sync, rename, sync of the directory,
//!   and then the journal goes. A crash before that leaves a journal without part, beside the file
//!   that it describes.
//!
//! A part that is to stay one, because other blocks of the file stay elsewhere, is called `.longhaul-HASH.piece-data` then and has a
//! label besides ([`Part::keep`], [`crate::piece`]).
//!
//! Several may write one file, a slice each ([`Part::open_slice`]): see `part/slots.rs`.

mod error;
mod file;
mod finished;
pub mod journal;
pub(crate) mod label;
mod open;
mod site;
mod slots;
mod state;

pub use error::PartError;
pub use file::Part;
pub use finished::{Finished, Renamed};
pub use open::Opened;
pub(crate) use site::Site;
pub use site::{Origin, SLICES_MAX, remove_leftovers};

/// Every name of our own begins so; no other file's name should.
pub const OWN_PREFIX: &str = ".longhaul-";

#[cfg(test)]
mod tests;
