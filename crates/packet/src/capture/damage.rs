// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a capture file, and where.

use std::fmt;
use thiserror::Error;

/// A stretch of the file that was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Where it begins, in bytes from the beginning of the file.
    pub at: u64,
    /// How long it is; what comes after is sound again, or the end of the file.
    pub skipped: u64,
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, skipped, fault } = self;
        write!(f, "at byte {at}: {fault}; {skipped} bytes left out")
    }
}

/// Kinds of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum Fault {
    /// The file ends inside a record.
    #[error("the file ends inside a record")]
    Truncated,
    /// A record header that cannot be one, or a length that leads to none.
    #[error("not a record header")]
    Header,
    /// The time of a record is more than a day away from those before and after, which agree.
    #[error("a record's time is not that of its neighbours")]
    Time,
    /// The two lengths of a pcapng block differ, or cannot be lengths.
    #[error("not a block whose two lengths agree")]
    Lengths,
    /// A block that is too short for what it says is in it.
    #[error("a block is shorter than what it should hold")]
    Short,
    /// A packet of an interface that the file has not described.
    #[error("a packet of an interface that was not described")]
    Interface,
    /// More interfaces than [`INTERFACES_MAX`](super::INTERFACES_MAX).
    #[error("too many interfaces")]
    Interfaces,
}
