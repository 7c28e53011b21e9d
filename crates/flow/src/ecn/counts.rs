// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of ECN marks and of their reports.

use serde::{Deserialize, Serialize};

/// ECN of the packets of one direction, as they passed the capture point, and of the ACKs for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EcnCounts {
    /// Segments on the wire with ECT(0), with payload or without.
    pub ect0_segments: u64,
    /// Segments on the wire with ECT(1), as L4S sends them (RFC 9331).
    pub ect1_segments: u64,
    /// Segments on the wire with CE: a queue before the capture point marked them.
    pub ce_segments: u64,
    /// Segments with CE and payload.
    pub ce_data_segments: u64,
    /// Packets with CWR: the sender reduced its window, after ECE or after a loss. 0 with AccECN.
    pub cwr_packets: u64,
    /// ACKs with ECE, with payload or without. 0 with AccECN.
    pub ece_acks: u64,
    /// Packets with CE that the receiver reported in the ACE field (RFC 9768 §3.2.2). 0 without AccECN.
    pub reported_ce_packets: u64,
}
