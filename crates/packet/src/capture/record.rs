// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of a capture: packets with their metadata, packet counts, and damage of the file.

use super::{LinkType, Statistics};
use std::fmt;
use thiserror::Error;

/// Contents of a record. The rare ones are boxed. With their fields beside its own, a frame's time would be written byte by
/// byte. Reading it as a whole would then stall the processor for a third of the time of decoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    /// A captured packet. A pcapng simple packet block has no time; its [`Frame::timestamp_ns`] is 0.
    Frame(Frame<'a>),
    /// Packet counts of an interface.
    Statistics(Box<Statistics>),
    /// A record whose boundaries are intact and whose contents are damaged.
    Damage(Box<DamagedRange>),
}

/// A captured packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Time of the capture in nanoseconds since 1970, UTC. Captures of a simulation begin at 0.
    pub timestamp_ns: u64,
    /// Number of the interface in the file, from 0 (pcap: always 0).
    pub interface: u32,
    /// Type of the link-layer header at the beginning of `bytes`.
    pub link_type: LinkType,
    /// Length on the wire in bytes, link-layer header included. For a super-packet, the length before segmentation.
    pub wire_len: u32,
    /// Captured bytes, from the link-layer header on.
    pub bytes: &'a [u8],
    /// Payload bytes of each segment but the last, if the capture says that this is a super-packet; 0 if it says
    /// nothing.
    pub segment_size: u16,
    /// Queue and decision of the emulator, in captures that `longhaul link` wrote.
    pub emulator_record: Option<EmulatorRecord>,
}

/// Queue length and decision that the emulator records with a segment (`longhaul link --capture`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmulatorRecord {
    /// Bytes in the queue when the segment arrived, without the segment itself.
    pub queue_bytes: u32,
    /// Decision on the segment.
    pub verdict: Verdict,
}

/// The emulator's decision on a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Forwarded.
    Passed,
    /// Lost on the path, by the loss model.
    Lost,
    /// Dropped because the queue was full, or by the queue discipline.
    Dropped,
    /// Dropped by ACK filtering: thinning or pacing.
    AckFiltered,
}

/// Bytes of the file that could not be read and were skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamagedRange {
    /// Offset of the first skipped byte from the beginning of the file.
    pub at: u64,
    /// Number of skipped bytes. A valid record or the end of the file follows.
    pub skipped: u64,
    /// Kind of damage.
    pub kind: DamageKind,
}

impl fmt::Display for DamagedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, skipped, kind } = self;
        write!(
            f,
            "at byte {at}: {kind}; {skipped} bytes were skipped, up to the next valid record or the end of the file"
        )
    }
}

/// Kinds of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum DamageKind {
    /// The end of the file inside a record.
    #[error("the file ends inside a record")]
    Truncated,
    /// An impossible record header, or a length that does not lead to the next header.
    #[error("not a record header")]
    Header,
    /// Two lengths of a pcapng block that differ or are impossible.
    #[error("not a block whose two lengths agree")]
    Lengths,
    /// A block that is too short for its contents.
    #[error("a block is shorter than what it should hold")]
    Short,
    /// A packet of an interface that the file has not described.
    #[error("a packet of an interface that was not described")]
    Interface,
    /// More interfaces than [`INTERFACES_MAX`](super::INTERFACES_MAX).
    #[error("too many interfaces")]
    Interfaces,
}
