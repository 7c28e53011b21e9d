// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one look at one connection finds.

use longhaul_admin::record::Group;
use longhaul_linux::tcp_info::TcpInfo;
use std::time::Instant;

/// A connection at one moment. Counts are since its start.
#[derive(Debug, Clone)]
pub(crate) struct Glimpse {
    pub(crate) number: u64,
    pub(crate) at: Instant,
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
    pub(crate) near: Option<LegGlimpse>,
    pub(crate) far: Option<LegGlimpse>,
}

/// One leg at one moment.
#[derive(Debug, Clone)]
pub(crate) struct LegGlimpse {
    pub(crate) group: Group,
    /// Among the connection's legs of this side.
    pub(crate) number: u64,
    /// Of its socket; of a striped leg, of all its streams, the first one first. Never empty.
    pub(crate) streams: Vec<TcpInfo>,
    pub(crate) is_striped: bool,
    pub(crate) buffered_bytes: u64,
    /// Pauses in reading from it, and whether one is on.
    pub(crate) pauses: u64,
    pub(crate) is_paused: bool,
    /// What comes from the other leg waits for room in this one's socket.
    pub(crate) writer_waits: bool,
}

impl LegGlimpse {
    /// Summed over the leg's streams.
    pub(crate) fn sum(&self, of: fn(&TcpInfo) -> u64) -> u64 {
        self.streams.iter().map(of).sum()
    }
}
