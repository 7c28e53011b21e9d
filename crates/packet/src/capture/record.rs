// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the records of a capture say: packets, what is known of them, and what is wrong with the file.

use super::{LinkType, Statistics};
use std::fmt;
use thiserror::Error;

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// A packet was captured. Of a pcapng simple packet block, which has no time, it is 0.
    Frame(Frame<'a>),
    /// An interface counted.
    Statistics(Statistics),
    /// The record is whole, and what is inside of it is not.
    Damage(Damage),
}

/// One captured packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Nanoseconds since 1970, UTC. Captures of a simulation begin at 0.
    pub at_ns: u64,
    /// Which of the file's interfaces, from 0 (pcap: always 0).
    pub interface: u32,
    /// What the bytes begin with.
    pub link_type: LinkType,
    /// Length on the wire in bytes, link-layer header included; of a super-packet, its own.
    pub wire_len: u32,
    /// What was captured of it, from the link-layer header on.
    pub bytes: &'a [u8],
    /// Payload of each segment but the last, where the capture says that this is a super-packet; 0 is
    /// no word about it.
    pub segment_size: u16,
    /// What `longhaul link` says of it, in captures that it wrote.
    pub truth: Option<Truth>,
}

/// What only the emulator knows of a segment (`longhaul link --tap`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truth {
    /// Bytes in the queue when it came to it, itself not counted.
    pub queue_bytes: u32,
    /// What became of it.
    pub fate: Fate,
}

/// What becomes of a segment in the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It went on.
    Passed,
    /// The path lost it.
    Lost,
    /// The queue was full, or its discipline dropped it.
    Dropped,
    /// A rule for ACKs took it away.
    Thinned,
}

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
