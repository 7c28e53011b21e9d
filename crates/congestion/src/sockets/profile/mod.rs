// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profile of socket options for all TCP sockets of a cgroup, of any program (`bpf/profile.bpf.c`).

#[cfg(feature = "bpf")]
mod attached;

#[cfg(not(feature = "bpf"))]
pub use crate::without_bpf::profile::{Attached, SocketNotifier, attach, permitted};
#[cfg(feature = "bpf")]
pub use attached::{Attached, SocketNotifier, attach, permitted};

/// Options of the sockets; `None` leaves the kernel's default. Connecting sockets get them before their
/// handshake, listening ones when they begin to listen; accepted connections inherit them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// TCP_CONGESTION, at most 15 bytes.
    pub congestion_control: Option<String>,
    /// Parameters of the congestion control for these sockets: `struct lh_connection` (connections.h).
    pub parameters: Option<[u8; 32]>,
    /// SO_MAX_PACING_RATE, payload bytes a second. A program may set 32 bits of it.
    pub pacing_bytes_per_s: Option<u32>,
    /// Time between full segments, in nanoseconds: the pacing rate follows from each connection's segment
    /// size.
    pub gap_ns: Option<u64>,
    /// Payload bytes that may be in flight (`snd_cwnd_clamp`, rounded down to segments, at least 2).
    pub cwnd_cap_bytes: Option<u64>,
    /// Segments before the first acknowledgement (RFC 6928), 1 to 1024.
    pub initial_window: Option<u32>,
    /// TCP_NOTSENT_LOWAT in bytes.
    pub notsent_lowat: Option<u32>,
    /// SO_KEEPALIVE: idle seconds before the first of four probes.
    pub keepalive_s: Option<u32>,
    /// TCP_USER_TIMEOUT in milliseconds (RFC 5482).
    pub user_timeout_ms: Option<u32>,
    /// TCP_MAXSEG in bytes.
    pub mss: Option<u32>,
    /// DSCP (RFC 2474), 0 to 63.
    pub dscp: Option<u8>,
    /// SO_SNDBUF in bytes; ends autotuning.
    pub send_buffer: Option<u32>,
    /// SO_RCVBUF in bytes; ends autotuning.
    pub receive_buffer: Option<u32>,
}

/// Counts of the sockets while the profile was attached.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Connections opened.
    pub connected: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Sockets that began to listen.
    pub listening: u64,
    /// Connections closed. The following sums include each connection up to its last change of state:
    /// bytes acknowledged after a close may be missing if the program ends before.
    pub closed: u64,
    /// Payload bytes that peers have acknowledged, and a byte for each SYN and FIN.
    pub bytes_acked: u64,
    /// Payload bytes received.
    pub bytes_received: u64,
    /// Segments sent.
    pub segments_out: u64,
    /// Segments retransmitted.
    pub retransmitted: u64,
    /// Settings that the kernel refused.
    pub refused: Vec<Refused>,
}

/// A setting that the kernel refused on some sockets.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Refused {
    /// Name of the setting.
    pub setting: &'static str,
    /// Number of refusals.
    pub sockets: u64,
    /// The last error's number (errno(3)).
    pub errno: i64,
}
