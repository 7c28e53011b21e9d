// SPDX-License-Identifier: MIT OR Apache-2.0
//! Explicit Congestion Notification (ECN): queues mark packets with CE instead of dropping them, and the receiver reports
//! the marks to the sender.
//!
//! Classic ECN (RFC 3168 §6.1) reports by ECE, in every ACK until the sender answers with CWR. Accurate ECN (AccECN, RFC
//! 9768) counts the marked packets in the ACE field, which has the place of AE, CWR and ECE.

mod ace_counter;
pub mod negotiation;

use crate::segment::{CE, ECT_0, ECT_1, NOT_ECT, Segment};
use crate::time_series::bin::Bin;
use ace_counter::{AceCounter, AceReport};
use longhaul_packet::tcp::{CWR, ECE, SYN};
use negotiation::EcnNegotiation;
use serde::{Deserialize, Serialize};

/// ECN of the packets of one direction, as they passed the capture point, and of the ACKs for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EcnCounts {
    /// Segments on the wire with ECT(0), with payload or without.
    pub ect0_segments: u64,
    /// Segments on the wire with ECT(1), as L4S sends them (RFC 9331).
    pub ect1_segments: u64,
    /// Segments on the wire with CE: a queue before the capture point marked them.
    pub ce_segments: u64,
    /// Segments with CE and payload.
    pub ce_data_segments: u64,
    /// Packets with CWR: the sender reduced its window, after ECE or after a loss. 0 with AccECN.
    pub cwr_packets: u64,
    /// ACKs with ECE, with payload or without. 0 with AccECN.
    pub ece_acks: u64,
    /// Packets with CE that the receiver reported in the ACE field (RFC 9768 §3.2.2). 0 without AccECN.
    pub reported_ce_packets: u64,
}

/// ECN of one direction: its packets, and the reports in the ACKs for them.
#[derive(Debug, Default)]
pub(crate) struct EcnState {
    negotiated: EcnNegotiation,
    /// Marks and reports, from the first packet on that may have one. Most flows have none.
    marks: Option<Box<Marks>>,
}

/// Marks of the packets, and their reports.
#[derive(Debug, Default)]
struct Marks {
    counts: EcnCounts,
    ace: AceCounter,
}

impl EcnState {
    /// Sets what the handshake negotiated.
    pub(crate) fn set_negotiated(&mut self, negotiated: EcnNegotiation) {
        if self.negotiated != negotiated {
            self.negotiated = negotiated;
            if let Some(marks) = &mut self.marks {
                marks.ace = AceCounter::after_handshake();
            }
        }
    }

    /// Returns the counts.
    pub(crate) fn counts(&self) -> EcnCounts {
        (self.marks.as_ref()).map_or_else(EcnCounts::default, |marks| marks.counts)
    }

    fn marks(&mut self) -> &mut Marks {
        let ace = match self.negotiated {
            EcnNegotiation::Unknown => AceCounter::default(),
            _ => AceCounter::after_handshake(),
        };
        self.marks.get_or_insert_with(|| {
            Box::new(Marks {
                ace,
                ..Marks::default()
            })
        })
    }

    /// Returns what the packets show of a connection whose handshake is not in the capture.
    pub(crate) fn inferred(&self) -> EcnNegotiation {
        let counts = self.counts();
        let capable = counts.ect0_segments + counts.ect1_segments + counts.ce_segments;
        match self.negotiated {
            EcnNegotiation::Unknown if capable > 0 => EcnNegotiation::Inferred,
            known => known,
        }
    }

    /// Returns whether a packet has a mark or may report marks. With AccECN, a count of zero is a report, too.
    #[inline]
    pub(crate) fn concerns(&self, segment: &Segment) -> bool {
        let fields = segment.ecn | u8::from(segment.ae) | segment.flags & (CWR | ECE);
        fields != NOT_ECT || self.negotiated == EcnNegotiation::Accurate
    }

    /// Counts a packet of the sender that was `segments` segments on the wire.
    #[cold]
    pub(crate) fn count_sent(&mut self, segment: &Segment, segments: u32, bin: &mut Bin) {
        self.detect_accurate(segment);
        let negotiated = self.negotiated;
        let counts = &mut self.marks().counts;
        match segment.ecn {
            ECT_0 => counts.ect0_segments += u64::from(segments),
            ECT_1 => counts.ect1_segments += u64::from(segments),
            CE => counts.ce_segments += u64::from(segments),
            _ => {}
        }
        if segment.ecn == CE && segment.payload > 0 {
            counts.ce_data_segments += u64::from(segments);
            if negotiated != EcnNegotiation::NotNegotiated {
                bin.ce_segments = bin.ce_segments.saturating_add(segments);
            }
        }
        if negotiated != EcnNegotiation::Accurate && segment.flags & (SYN | CWR) == CWR {
            counts.cwr_packets += 1;
        }
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
                let marks = self.marks();
                let packets = marks.ace.count_marked(&report);
                marks.counts.reported_ce_packets += u64::from(packets);
                packets
            }
            _ => {
                let has_ece = segment.flags & ECE != 0;
                self.marks().counts.ece_acks += u64::from(has_ece);
                u32::from(has_ece)
            }
        };
        bin.reported_marks = bin.reported_marks.saturating_add(marks);
    }

    /// Detects AccECN without a handshake: nothing else sets AE. What seemed to be ECE and CWR was the ACE field.
    fn detect_accurate(&mut self, segment: &Segment) {
        if self.negotiated == EcnNegotiation::Unknown && segment.ae && segment.flags & SYN == 0 {
            self.negotiated = EcnNegotiation::Accurate;
            let counts = &mut self.marks().counts;
            (counts.ece_acks, counts.cwr_packets) = (0, 0);
        }
    }
}
