// SPDX-License-Identifier: MIT OR Apache-2.0
//! Round trips of one direction, from the capture point to the receiver and back, by two methods: pairs of data and
//! ACK, and TSecr.
//!
//! SYN and FIN occupy a sequence number and so receive an ACK: they are samples like data.

pub(super) mod round_trip;
pub(super) mod timestamps;
mod unacked;

use crate::distribution::Histogram;
use crate::memory_budget::MemoryBudget;
use crate::segment::Segment;
use round_trip::RoundTrip;
use std::ops::Range;
use timestamps::Timestamps;
use unacked::{AckBoundary, UnackedPackets};

/// Round-trip sample of one ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// Time from the packet with the last byte acknowledged to the ACK, or from the packet whose TSval the ACK echoes,
    /// ns.
    pub(super) rtt_ns: u64,
    /// Age of the first byte that the ACK does not cover, ns; see
    /// [`Bin::unacked_age_min_us`](crate::bin::Bin::unacked_age_min_us). `None` for a sample by timestamp, and if the
    /// time when that byte was sent is unknown.
    pub(super) unacked_age_ns: Option<u64>,
}

/// Packets and TSvals that await an ACK, and the samples.
#[derive(Debug, Default)]
pub(super) struct RoundTrips {
    unacked: UnackedPackets,
    timestamps: Timestamps,
    smoothed: RoundTrip,
    pub(super) by_pairs: Histogram,
    pub(super) by_timestamps: Histogram,
}

impl RoundTrips {
    /// Returns the current SRTT and RTTVAR.
    pub(super) fn smoothed(&self) -> RoundTrip {
        self.smoothed
    }

    /// Records the TSval of a packet of this direction. `has_sequence` is true if the packet occupies sequence numbers,
    /// so that an ACK answers it.
    #[inline]
    pub(super) fn record_tsval(
        &mut self,
        segment: &Segment,
        has_sequence: bool,
        budget: &mut MemoryBudget,
    ) {
        if segment.has_timestamps {
            self.timestamps
                .record_sent(segment.tsval, segment.at_ns, has_sequence, budget);
        }
    }

    /// Returns whether `segment` has a TSval newer than all before.
    pub(super) fn is_newest(&self, segment: &Segment) -> bool {
        segment.has_timestamps && self.timestamps.is_newest(segment.tsval)
    }

    /// Returns whether `segment` has a TSval older than the newest so far.
    pub(super) fn is_outdated(&self, segment: &Segment) -> bool {
        segment.has_timestamps && self.timestamps.is_outdated(segment.tsval)
    }

    /// Records `length` sequence numbers from `start` on, which are sent for the first time.
    #[inline]
    pub(super) fn record_sent(
        &mut self,
        start: u64,
        length: u32,
        at_ns: u64,
        budget: &mut MemoryBudget,
    ) {
        self.unacked.record_sent(start, length, at_ns, budget);
    }

    /// Forgets the unacknowledged packets, after a break in the sequence numbers.
    pub(super) fn reset(&mut self) {
        self.unacked.clear();
    }

    /// Forgets the packets and TSvals that await an answer.
    pub(super) fn forget_times(&mut self) {
        self.unacked.clear();
        self.timestamps.forget_pending();
    }

    /// Returns the packets that have waited longest for their ACK; see [`UnackedPackets::oldest`].
    pub(super) fn oldest(&self) -> impl Iterator<Item = (u64, u32, u32)> {
        self.unacked.oldest()
    }

    /// Returns the memory of the distributions, bytes.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.by_pairs.bytes() + self.by_timestamps.bytes()
    }

    /// Returns the memory of the tables, bytes.
    pub(super) fn table_bytes(&self) -> usize {
        self.unacked.table_bytes() + self.timestamps.table_bytes()
    }

    /// Records that these sequence numbers were retransmitted.
    pub(super) fn record_retransmission(&mut self, numbers: Range<u64>) {
        self.unacked.record_retransmission(numbers);
    }

    /// Processes the ACK number `ack` of a segment from the other end. `before` is the ACK number before it, and `next`
    /// is the next new sequence number. Returns a round-trip sample: by data and ACK, or else by timestamp.
    #[inline]
    pub(super) fn process_ack(
        &mut self,
        [before, ack, next]: [u64; 3],
        segment: &Segment,
    ) -> Option<Sample> {
        let by_timestamp = self.sample_from_echo(segment);
        let covered = (ack > before)
            .then(|| self.unacked.acknowledge(before, ack))
            .flatten();
        let sample = match covered {
            Some(covered) => self.sample_from_packet(covered, segment.at_ns, ack == next),
            None => Sample {
                rtt_ns: by_timestamp?,
                unacked_age_ns: None,
            },
        };
        self.smoothed.add_sample(sample.rtt_ns);
        Some(sample)
    }

    #[inline]
    fn sample_from_packet(&mut self, covered: AckBoundary, at_ns: u64, covers_all: bool) -> Sample {
        let rtt_ns = at_ns.saturating_sub(covered.last_ns);
        self.by_pairs.record(rtt_ns);
        let age = |sent_ns| at_ns.saturating_sub(sent_ns);
        Sample {
            rtt_ns,
            unacked_age_ns: covered.next_ns.map(age).or(covers_all.then_some(0)),
        }
    }

    /// Returns whether `segment` repeats the last TSecr or has none.
    #[inline]
    pub(super) fn repeats_last_echo(&self, segment: &Segment) -> bool {
        !segment.has_timestamps || self.timestamps.is_last_echo(segment.tsecr)
    }

    #[inline]
    fn sample_from_echo(&mut self, segment: &Segment) -> Option<u64> {
        if !segment.has_timestamps {
            return None;
        }
        let sent_ns = self.timestamps.take_echo(segment.tsecr)?;
        let rtt = segment.at_ns.saturating_sub(sent_ns);
        self.by_timestamps.record(rtt);
        Some(rtt)
    }
}
