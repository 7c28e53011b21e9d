// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sender as its packets show it by the ACKs that they echo (`acks/echoed_acks.rs`). At every capture point that is the
//! same, to the resolution of the timestamps.

/// View of the sender in one bin. Only the classification of limits uses it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SenderView {
    /// Least time from an ACK at the capture point to data that echoes it, µs; at least 1, and 0 is no sample.
    pub rtt_min_us: u32,
    /// Most bytes in flight when a packet was sent, as the sender knew it.
    pub in_flight_max: u32,
    /// Packets that end within a segment of the end of the window that their sender knew.
    pub window_full: u32,
    /// Delay of the fastest packet from the sender to the capture point, relative to the first packet, by TSval, µs.
    pub data_path_delay_us: Option<i32>,
}

impl SenderView {
    /// Merges a later view of the same direction; counts saturate.
    pub(super) fn merge(&mut self, other: &Self) {
        self.record_rtt(other.rtt_min_us);
        self.in_flight_max = self.in_flight_max.max(other.in_flight_max);
        self.window_full = self.window_full.saturating_add(other.window_full);
        if let Some(delay_us) = other.data_path_delay_us {
            self.record_delay(delay_us);
        }
    }

    /// Records a round-trip sample; 0 is none.
    #[inline]
    pub(crate) fn record_rtt(&mut self, rtt_us: u32) {
        self.rtt_min_us = match (self.rtt_min_us, rtt_us) {
            (0, rtt) | (rtt, 0) => rtt,
            (own, other) => own.min(other),
        };
    }

    /// Records the delay of a packet.
    #[inline]
    pub(crate) fn record_delay(&mut self, delay_us: i32) {
        let least = self.data_path_delay_us.unwrap_or(delay_us);
        self.data_path_delay_us = Some(least.min(delay_us));
    }
}
