// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments as the analysis uses them, and unwrapped sequence numbers. At 10 Gbit/s the wire's numbers wrap every 3.4
//! s.

use longhaul_packet::capture::EmulatorRecord;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

/// End of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    /// IPv4 or IPv6 address.
    pub address: IpAddr,
    /// TCP port.
    pub port: u16,
}

/// Formats as `10.0.0.1:40000`, `[2001:db8::1]:443`.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port).fmt(f)
    }
}

/// Key of a connection, equal for both directions: the lesser end first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Lesser end.
    pub low: Endpoint,
    /// Greater end.
    pub high: Endpoint,
}

impl FlowKey {
    /// Returns client and server.
    #[must_use]
    pub fn ends(&self, client_is_low: bool) -> [Endpoint; 2] {
        if client_is_low {
            [self.low, self.high]
        } else {
            [self.high, self.low]
        }
    }
}

/// Capture point: an interface of a file. A connection seen at two capture points is two flows, and their comparison
/// shows what happened in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CapturePoint(
    /// Index over all files of an analysis, from 0.
    pub u32,
);

/// Most SACK blocks that fit into TCP's options without other options (RFC 2018 §3).
pub const SACK_BLOCKS_MAX: usize = 4;

/// Value of `window_scale` for a segment without the option.
pub const NO_SCALE: u8 = 0xff;

/// ECN field of a packet without ECN (RFC 3168 §5).
pub const NOT_ECT: u8 = 0b00;
/// ECN field of a packet of L4S (RFC 9331 §4.1).
pub const ECT_1: u8 = 0b01;
/// ECN field of a packet that a queue may mark (RFC 3168 §5).
pub const ECT_0: u8 = 0b10;
/// ECN field of a packet that a queue has marked (RFC 3168 §5).
pub const CE: u8 = 0b11;

/// A TCP segment, or a super-packet of several, as captured. Sequence numbers are those of the wire; the analysis
/// unwraps them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Segment {
    /// Time, ns since 1970.
    pub at_ns: u64,
    /// Whether the time is an estimate, because the capture's own is wrong: no round trip is measured with it.
    pub time_is_estimated: bool,
    /// Number of the first payload byte (or of the SYN).
    pub seq: u32,
    /// ACK number; without meaning if the ACK flag is not set.
    pub ack: u32,
    /// Payload in bytes, from the IP length, so that a short snaplen changes nothing.
    pub payload: u32,
    /// IP bytes of all segments on the wire, headers repeated for each.
    pub wire_bytes: u32,
    /// Number of segments on the wire: 1, or more for a super-packet.
    pub wire_segments: u16,
    /// Advertised window, unscaled.
    pub window: u16,
    /// TCP flags, CWR highest (`longhaul_packet::tcp`).
    pub flags: u8,
    /// AE flag (RFC 9768 §3.1), which is above CWR.
    pub ae: bool,
    /// ECN field of the IP header: [`NOT_ECT`], [`ECT_1`], [`ECT_0`] or [`CE`].
    pub ecn: u8,
    /// Number of valid entries of `sack`.
    pub sack_blocks: u8,
    /// Whether the sender is `FlowKey::low`.
    pub from_low: bool,
    /// Whether IP's length reaches beyond the end of the frame on the wire.
    pub exceeds_frame: bool,
    /// Whether a part of the options was not captured: those that are missing may have been present.
    pub options_cut: bool,
    /// Window scale of a SYN (RFC 7323 §2), or [`NO_SCALE`].
    pub window_scale: u8,
    /// MSS option of a SYN; 0 is none.
    pub mss: u16,
    /// SACK-permitted option of a SYN.
    pub sack_permitted: bool,
    /// Whether the timestamps option is present (RFC 7323 §3).
    pub has_timestamps: bool,
    /// TSval.
    pub tsval: u32,
    /// TSecr.
    pub tsecr: u32,
    /// Payload that arrived with CE, by the AccECN option, bytes modulo 2²⁴ (RFC 9768 §3.2.3).
    pub reported_ce_bytes: Option<u32>,
    /// IPv4 identification; 0 for IPv6, and where a sender sets none (RFC 6864 §4.1).
    pub ip_id: u16,
    /// TTL or hop limit; 0 is unknown.
    pub ttl: u8,
    /// Record of the emulator about this packet, from before its queue.
    pub emulator_record: Option<EmulatorRecord>,
    /// SACK blocks, left and right edges.
    pub sack: [(u32, u32); SACK_BLOCKS_MAX],
}

/// A segment with its place in the capture.
#[derive(Debug, Clone, Copy)]
pub struct CapturedSegment {
    /// Packet number, over all capture points and shards.
    pub number: u64,
    /// Capture point that saw it.
    pub capture_point: CapturePoint,
    /// Connection that it belongs to.
    pub key: FlowKey,
    /// Segment.
    pub segment: Segment,
}

/// Offset of a flow's first number, so that no later one is below zero.
const SEQUENCE_BASE: u64 = 1 << 32;

/// Largest window (RFC 7323 §2.2). A number further away than this is damage, or comes after a gap of the capture.
pub(crate) const WINDOW_MAX: u64 = 1 << 30;

/// Returns the first number of a direction, unwrapped; never 0.
pub(crate) fn unwrap_first(number: u32) -> u64 {
    SEQUENCE_BASE + u64::from(number)
}

/// Returns the number nearest to `reference` that equals `number` on the wire (RFC 9293 §3.4).
pub(crate) fn unwrap_near(reference: u64, number: u32) -> u64 {
    let distance = number.wrapping_sub(reference as u32).cast_signed();
    reference.wrapping_add_signed(i64::from(distance))
}

/// Returns the first number from `reference` on that equals `number` on the wire.
pub(crate) fn unwrap_ahead(reference: u64, number: u32) -> u64 {
    reference + u64::from(number.wrapping_sub(reference as u32))
}

/// Compares timestamps that wrap (RFC 7323 §5.2).
pub(crate) fn is_newer(tsval: u32, than: u32) -> bool {
    tsval.wrapping_sub(than).cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwraps_in_both_directions() {
        let before = unwrap_first(u32::MAX - 9);
        let after = unwrap_near(before, 10);
        assert_eq!(after - before, 20);
        assert_eq!(unwrap_near(after, u32::MAX - 9), before);
    }

    #[test]
    fn far_half_is_behind_reference() {
        let here = unwrap_first(0);
        assert_eq!(unwrap_near(here, 0x7fff_ffff), here + 0x7fff_ffff);
        assert_eq!(unwrap_near(here, 0x8000_0000), here - 0x8000_0000);
    }

    #[test]
    fn unwrap_ahead_never_goes_back() {
        let here = unwrap_first(5);
        assert_eq!(
            [5, 6, 4].map(|n| unwrap_ahead(here, n) - here),
            [0, 1, 0xffff_ffff]
        );
    }

    #[test]
    fn adds_up_many_wraps() {
        let mut at = unwrap_first(5);
        for step in 1..=20u64 {
            at = unwrap_near(at, (5 + step * 0x4000_0000) as u32);
        }
        assert_eq!(at, unwrap_first(5) + 20 * 0x4000_0000);
    }
}
