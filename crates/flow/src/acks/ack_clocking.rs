// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data bursts after each ACK, in classes of that ACK's AckDiff: the amount of data that it newly acknowledges.
//!
//! An ACK-clocked sender transmits when an ACK arrives, as much as that ACK acknowledges. A sender that paces, or that
//! has nothing to send, does not follow its ACKs.

use crate::record::{self, AckDiffClass, Data};

/// Classes of AckDiff and of bursts, in segments: 0, 1, 2, up to 4, 8, 16, 32, 64, and more.
const CLASSES: usize = 9;

/// State of the burst after the last ACK.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum BurstState {
    /// No ACK yet, or its burst has ended.
    #[default]
    Idle,
    /// No data was sent since the ACK.
    AwaitingBurst,
    /// Data follows the ACK within the burst gap.
    InBurst,
}

/// State of the bursts of one direction.
#[derive(Debug, Default)]
pub(crate) struct BurstTracker {
    state: BurstState,
    /// Index of the first count of the last ACK's class.
    class_offset: u8,
    ack_ns: u64,
    /// Data segments sent before the last ACK, and their payload in bytes.
    segments_before_ack: u64,
    bytes_before_ack: u64,
    /// Payload that followed an ACK within the burst gap, bytes.
    clocked_bytes: u64,
    /// Time of the first ACK, ns, and the payload sent before it.
    first_ns: u64,
    first_bytes: u64,
    /// Number of ACKs by class of AckDiff, then by class of their burst.
    bursts: Counts,
}

/// Counts by class of AckDiff, then by class of the burst.
#[derive(Debug)]
struct Counts([u32; CLASSES * CLASSES]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; CLASSES * CLASSES])
    }
}

impl BurstTracker {
    /// Records an ACK that newly acknowledges `packets` packets; a duplicate ACK has 0. `data` counts the data sent
    /// before the ACK.
    #[inline]
    pub(crate) fn on_ack(&mut self, at_ns: u64, packets: u64, data: &Data) {
        if self.state == BurstState::Idle {
            self.start(at_ns, data);
        } else {
            self.count_burst(data);
        }
        self.state = BurstState::AwaitingBurst;
        self.class_offset = (class_of(packets) * CLASSES) as u8;
        self.ack_ns = at_ns;
        (self.segments_before_ack, self.bytes_before_ack) =
            (data.data_segments, data.payload_bytes);
    }

    fn start(&mut self, at_ns: u64, data: &Data) {
        if self.first_ns == 0 {
            (self.first_ns, self.first_bytes) = (at_ns, data.payload_bytes);
        }
    }

    /// Records a data packet that `data` does not count yet. `after_pause` is true if the packet before it was sent
    /// `burst_gap_ns` ago or earlier.
    #[inline]
    pub(crate) fn on_data(&mut self, at_ns: u64, after_pause: bool, within_ns: u64, data: &Data) {
        if self.state == BurstState::AwaitingBurst && at_ns.saturating_sub(self.ack_ns) < within_ns
        {
            self.state = BurstState::InBurst;
        } else if self.state == BurstState::AwaitingBurst
            || after_pause && self.state == BurstState::InBurst
        {
            self.count_burst(data);
            self.state = BurstState::Idle;
        }
    }

    /// Counts the burst after the last ACK.
    #[inline]
    fn count_burst(&mut self, data: &Data) {
        let class = class_of(data.data_segments - self.segments_before_ack);
        if let Some(count) = self
            .bursts
            .0
            .get_mut(usize::from(self.class_offset) + class)
        {
            *count = count.saturating_add(1);
        }
        self.clocked_bytes += data.payload_bytes - self.bytes_before_ack;
    }

    /// Counts the burst after the last ACK, and returns the record.
    pub(crate) fn finish(&mut self, within_ns: u64, data: &Data) -> record::AckClocking {
        if self.first_ns == 0 {
            return record::AckClocking::default();
        }
        if self.state != BurstState::Idle {
            self.count_burst(data);
        }
        let acks: u64 = self.bursts.0.iter().map(|n| u64::from(*n)).sum();
        let span = data.last_data_ns.unwrap_or(0).saturating_sub(self.first_ns);
        let reached = acks as f64 * within_ns as f64;
        record::AckClocking {
            burst_gap_ns: within_ns,
            clocked_bytes: self.clocked_bytes,
            sent_bytes: data.payload_bytes - self.first_bytes,
            chance_share: (reached / (span as f64).max(1.0)).min(1.0),
            by_ack_diff: (self.bursts.0.as_chunks().0.iter().enumerate())
                .filter(|(_, bursts)| bursts.iter().any(|n| *n > 0))
                .map(|(class, bursts)| ack_diff_class(class, bursts))
                .collect(),
        }
    }
}

fn ack_diff_class(class: usize, bursts: &[u32; CLASSES]) -> AckDiffClass {
    AckDiffClass {
        segments: segments_of(class),
        acks: bursts.iter().map(|n| u64::from(*n)).sum(),
        bursts: bursts.map(u64::from),
    }
}

#[inline]
fn class_of(segments: u64) -> usize {
    let doubled = segments.saturating_mul(2).saturating_sub(1);
    ((u64::BITS - doubled.leading_zeros()) as usize).min(CLASSES - 1)
}

/// Returns the least and the greatest number of segments of a class; the last class has no upper end.
fn segments_of(class: usize) -> (u64, Option<u64>) {
    match class {
        0 => (0, Some(0)),
        1 => (1, Some(1)),
        _ => {
            let least = (1 << (class - 2)) + 1;
            (least, (class < CLASSES - 1).then(|| 1 << (class - 1)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_powers_of_two() {
        for segments in 0..200 {
            let (least, greatest) = segments_of(class_of(segments));
            assert!(least <= segments && greatest.is_none_or(|most| segments <= most));
        }
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 64, 65].map(class_of),
            [0, 1, 2, 3, 3, 4, 7, 8]
        );
        assert_eq!(class_of(u64::MAX), 8);
    }

    /// Test event: an ACK (time, packets acknowledged), or data (time, segments of 100 bytes, after a pause or not).
    enum Event {
        Ack(u64, u64),
        Data(u64, u64, bool),
    }
    use Event::{Ack, Data as Sent};

    fn track(events: &[Event]) -> record::AckClocking {
        let (mut tracker, mut data) = (BurstTracker::default(), Data::default());
        for event in events {
            match *event {
                Ack(at_ns, packets) => tracker.on_ack(at_ns, packets, &data),
                Sent(at_ns, segments, after_pause) => {
                    tracker.on_data(at_ns, after_pause, 10, &data);
                    data.data_segments += segments;
                    data.payload_bytes += 100 * segments;
                    data.last_data_ns = Some(at_ns);
                }
            }
        }
        tracker.finish(10, &data)
    }

    #[test]
    fn ends_burst_at_pause_or_next_ack() {
        let found = track(&[
            Sent(1, 10, true),
            Ack(100, 2),
            Sent(105, 2, true),
            Sent(108, 1, false),
            Sent(130, 7, true), // No burst of an ACK.
            Ack(200, 2),
            Sent(209, 3, true),
            Ack(210, 1), // No data within the burst gap.
            Sent(220, 5, true),
            Ack(300, 1), // No data after the last ACK.
        ]);
        assert_eq!((found.clocked_bytes, found.sent_bytes), (600, 1_800));
        assert!(
            (found.chance_share - 40.0 / 120.0).abs() < 1e-9,
            "{found:?}"
        );
        let of = |by: &AckDiffClass| (by.segments, by.acks, by.bursts);
        assert_eq!(
            found.by_ack_diff.iter().map(of).collect::<Vec<_>>(),
            [
                ((1, Some(1)), 2, [2, 0, 0, 0, 0, 0, 0, 0, 0]),
                ((2, Some(2)), 2, [0, 0, 0, 2, 0, 0, 0, 0, 0])
            ]
        );
    }

    #[test]
    fn returns_default_without_ack() {
        assert_eq!(track(&[Sent(1, 1, true)]), record::AckClocking::default());
    }
}
