// SPDX-License-Identifier: MIT OR Apache-2.0
//! Explicit Congestion Notification (ECN): queues mark packets with CE instead of dropping them, and the receiver reports
//! the marks to the sender.
//!
//! Classic ECN (RFC 3168 §6.1) reports by ECE, in every ACK until the sender answers with CWR. Accurate ECN (AccECN, RFC
//! 9768) counts the marked packets in the ACE field, which has the place of AE, CWR and ECE.

mod ace_counter;
pub mod counts;
pub mod negotiation;

use crate::segment::{CE, ECT_0, ECT_1, NOT_ECT, Segment};
use crate::time_series::bin::Bin;
use ace_counter::{AceCounter, AceReport};
use counts::EcnCounts;
use longhaul_packet::tcp::{CWR, ECE, SYN};
use negotiation::{EcnNegotiation, ace_field};

/// ECN of one direction: its packets, and the reports in the ACKs for them.
#[derive(Debug, Default)]
pub(crate) struct EcnState {
    negotiated: EcnNegotiation,
    pub(crate) counts: EcnCounts,
    ace: AceCounter,
}

impl EcnState {
    /// Sets what the handshake negotiated.
    pub(crate) fn set_negotiated(&mut self, negotiated: EcnNegotiation) {
        if self.negotiated != negotiated {
            self.negotiated = negotiated;
            self.ace = AceCounter::after_handshake();
        }
    }

    /// Returns what the packets show of a connection whose handshake is not in the capture.
    pub(crate) fn inferred(&self) -> EcnNegotiation {
        let counts = &self.counts;
        let capable = counts.ect0_segments + counts.ect1_segments + counts.ce_segments;
        match self.negotiated {
            EcnNegotiation::Unknown if capable > 0 => EcnNegotiation::Inferred,
            known => known,
        }
    }

    /// Counts a packet of the sender that was `segments` segments on the wire.
    #[inline]
    pub(crate) fn count_sent(&mut self, segment: &Segment, segments: u32, bin: &mut Bin) {
        if segment.ecn != NOT_ECT || segment.ae || segment.flags & CWR != 0 {
            self.count_ecn_field(segment, segments, bin);
        }
    }

    #[inline(never)]
    fn count_ecn_field(&mut self, segment: &Segment, segments: u32, bin: &mut Bin) {
        self.detect_accurate(segment);
        let counts = &mut self.counts;
        match segment.ecn {
            ECT_0 => counts.ect0_segments += u64::from(segments),
            ECT_1 => counts.ect1_segments += u64::from(segments),
            CE => counts.ce_segments += u64::from(segments),
            _ => {}
        }
        if segment.ecn == CE && segment.payload > 0 {
            counts.ce_data_segments += u64::from(segments);
            if self.negotiated != EcnNegotiation::NotNegotiated {
                bin.ce_segments = bin.ce_segments.saturating_add(segments);
            }
        }
        if self.negotiated != EcnNegotiation::Accurate && segment.flags & (SYN | CWR) == CWR {
            counts.cwr_packets += 1;
        }
    }

    /// Returns whether an ACK may report marks.
    #[inline]
    pub(crate) fn has_report(&self, segment: &Segment) -> bool {
        let is_accurate = self.negotiated == EcnNegotiation::Accurate;
        (is_accurate || ace_field(segment) != 0) && segment.flags & SYN == 0
    }

    /// Processes the reports in an ACK. `delivered` is the number of the bytes delivered so far, SACKed ones included,
    /// and `segment_bytes` the largest segment.
    #[cold]
    pub(crate) fn process_ack(
        &mut self,
        segment: &Segment,
        delivered: u64,
        segment_bytes: u32,
        bin: &mut Bin,
    ) {
        self.detect_accurate(segment);
        let marks = match self.negotiated {
            EcnNegotiation::NotNegotiated => 0,
            EcnNegotiation::Accurate => {
                let report = AceReport::of(segment, delivered, segment_bytes);
                let packets = self.ace.count_marked(&report);
                self.counts.reported_ce_packets += u64::from(packets);
                packets
            }
            _ => {
                let has_ece = segment.flags & ECE != 0;
                self.counts.ece_acks += u64::from(has_ece);
                u32::from(has_ece)
            }
        };
        bin.reported_marks = bin.reported_marks.saturating_add(marks);
    }

    /// Detects AccECN without a handshake: nothing else sets AE. What seemed to be ECE and CWR was the ACE field.
    fn detect_accurate(&mut self, segment: &Segment) {
        if self.negotiated == EcnNegotiation::Unknown && segment.ae && segment.flags & SYN == 0 {
            self.negotiated = EcnNegotiation::Accurate;
            (self.counts.ece_acks, self.counts.cwr_packets) = (0, 0);
        }
    }
}
