// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bin of a time series of one direction.

use super::sender_view::SenderView;
use serde::{Deserialize, Serialize};

/// Counts of one direction in one bin of time: its data, and the ACKs for it. Values are sums unless stated otherwise.
/// An empty bin is all zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bin {
    /// Payload bytes sent, retransmissions included.
    pub data_bytes: u64,
    /// Most of these bytes in one of the finest bins within this one: a burst that a mean hides.
    pub data_bytes_max: u64,
    /// Segments with payload, as on the wire.
    pub data_segments: u32,
    /// Payload bytes that had been sent before.
    pub retransmitted_bytes: u64,
    /// Retransmitted packets with payload.
    pub retransmissions: u32,
    /// Retransmitted packets after a timeout.
    pub timeouts: u32,
    /// Packets with payload that end within a segment of the advertised window's end.
    pub window_full: u32,
    /// Packets that end in a segment shorter than the largest: the sender had no more data.
    pub short_segments: u32,
    /// Bytes newly acknowledged: the sum of AckDiff, the bytes that one ACK newly acknowledges.
    pub acked_bytes: u64,
    /// Most of these bytes in one of the finest bins within this one.
    pub acked_bytes_max: u64,
    /// Pure ACKs.
    pub acks: u32,
    /// Duplicate ACKs (RFC 5681 §2).
    pub duplicate_acks: u32,
    /// ACKs with SACK blocks, with payload or without.
    pub sacks: u32,
    /// ACKs that acknowledge new data, with payload or without: the samples of AckDiff.
    pub advancing_acks: u32,
    /// Largest AckDiff, bytes.
    pub ack_diff_max: u32,
    /// Least round-trip sample, ns; 0 is no sample.
    pub rtt_min_ns: u64,
    /// Greatest round-trip sample, ns.
    pub rtt_max_ns: u64,
    /// Sum of the round-trip samples, for their mean, ns.
    pub rtt_sum_ns: u64,
    /// Number of round-trip samples.
    pub rtt_samples: u32,
    /// Delay of the fastest ACK of this bin relative to the flow's first ACK, by their TSval, ns
    /// ([`crate::path_delay`]). Below zero if it was faster, `None` without timestamps.
    pub ack_path_delay_ns: Option<i64>,
    /// Most bytes in flight as seen at the capture point.
    pub in_flight_max: u64,
    /// Least advertised window, scaled. `None` in a bin without a pure ACK, an advancing ACK, or a window update. `u32` holds the
    /// largest window (RFC 7323 §2.3).
    pub window_min: Option<u32>,
    /// Last advertised window, if there is any; only the classification of limits uses it.
    #[serde(skip)]
    pub window_last: u32,
    /// Longest queue that the emulator reported, bytes.
    pub queue_max: u32,
    /// Segments that the emulator reported as lost or dropped.
    pub drops: u32,
    /// Segments with payload and CE, unless ECN was not negotiated.
    #[serde(default)]
    pub ce_segments: u32,
    /// Marks that the receiver reported: ACKs with ECE, and with AccECN packets with CE.
    #[serde(default)]
    pub reported_marks: u32,
    /// Least age of the first unacknowledged byte when an ACK came, µs; at least 1, and 0 is no sample. The age is 1 if
    /// an ACK acknowledged every byte.
    ///
    /// A receiver acknowledges all data that it has. A byte that an ACK does not cover had not arrived when the ACK
    /// left, so an age above the least round trip shows a queue. A delayed ACK makes a round trip longer, but not this
    /// age.
    pub unacked_age_min_us: u32,
    /// Whether everything sent was acknowledged after the last data or advancing ACK; only the classification of limits
    /// uses it. `None` in a bin without either.
    #[serde(skip)]
    pub all_acked: Option<bool>,
    /// The sender as its packets show it.
    #[serde(skip)]
    pub sender: SenderView,
}

impl Bin {
    /// Returns whether the bin has no events; `all_acked` alone is not an event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        if self.data_segments > 0 || self.acks > 0 {
            return false; // As nearly every bin with events: no more is compared.
        }
        let all_acked = None;
        Self { all_acked, ..*self } == Self::default()
    }

    /// Returns whether a packet had an ECN mark, or the receiver reported one.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.ce_segments > 0 || self.reported_marks > 0
    }

    /// Records the age of the first unacknowledged byte at one ACK, ns.
    #[inline]
    pub(crate) fn record_unacked_age(&mut self, age_ns: u64) {
        let age_us = u32::try_from(age_ns / 1_000).unwrap_or(u32::MAX).max(1);
        self.merge_unacked_age(age_us);
    }

    #[inline]
    fn merge_unacked_age(&mut self, age_us: u32) {
        self.unacked_age_min_us = match (self.unacked_age_min_us, age_us) {
            (0, age) | (age, 0) => age,
            (own, other) => own.min(other),
        };
    }

    /// Sets the maxima of a finest bin, which are its sums.
    pub(crate) fn set_finest_maxima(&mut self) {
        (self.data_bytes_max, self.acked_bytes_max) = (self.data_bytes, self.acked_bytes);
    }

    /// Merges a later bin of the same direction; counts saturate.
    pub fn merge(&mut self, other: &Self) {
        self.merge_data(other);
        self.merge_acks(other);
        self.merge_rtt(other);
        self.in_flight_max = self.in_flight_max.max(other.in_flight_max);
        self.queue_max = self.queue_max.max(other.queue_max);
        self.sender.merge(&other.sender);
        add_saturating(&mut self.drops, other.drops);
        add_saturating(&mut self.ce_segments, other.ce_segments);
        add_saturating(&mut self.reported_marks, other.reported_marks);
    }

    fn merge_data(&mut self, other: &Self) {
        self.data_bytes = self.data_bytes.saturating_add(other.data_bytes);
        self.data_bytes_max = self.data_bytes_max.max(other.data_bytes_max);
        self.retransmitted_bytes = self
            .retransmitted_bytes
            .saturating_add(other.retransmitted_bytes);
        add_saturating(&mut self.data_segments, other.data_segments);
        add_saturating(&mut self.retransmissions, other.retransmissions);
        add_saturating(&mut self.timeouts, other.timeouts);
        add_saturating(&mut self.window_full, other.window_full);
        add_saturating(&mut self.short_segments, other.short_segments);
    }

    fn merge_acks(&mut self, other: &Self) {
        self.acked_bytes = self.acked_bytes.saturating_add(other.acked_bytes);
        self.acked_bytes_max = self.acked_bytes_max.max(other.acked_bytes_max);
        add_saturating(&mut self.acks, other.acks);
        add_saturating(&mut self.duplicate_acks, other.duplicate_acks);
        add_saturating(&mut self.sacks, other.sacks);
        add_saturating(&mut self.advancing_acks, other.advancing_acks);
        self.ack_diff_max = self.ack_diff_max.max(other.ack_diff_max);
        self.window_min = smaller(self.window_min, other.window_min);
        if other.window_min.is_some() {
            self.window_last = other.window_last;
        }
        self.all_acked = other.all_acked.or(self.all_acked);
        self.ack_path_delay_ns = smaller(self.ack_path_delay_ns, other.ack_path_delay_ns);
        self.merge_unacked_age(other.unacked_age_min_us);
    }

    fn merge_rtt(&mut self, other: &Self) {
        if other.rtt_samples > 0 {
            self.rtt_min_ns = match self.rtt_samples {
                0 => other.rtt_min_ns,
                _ => self.rtt_min_ns.min(other.rtt_min_ns),
            };
            self.rtt_max_ns = self.rtt_max_ns.max(other.rtt_max_ns);
            self.rtt_sum_ns = self.rtt_sum_ns.saturating_add(other.rtt_sum_ns);
            add_saturating(&mut self.rtt_samples, other.rtt_samples);
        }
    }
}

/// Returns a sum over bins, which saturates.
pub(crate) fn sum_bins(bins: &[Bin], of: impl Fn(&Bin) -> u64) -> u64 {
    bins.iter().map(of).fold(0, u64::saturating_add)
}

fn add_saturating(sum: &mut u32, more: u32) {
    *sum = sum.saturating_add(more);
}

/// Returns the smaller value, or the only one.
fn smaller<T: Ord>(own: Option<T>, other: Option<T>) -> Option<T> {
    match (own, other) {
        (Some(own), Some(other)) => Some(own.min(other)),
        (own, other) => own.or(other),
    }
}
