// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that use a loaded congestion control, in every network namespace, with their state in the
//! kernel and in the algorithm. Reading them runs a BPF iterator (Linux 5.9) over the map of their socket
//! storage; it costs the connections nothing otherwise.

pub mod ack_counts;
#[cfg(feature = "bpf")]
mod walk;

#[cfg(not(feature = "bpf"))]
pub use crate::without_bpf::watch::Watch;
#[cfg(feature = "bpf")]
pub use walk::Watch;

use crate::math::STATE_WORDS;
use std::net::SocketAddr;

/// Snapshot of a connection. The kernel writes during the read: each number is correct, but two of them
/// may be an ACK apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Inode of its network namespace, as `ls -l /proc/self/ns/net` shows it.
    pub netns: u32,
    /// Local address.
    pub local: SocketAddr,
    /// Remote address.
    pub remote: SocketAddr,
    /// Its state (include/net/tcp_states.h): 1 established, 10 listening.
    pub tcp_state: u32,
    /// Name of the congestion control that it uses now.
    pub algorithm: String,
    /// Congestion window, packets.
    pub cwnd: u32,
    /// Slow-start threshold, packets; none before the first congestion event.
    pub ssthresh: Option<u32>,
    /// Smoothed round-trip time, µs; 0 before the first sample.
    pub srtt_us: u32,
    /// Sender's maximum segment size, bytes.
    pub mss: u32,
    /// Packets sent and not acknowledged.
    pub packets_out: u32,
    /// Segments retransmitted since it began.
    pub retransmits: u32,
    /// Congestion state (enum tcp_ca_state).
    pub ca_state: CaState,
    /// Pacing rate, bits a second; none: unlimited.
    pub pacing_rate_bps: Option<u64>,
    /// Payload bytes that the peer has acknowledged.
    pub bytes_acked: u64,
    /// The algorithm's state of the connection: `icsk_ca_priv`.
    pub own: [u64; STATE_WORDS],
}

/// `enum tcp_ca_state` (include/uapi/linux/tcp.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CaState {
    /// Normal operation.
    Open,
    /// Duplicate ACKs or SACKs arrived.
    Disorder,
    /// The window shrinks because of ECN or a local queue.
    Cwr,
    /// The window shrinks because of a loss, and lost segments are retransmitted.
    Recovery,
    /// The retransmission timer expired.
    Loss,
}

impl CaState {
    /// Returns the name that `ss -i` and the JSON output use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Disorder => "disorder",
            Self::Cwr => "cwr",
            Self::Recovery => "recovery",
            Self::Loss => "loss",
        }
    }
}

/// Identity of a connection: network namespace, local and remote address.
pub type Ends = (u32, SocketAddr, SocketAddr);

impl Connection {
    /// Returns the identity of the connection.
    #[must_use]
    pub fn ends(&self) -> Ends {
        (self.netns, self.local, self.remote)
    }
}
