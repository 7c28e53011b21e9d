// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of ACK control, and its counts.

use std::time::Duration;

/// Largest [`Settings::ratio`]: more full-sized segments are a large part of many windows.
pub const RATIO_MAX: u32 = 256;

/// Settings for pure ACKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Full-sized segments an ACK (RFC 5690's ACK ratio), 1 to [`RATIO_MAX`]. 1: no thinning.
    pub ratio: u32,
    /// Longest time that an ACK is delayed. The limit is also a quarter of the connection's round trip, but
    /// at least 1 ms.
    pub hold_max: Duration,
    /// Queueing class of pure ACKs.
    pub pace: Option<Class>,
}

/// A class of a device's queueing discipline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    /// `MAJOR << 16 | MINOR`, the value of `skb->priority`.
    pub handle: u32,
    /// Index of the device.
    pub device: u32,
}

/// Counts of pure ACKs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// ACKs that the sockets generated.
    pub generated: u64,
    /// ACKs that were withheld, permanently or temporarily.
    pub withheld: u64,
    /// ACKs that were sent after a delay.
    pub delayed: u64,
}

impl Counts {
    /// Returns the ACKs sent, at once or delayed.
    #[must_use]
    pub fn sent(&self) -> u64 {
        (self.generated + self.delayed).saturating_sub(self.withheld)
    }
}
