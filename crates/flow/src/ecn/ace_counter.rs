// SPDX-License-Identifier: MIT OR Apache-2.0
//! Number of packets with CE, from ACE fields of three bits.
//!
//! The field may wrap between two ACKs that are eight or more packets apart. RFC 9768 §3.2.2.5.2 asks for the safest
//! case that is likely. As in its appendix A.2, the difference modulo 8 is the least number, and the greatest number
//! of the same remainder that the ACK covers is the most. Between them, the count of bytes in the AccECN option decides;
//! without the option, the share of marked packets just before.

use super::negotiation::ace_field;
use crate::segment::{Segment, is_newer};

/// Number of values of the ACE field.
const MODULUS: u32 = 8;
/// ACE after the handshake (RFC 9768 §3.2.1).
const INITIAL_ACE: u8 = 0b101;
/// Mask of the option's counters.
const CE_BYTES_MASK: u32 = 0xff_ffff;
/// Packets over which the share of marked ones is averaged.
const RECENT_PACKETS: u32 = 128;

/// Report of an ACK.
#[derive(Debug, Clone, Copy)]
pub(super) struct AceReport {
    ace: u8,
    /// Number of the bytes delivered so far, SACKed ones included.
    delivered: u64,
    segment_bytes: u32,
    tsval: Option<u32>,
    /// Bytes with CE, by the AccECN option.
    ce_bytes: Option<u32>,
}

impl AceReport {
    /// Returns the report of `ack`; `segment_bytes` is the largest segment.
    pub(super) fn of(ack: &Segment, delivered: u64, segment_bytes: u32) -> Self {
        Self {
            ace: ace_field(ack),
            delivered,
            segment_bytes: segment_bytes.max(1),
            tsval: ack.has_timestamps.then_some(ack.tsval),
            ce_bytes: ack.reported_ce_bytes,
        }
    }
}

/// Counter of packets with CE.
#[derive(Debug, Default)]
pub(super) struct AceCounter {
    /// Last value of the field, if any is known.
    ace: Option<u8>,
    /// Bytes delivered and TSval at the last report; 0 before the first one.
    delivered: u64,
    tsval: u32,
    /// Last value of the option, if any is known.
    ce_bytes: Option<u32>,
    /// Marked packets since the last option.
    since_option: u32,
    /// Packets covered recently, and those of them that were marked.
    recent_packets: u32,
    recent_marked: u32,
}

impl AceCounter {
    /// Returns the counter at the end of the handshake.
    pub(super) fn after_handshake() -> Self {
        Self {
            ace: Some(INITIAL_ACE),
            ce_bytes: Some(0),
            ..Self::default()
        }
    }

    /// Returns how many more packets with CE an ACK reports. An ACK that may be older than the last one reports none;
    /// the next one makes up for it.
    pub(super) fn count_marked(&mut self, report: &AceReport) -> u32 {
        if !self.is_newer(report) {
            return 0;
        }
        let marked = self.newly_marked(report);
        self.update(report, marked);
        marked
    }

    fn is_newer(&self, report: &AceReport) -> bool {
        let by_time = report
            .tsval
            .is_some_and(|tsval| self.delivered != 0 && is_newer(tsval, self.tsval));
        report.delivered > self.delivered || by_time
    }

    fn newly_marked(&self, report: &AceReport) -> u32 {
        let before = u32::from(self.ace.unwrap_or(report.ace));
        let least = (u32::from(report.ace) + MODULUS - before) % MODULUS;
        let packets = self.newly_delivered(report);
        if packets < MODULUS {
            return least;
        }
        let most = packets - (packets - least) % MODULUS;
        // A damaged report may tell of more marks than packets.
        let likely = self.likely(report, packets).min(packets);
        let wraps = (likely.saturating_sub(least) + MODULUS / 2) / MODULUS;
        (least + wraps * MODULUS).min(most)
    }

    /// Returns how many packets the ACK covers; 0 if the ACK before is unknown.
    fn newly_delivered(&self, report: &AceReport) -> u32 {
        match self.delivered {
            0 => 0,
            before => {
                let bytes = report.delivered.saturating_sub(before);
                let packets = bytes.div_ceil(u64::from(report.segment_bytes));
                u32::try_from(packets).unwrap_or(u32::MAX - MODULUS)
            }
        }
    }

    /// Returns how many of `packets` were probably marked.
    fn likely(&self, report: &AceReport, packets: u32) -> u32 {
        match report.ce_bytes.zip(self.ce_bytes) {
            Some((now, before)) => {
                let bytes = now.wrapping_sub(before) & CE_BYTES_MASK;
                let marked = bytes.div_ceil(report.segment_bytes);
                marked.saturating_sub(self.since_option)
            }
            None => {
                let share = f64::from(self.recent_marked) / f64::from(self.recent_packets.max(1));
                (share * f64::from(packets)) as u32
            }
        }
    }

    fn update(&mut self, report: &AceReport, marked: u32) {
        self.recent_packets += self.newly_delivered(report).min(RECENT_PACKETS);
        self.recent_marked += marked.min(RECENT_PACKETS);
        if self.recent_packets > RECENT_PACKETS {
            self.recent_packets /= 2;
            self.recent_marked /= 2;
        }
        self.since_option = self.since_option.saturating_add(marked);
        if report.ce_bytes.is_some() {
            (self.ce_bytes, self.since_option) = (report.ce_bytes, 0);
        }
        self.ace = Some(report.ace);
        self.delivered = self.delivered.max(report.delivered);
        self.tsval = report.tsval.unwrap_or(self.tsval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u32 = 1_000;

    /// Returns the marks counted for ACKs of this many packets, ACE values, and bytes of the option.
    fn marked(acks: &[(u32, u8, Option<u32>)]) -> Vec<u32> {
        let mut counter = AceCounter::after_handshake();
        let mut delivered = 1 << 32;
        let reports = acks.iter().map(|&(packets, ace, ce_bytes)| {
            delivered += u64::from(packets * SEGMENT);
            AceReport {
                ace,
                delivered,
                segment_bytes: SEGMENT,
                tsval: None,
                ce_bytes,
            }
        });
        reports
            .map(|report| counter.count_marked(&report))
            .collect()
    }

    #[test]
    fn counts_from_5_over_the_wrap() {
        let acks = [(2, 5, None), (2, 7, None), (2, 0, None), (7, 7, None)];
        assert_eq!(marked(&acks), [0, 2, 1, 7]);
    }

    /// Without recent marks, forty packets with the same ACE are forty without marks.
    #[test]
    fn assumes_no_wrap_where_marks_are_rare() {
        assert_eq!(marked(&[(2, 5, None), (40, 5, None)]), [0, 0]);
        assert_eq!(marked(&[(2, 5, None), (40, 7, None)]), [0, 2]);
    }

    #[test]
    fn assumes_wraps_where_all_was_marked_before() {
        let acks = [(2, 7, None), (6, 5, None), (40, 5, None), (12, 1, None)];
        assert_eq!(marked(&acks), [2, 6, 40, 12]);
    }

    #[test]
    fn option_tells_the_number_of_wraps() {
        let acks = |bytes| [(2, 5, Some(0)), (40, 7, Some(bytes))];
        assert_eq!(marked(&acks(2_000)), [0, 2]);
        assert_eq!(marked(&acks(18_000)), [0, 18]);
        assert_eq!(marked(&acks(900_000)), [0, 34], "the ACK covers no more");
    }

    /// Two packets were counted after the last option, so they are not among those that this one adds.
    #[test]
    fn option_counts_from_the_option_before() {
        let acks = [(2, 5, Some(0xff_ffff)), (2, 7, None), (40, 1, Some(12_000))];
        assert_eq!(marked(&acks), [0, 2, 10]);
    }

    #[test]
    fn older_ack_reports_nothing() {
        assert_eq!(
            marked(&[(2, 5, None), (0, 7, None), (2, 7, None)]),
            [0, 0, 2]
        );
    }
}
