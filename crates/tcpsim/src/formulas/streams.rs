// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several connections for one job.

use super::{Path, prediction::Prediction, receive_buffer, window_limit};
use longhaul_units::Bytes;

/// Largest number of streams. More never helped, because each has its own slow start and its own share of loss.
pub const STREAMS_MAX: u32 = 10_000;

/// Connections that share a job over one path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Streams {
    /// Number of connections.
    pub count: u32,
    /// Payload rate of all together, bits a second.
    pub goodput_bps: f64,
    /// Window that each connection needs, payload bytes.
    pub window: Bytes,
    /// Kernel memory for all windows at one end: `tcp_rmem` at the receiver, `tcp_wmem` at the sender.
    pub memory: Bytes,
}

/// Returns `count` connections, each as fast as `single`, until the line is full.
#[must_use]
pub fn of(count: u32, single: &Prediction, path: &Path) -> Streams {
    let goodput_bps = (single.goodput_bps * f64::from(count)).min(path.payload_bps());
    let window = window(count, goodput_bps, path);
    Streams {
        count,
        goodput_bps,
        window,
        memory: Bytes::new(receive_buffer::buffer_for(window).get() * u64::from(count)),
    }
}

/// Returns the smallest number that reaches nine tenths of the line's payload rate.
#[must_use]
pub fn needed(single: &Prediction, path: &Path) -> u32 {
    let count = 0.9 * path.payload_bps() / single.goodput_bps.max(1.0);
    (count.ceil() as u32).clamp(1, STREAMS_MAX)
}

/// Returns the window of each connection. A single one needs the bytes in flight. One of several may have twice
/// its share, but never needs more than the whole path. TCP's largest window is 1 GiB.
fn window(count: u32, goodput_bps: f64, path: &Path) -> Bytes {
    let all = window_limit::window_bytes(goodput_bps, path.rtt_s());
    let share = (2 * all / u64::from(count.max(1))).min(all);
    Bytes::new(share.min(window_limit::LARGEST_BYTES))
}
