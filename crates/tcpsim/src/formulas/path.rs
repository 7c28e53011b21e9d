// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection's path as formulas see it.

use longhaul_units::{BitRate, Bytes, Time};

/// IPv4 and TCP headers with time stamps, bytes a packet.
pub const HEADERS: u32 = 52;

/// A path and the bounds of a connection on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// Bottleneck, bits a second of IP bytes.
    pub rate: BitRate,
    /// Round trip without any queue, at least 1 µs.
    pub rtt: Time,
    /// Share of data packets that are lost, each by itself, 0 to 1.
    pub loss: f64,
    /// Payload of a packet in bytes.
    pub mss: u32,
    /// What may wait for the bottleneck, bytes.
    pub queue: Bytes,
    /// Payload that may be out: the smaller of receive window and send buffer.
    pub window: Bytes,
}

impl Path {
    /// Round trip in seconds.
    #[must_use]
    pub fn rtt_s(&self) -> f64 {
        self.rtt.as_secs_f64().max(1e-6)
    }

    /// What of the rate is left for payload, bits a second.
    #[must_use]
    pub fn payload_bps(&self) -> f64 {
        let mss = f64::from(self.mss);
        self.rate.bits() as f64 * mss / (mss + f64::from(HEADERS))
    }

    /// Packets that fill the path.
    #[must_use]
    pub fn bdp_packets(&self) -> f64 {
        self.payload_bps() * self.rtt_s() / self.packet_bits()
    }

    /// Packets that the queue holds.
    #[must_use]
    pub fn queue_packets(&self) -> f64 {
        self.queue.get() as f64 / f64::from(self.mss + HEADERS)
    }

    /// Packets that the window allows.
    #[must_use]
    pub fn window_packets(&self) -> f64 {
        self.window.get() as f64 / f64::from(self.mss)
    }

    /// Payload bits of a packet.
    #[must_use]
    pub fn packet_bits(&self) -> f64 {
        f64::from(self.mss) * 8.0
    }

    /// Goodput of `packets` a round trip, bits a second.
    #[must_use]
    pub fn goodput_bps(&self, packets: f64) -> f64 {
        packets * self.packet_bits() / self.rtt_s()
    }
}
