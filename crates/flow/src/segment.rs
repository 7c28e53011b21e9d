// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the analysis takes of a captured packet, and sequence numbers without their wrap-around, which at 10 Gbit/s
//! comes every 3.4 s.

use longhaul_packet::capture::EmulatorRecord;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    /// IPv4 or IPv6 address.
    pub address: IpAddr,
    /// TCP port.
    pub port: u16,
}

/// `10.0.0.1:40000`, `[2001:db8::1]:443`.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port).fmt(f)
    }
}

/// A connection, whichever way a packet went: the lesser end first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The lesser of both.
    pub low: Endpoint,
    /// The greater.
    pub high: Endpoint,
}

/// Where segments were seen: an interface of a file. The same connection seen at two of them is two
/// flows, whose comparison says what happened in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CapturePoint(
    /// Over all files of an analysis, from 0.
    pub u32,
);

/// Most SACK blocks that fit into TCP's options beside nothing else (RFC 2018 §3).
pub const SACK_BLOCKS_MAX: usize = 4;

/// A segment without a window scale.
pub const NO_SCALE: u8 = 0xff;

/// The capture has too few bytes of the segment to say whether it has a window scale.
pub const SCALE_CUT: u8 = 0xfe;

/// A TCP segment, or a super-packet of several, as it was captured. Sequence numbers are those of the
/// wire; whoever analyses unwraps them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Segment {
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    /// First payload byte (or the SYN).
    pub seq: u32,
    /// Next byte that the sender of this expects; of no meaning without the ACK flag.
    pub ack: u32,
    /// Payload in bytes, from the IP length, so that a short snaplen changes nothing.
    pub payload: u32,
    /// IP bytes of all its segments on the wire, headers repeated for each.
    pub wire_bytes: u32,
    /// How many segments it was on the wire: 1, or more for a super-packet.
    pub wire_segments: u16,
    /// Advertised window, unscaled.
    pub window: u16,
    /// TCP flags, CWR highest (`longhaul_packet::tcp`).
    pub flags: u8,
    /// How many of `sack` count.
    pub sack_blocks: u8,
    /// From `FlowKey::low` to `high`, or the other way.
    pub from_low: bool,
    /// Window scale of a SYN (RFC 7323 §2), or [`NO_SCALE`], or [`SCALE_CUT`].
    pub window_scale: u8,
    /// MSS of a SYN; 0 is none.
    pub mss: u16,
    /// SYN with SACK permitted.
    pub sack_permitted: bool,
    /// Whether time stamps are there (RFC 7323 §3).
    pub has_timestamps: bool,
    /// TSval.
    pub tsval: u32,
    /// TSecr.
    pub tsecr: u32,
    /// What the emulator says of it, before its queue.
    pub truth: Option<EmulatorRecord>,
    /// SACK blocks, left and right edge.
    pub sack: [(u32, u32); SACK_BLOCKS_MAX],
}

/// A segment, and where in the capture it is.
#[derive(Debug, Clone, Copy)]
pub struct CapturedSegment {
    /// The packet's, over all vantages and shards.
    pub number: u64,
    /// Where it was seen.
    pub capture_point: CapturePoint,
    /// Of which connection.
    pub key: FlowKey,
    /// What it is.
    pub segment: Segment,
}

/// What a flow's first number is put upon, so that none that comes later is below zero.
const SEQUENCE_BASE: u64 = 1 << 32;

/// No window is larger (RFC 7323 §2.2), so a number further away than this is damage, or comes behind a gap of the
/// capture.
pub(crate) const WINDOW_MAX: u64 = 1 << 30;

/// The first number that is known of a direction; never 0.
pub(crate) fn unwrap_first(number: u32) -> u64 {
    SEQUENCE_BASE + u64::from(number)
}

/// The number nearest to `reference` that looks like `number` on the wire (RFC 9293 §3.4).
pub(crate) fn unwrap_near(reference: u64, number: u32) -> u64 {
    let distance = number.wrapping_sub(reference as u32).cast_signed();
    reference.wrapping_add_signed(i64::from(distance))
}

/// The number from `reference` on that looks like `number` on the wire.
pub(crate) fn unwrap_ahead(reference: u64, number: u32) -> u64 {
    reference + u64::from(number.wrapping_sub(reference as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_the_wrap_in_both_directions() {
        let before = unwrap_first(u32::MAX - 9);
        let after = unwrap_near(before, 10);
        assert_eq!(after - before, 20);
        assert_eq!(unwrap_near(after, u32::MAX - 9), before);
    }

    #[test]
    fn the_far_half_is_behind() {
        let here = unwrap_first(0);
        assert_eq!(unwrap_near(here, 0x7fff_ffff), here + 0x7fff_ffff);
        assert_eq!(unwrap_near(here, 0x8000_0000), here - 0x8000_0000);
    }

    #[test]
    fn ahead_is_never_behind() {
        let here = unwrap_first(5);
        assert_eq!(
            [5, 6, 4].map(|n| unwrap_ahead(here, n) - here),
            [0, 1, 0xffff_ffff]
        );
    }

    #[test]
    fn many_wraps_add_up() {
        let mut at = unwrap_first(5);
        for step in 1..=20u64 {
            at = unwrap_near(at, (5 + step * 0x4000_0000) as u32);
        }
        assert_eq!(at, unwrap_first(5) + 20 * 0x4000_0000);
    }
}
