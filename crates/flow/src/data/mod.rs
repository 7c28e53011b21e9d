// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data stream of one direction: sequence numbers sent, bytes and segments.

mod packet_gaps;
pub(super) mod retransmission;
pub(super) mod sequence_gaps;
pub(super) mod stray;

use crate::acks::SynFinNumbers;
use crate::record::Data;
use crate::segment::{Segment, unwrap_first, unwrap_near};
use crate::time_series::bin::Bin;
use longhaul_packet::tcp::{FIN, SYN};
use packet_gaps::PacketGaps;
use retransmission::Recovery;
use sequence_gaps::SequenceGaps;

/// Largest payload of one segment if no MSS is known: jumbo frames of 9,000 bytes.
const DEFAULT_PAYLOAD_MAX: u32 = 8_960;
/// Least payload of a full jumbo frame. Segments of Ethernet are never merged to a length from here to the largest one.
const JUMBO_PAYLOAD_MIN: u32 = 8_900;
/// MSS that is assumed if none is known: Ethernet with IPv4.
const DEFAULT_MSS: u16 = 1_460;
/// Least MSS of Linux (`TCP_MIN_MSS`, `include/net/tcp.h`): a smaller option value counts as damaged.
const MSS_MIN: u16 = 88;
/// Bytes of the MSS that the timestamps option uses, with its padding.
const TIMESTAMPS_LEN: u32 = 12;

/// Sequence numbers of a segment, unwrapped.
#[derive(Debug, Clone, Copy)]
pub(super) struct SequenceRange {
    /// First number. A SYN has a number of its own.
    pub(super) start: u64,
    /// End (exclusive). A FIN has a number of its own.
    pub(super) end: u64,
}

impl SequenceRange {
    /// Returns the range of a segment that begins at `start`.
    #[inline]
    pub(super) fn of(segment: &Segment, start: u64) -> Self {
        let syn_fin = (segment.flags & (SYN | FIN)).count_ones();
        let end = start + u64::from(segment.payload) + u64::from(syn_fin);
        Self { start, end }
    }

    /// Returns the length of the range.
    pub(super) fn len(self) -> u32 {
        (self.end - self.start) as u32
    }
}

/// State from the segments sent so far.
#[derive(Debug, Default)]
pub(super) struct SendState {
    /// Next new number (`SND.NXT`); 0 while none is known.
    pub(super) next: u64,
    /// First number of the data, or the first number seen.
    pub(super) origin: u64,
    pub(super) syn_fin: SynFinNumbers,
    /// Initial sequence number, as on the wire.
    pub(super) isn: Option<u32>,
    /// Smaller of the MSS options of both ends.
    pub(super) mss: Option<u16>,
    /// Number of the last byte sent into a zero window; 0 is none.
    pub(super) zero_window_probe: u64,
    pub(super) sequence_gaps: SequenceGaps,
    pub(super) recovery: Recovery,
    pub(super) packet_gaps: PacketGaps,
    pub(super) data: Data,
}

impl SendState {
    /// Returns the range of `segment`, which may be the first of this direction.
    #[inline]
    pub(super) fn sequence_range(&mut self, segment: &Segment) -> SequenceRange {
        if self.next == 0 {
            self.set_initial_number(segment.seq);
        }
        SequenceRange::of(segment, unwrap_near(self.next, segment.seq))
    }

    /// Sets the first known number.
    #[cold]
    pub(super) fn set_initial_number(&mut self, number: u32) {
        self.next = unwrap_first(number);
        self.origin = self.next;
    }

    /// Returns whether the packet counted last is the first of its sender, in a capture that begins in the middle of the
    /// connection. Numbers below it that were not acknowledged yet were in flight before.
    pub(super) fn is_first_in_middle(&self) -> bool {
        self.data.packets == 1 && self.isn.is_none()
    }

    /// Records the numbers of a SYN or a FIN.
    #[cold]
    pub(super) fn record_syn_fin(&mut self, segment: &Segment, range: SequenceRange) {
        if segment.flags & SYN != 0 {
            self.syn_fin.syn = range.start;
            self.origin = range.start + 1;
            self.isn = Some(segment.seq);
        }
        if segment.flags & FIN != 0 {
            self.syn_fin.fin = range.end - 1;
        }
    }

    /// Counts a packet of any kind and returns the number of its segments on the wire.
    #[inline]
    pub(super) fn count_packet(&mut self, segment: &Segment) -> u32 {
        let segments = match segment.wire_segments {
            0 | 1 if segment.payload > self.payload_max() => self.estimate_segments(segment),
            known => u32::from(known.max(1)),
        };
        self.data.packets += 1;
        self.data.wire_segments += u64::from(segments);
        self.data.wire_bytes += u64::from(segment.wire_bytes);
        segments
    }

    /// Estimates the number of segments of a super-packet whose segment size the capture does not have, and counts
    /// their headers. Without a SYN, the first such packet shows that shorter ones may have been super-packets, too.
    #[cold]
    fn estimate_segments(&mut self, segment: &Segment) -> u32 {
        let longest = self.data.segment_max_bytes;
        if self.mss.is_none() && longest < JUMBO_PAYLOAD_MIN {
            self.mss = Some(DEFAULT_MSS);
            self.data.segment_max_bytes = longest.min(self.segment_len(segment.has_timestamps));
        }
        let segments = segment
            .payload
            .div_ceil(self.segment_len(segment.has_timestamps));
        let header = segment.wire_bytes.saturating_sub(segment.payload);
        self.data.estimated_packets += 1;
        self.data.wire_bytes += u64::from(header) * u64::from(segments - 1);
        segments
    }

    #[inline]
    fn payload_max(&self) -> u32 {
        self.mss
            .map_or(DEFAULT_PAYLOAD_MAX, |mss| u32::from(mss.max(MSS_MIN)))
    }

    fn segment_len(&self, timestamps: bool) -> u32 {
        let mss = u32::from(self.mss.unwrap_or(DEFAULT_MSS).max(MSS_MIN));
        mss - if timestamps { TIMESTAMPS_LEN } else { 0 }
    }

    /// Returns the largest segment seen, or an estimate of it.
    #[inline]
    pub(super) fn segment_max(&self) -> u32 {
        match self.data.segment_max_bytes {
            0 => self.segment_len(false),
            seen => seen,
        }
    }

    /// Counts a packet with payload that was `segments` segments on the wire.
    #[inline]
    pub(super) fn count_data(&mut self, segment: &Segment, segments: u32, bin: &mut Bin) {
        let data = &mut self.data;
        let (payload, at_ns) = (segment.payload, segment.at_ns);
        let largest = if segments == 1 {
            payload
        } else {
            payload.div_ceil(segments)
        };
        data.segment_max_bytes = data.segment_max_bytes.max(largest);
        data.data_packets += 1;
        data.data_segments += u64::from(segments);
        data.payload_bytes += u64::from(payload);
        data.first_data_ns.get_or_insert(at_ns);
        data.last_data_ns = data.last_data_ns.max(Some(at_ns));
        bin.data_bytes += u64::from(payload);
        bin.data_segments = bin.data_segments.saturating_add(segments);
        let full = u64::from(data.segment_max_bytes) * u64::from(segments);
        bin.short_segments += u32::from(u64::from(payload) < full);
    }
}
