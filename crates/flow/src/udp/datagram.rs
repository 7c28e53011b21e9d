// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams as the analysis uses them.

use super::quic::Header;
use crate::segment::{CapturePoint, FlowKey};

/// A UDP datagram, or a super-packet of several, as captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// Time, ns since 1970.
    pub at_ns: u64,
    /// Whether the sender is `FlowKey::low`.
    pub from_low: bool,
    /// Number of datagrams on the wire: 1, or more for a super-packet whose datagrams have a known size.
    pub wire_datagrams: u32,
    /// IP bytes of all datagrams on the wire.
    pub wire_bytes: u32,
    /// Payload bytes of UDP.
    pub payload_bytes: u32,
    /// Header of the first QUIC packet, if the flow is of QUIC.
    pub quic: Option<Header>,
}

/// A datagram with its place in the capture.
#[derive(Debug, Clone, Copy)]
pub struct CapturedDatagram {
    /// Packet number, over all capture points.
    pub number: u64,
    /// Capture point that saw it.
    pub capture_point: CapturePoint,
    /// Flow that it belongs to.
    pub key: FlowKey,
    /// Datagram.
    pub datagram: Datagram,
}

/// End of a flow, as an index of arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

impl End {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}
