// SPDX-License-Identifier: MIT OR Apache-2.0
//! A direction's course over time, bin by bin.

use serde::{Deserialize, Serialize};

/// What one bin of time had of one direction: its data stream, and the ACK stream that came back
/// for it. Sums, but where it says otherwise. An empty bin is all zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bin {
    /// Payload bytes that were sent, also again.
    pub data_bytes: u64,
    /// Segments with payload, as on the wire.
    pub data_segments: u32,
    /// Payload bytes among them that had been sent before.
    pub retransmitted_bytes: u32,
    /// Bytes newly acknowledged: the sum of AckDiff.
    pub acked_bytes: u64,
    /// Pure ACKs that came back.
    pub acks: u32,
    /// Duplicates among them (RFC 5681 §2).
    pub duplicate_acks: u32,
    /// ACKs with SACK blocks among them.
    pub sacks: u32,
    /// Largest AckDiff, bytes.
    pub ack_diff_max: u32,
    /// Round trip, least and greatest sample in ns; 0 is no sample.
    pub rtt_min_ns: u64,
    /// The greatest.
    pub rtt_max_ns: u64,
    /// Most bytes in flight as the tap sees it.
    pub in_flight_max: u64,
    /// Least advertised window, scaled; none in a bin without an ACK.
    pub window_min: Option<u64>,
    /// Longest queue that the emulator reported, bytes.
    pub queue_max: u32,
    /// Segments that the emulator reported as lost or dropped.
    pub drops: u32,
}
