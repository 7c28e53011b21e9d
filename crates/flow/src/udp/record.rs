// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of UDP flows, as `longhaul tap analyze` writes them to `result.json`.

use crate::record::Distribution;
use crate::segment::{CapturePoint, Endpoint};
use serde::{Deserialize, Serialize};

/// One UDP flow: all datagrams between two ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UdpFlow {
    /// Number of its first packet in the capture, as the caller counts.
    pub number: u64,
    /// Capture point that saw the flow.
    pub capture_point: CapturePoint,
    /// End that sent the first datagram, unless that one alone has a port below 1024: then the other end.
    pub client: Endpoint,
    /// Other end.
    pub server: Endpoint,
    /// Time of the first packet, ns since 1970.
    pub first_ns: u64,
    /// Time of the last packet, ns since 1970.
    pub last_ns: u64,
    /// Datagrams from the client.
    pub upload: UdpDirection,
    /// Datagrams from the server.
    pub download: UdpDirection,
    /// Facts about QUIC, if the flow has a long header of a known version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quic: Option<Quic>,
}

impl UdpFlow {
    /// Returns the payload of both directions, bytes.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        let Self {
            upload, download, ..
        } = self;
        upload.payload_bytes.saturating_add(download.payload_bytes)
    }
}

/// Counts of one direction of a UDP flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpDirection {
    /// Captured packets.
    pub packets: u64,
    /// Number of datagrams that these packets had on the wire.
    pub wire_datagrams: u64,
    /// IP bytes on the wire.
    pub wire_bytes: u64,
    /// Payload bytes of UDP.
    pub payload_bytes: u64,
    /// Time of the first packet, ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_ns: Option<u64>,
    /// Time of the last packet, ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ns: Option<u64>,
}

impl UdpDirection {
    /// Returns the time from the first to the last packet, ns.
    #[must_use]
    pub fn duration_ns(&self) -> Option<u64> {
        Some(self.last_ns?.saturating_sub(self.first_ns?))
    }
}

/// QUIC connection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Quic {
    /// Version of the last long header: `1`, `2` or `draft-29`.
    pub version: String,
    /// Round trip between the ends in the handshake, ns: from the client's first packets to the server's first, and on
    /// to the client's next. `None` if either is missing or the client repeated its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake_rtt_ns: Option<u64>,
    /// Behaviour of the spin bit.
    pub spin_bit: SpinBit,
    /// Round trips between the ends by the spin bit, ns.
    pub spin_rtt: Distribution,
    /// Round trips between capture point and server by the spin bit, ns.
    pub spin_rtt_to_server: Distribution,
    /// Round trips between capture point and client by the spin bit, ns.
    pub spin_rtt_to_client: Distribution,
}

/// Behaviours of the spin bit (RFC 9000 §17.4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpinBit {
    /// The bit spins.
    Spins,
    /// The bit keeps its value: an end does not support it or switched it off.
    Constant,
    /// The bit changes at random: an end switched it off.
    Random,
    /// Too few packets with short headers, or from one end only.
    #[default]
    Unknown,
}
