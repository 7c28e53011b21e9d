// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path of one connection, as formulas see it.

use longhaul_units::{BitRate, Bytes, Time};

/// IPv4 and TCP headers with timestamps, bytes a packet.
pub const HEADERS: u32 = 52;

/// Path, and the window bounds of a connection on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// Bottleneck rate, which counts IP bytes.
    pub rate: BitRate,
    /// Round trip without any queue, at least 1 µs.
    pub rtt: Time,
    /// Share of data packets lost, each independently, 0 to 1.
    pub loss: f64,
    /// Payload of a packet in bytes.
    pub mss: u32,
    /// Capacity of the queue at the bottleneck, bytes.
    pub queue: Bytes,
    /// Payload that may be in flight, bytes: the smaller of receive window and send buffer.
    pub window: Bytes,
}

impl Path {
    /// Returns the round trip in seconds.
    #[must_use]
    pub fn rtt_s(&self) -> f64 {
        self.rtt.as_secs_f64().max(1e-6)
    }

    /// Returns the part of the rate left for payload, bits a second.
    #[must_use]
    pub fn payload_bps(&self) -> f64 {
        let mss = f64::from(self.mss);
        self.rate.bits() as f64 * mss / (mss + f64::from(HEADERS))
    }

    /// Returns the packets that fill the path.
    #[must_use]
    pub fn bdp_packets(&self) -> f64 {
        self.payload_bps() * self.rtt_s() / self.packet_bits()
    }

    /// Returns the packets that the queue holds.
    #[must_use]
    pub fn queue_packets(&self) -> f64 {
        self.queue.get() as f64 / f64::from(self.mss + HEADERS)
    }

    /// Returns the packets that the window allows.
    #[must_use]
    pub fn window_packets(&self) -> f64 {
        self.window.get() as f64 / f64::from(self.mss)
    }

    /// Returns the payload bits of a packet.
    #[must_use]
    pub fn packet_bits(&self) -> f64 {
        f64::from(self.mss) * 8.0
    }

    /// Returns the goodput of `packets` in each round trip, bits a second.
    #[must_use]
    pub fn goodput_bps(&self, packets: f64) -> f64 {
        packets * self.packet_bits() / self.rtt_s()
    }
}
