// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gaps in the received sequence, and how long each waits for late packets before it is reported: the reordering
//! window of RACK (RFC 8985 §6.2, step 4).
//!
//! RACK's sender learns from duplicate reports that it retransmitted needlessly, and widens the window step by step. A
//! receiver of UDT measures the lateness itself. Each packet has the time at which it was sent, also a retransmitted
//! one. So a missing packet that was sent before the packet behind the gap was not lost: it was late.

use crate::packet::number::Seq;
use longhaul_units::Time;
use std::collections::VecDeque;

/// Packets behind a gap after which it is reported at once, unless packets were late (RFC 8985 §6.2, DupThresh). The
/// gaps of the first round trip wait all the same: on a path that reorders, they are the first sign of it.
const DUP_THRESHOLD: u64 = 3;
/// Divisor of the minimum round-trip time in the margin beyond the measured lateness, because the next packet may be
/// later than all before (RFC 8985 §6.2: the window grows by quarters).
const RTT_DIVISOR: u64 = 4;
/// Factor of the window on a path that has delayed packets and lost none yet. Few packets show little of the path's
/// lateness then, and a loss ends the slow start of a rate control.
const LOSSLESS_FACTOR: u64 = 2;
/// Number of recoveries after which an older lateness is forgotten (RFC 8985 §6.2, reo_wnd_persist).
const RECOVERIES_MAX: u32 = 16;
/// Maximum number of gaps that are kept: 128 KB. The periodic report has those beyond it.
const GAPS_MAX: usize = 4096;

/// Gaps of a receiver, in order.
#[derive(Debug)]
pub(super) struct Gaps {
    queue: VecDeque<Gap>,
    /// Number of gaps at the front of the queue that were reported. They are kept to see whether their packets were
    /// only late.
    reported: usize,
    /// Number of packets that arrived in order or behind a gap.
    advances: u64,
    /// Whether a gap turned out to be a loss.
    has_loss: bool,
    lateness: Lateness,
}

/// Packets that were missing when a later one arrived.
#[derive(Debug, Clone, Copy)]
struct Gap {
    first: Seq,
    last: Seq,
    detected_at: Time,
    /// Sender's timestamp of the packet behind the gap.
    sent_us: u32,
    /// Value of [`Gaps::advances`] before that packet.
    advances: u64,
}

/// Round-trip times of a receiver, which bound its window.
#[derive(Debug, Clone, Copy)]
pub(super) struct RttBounds {
    /// Minimum round-trip time.
    pub(super) min: Time,
    /// Time within which nearly every reply comes.
    pub(super) upper: Time,
}

/// Maximum time by which packets of late came after the packet behind their gap.
#[derive(Debug)]
struct Lateness {
    /// Maximum of the present and the last period, and of the present one. A period has [`RECOVERIES_MAX`] recoveries.
    max: Time,
    present: Time,
    /// Recoveries in the present period, and the packet with which the last of them ends.
    recoveries: u32,
    recovery_end: Seq,
}

impl Lateness {
    fn add(&mut self, late: Time) {
        self.max = self.max.max(late);
        self.present = self.present.max(late);
    }

    /// Counts a reported gap as a recovery if it lies behind the packets of the last one.
    fn on_report(&mut self, first: Seq, next_expected: Seq) {
        if first.is_before(self.recovery_end) {
            return;
        }
        self.recovery_end = next_expected;
        self.recoveries += 1;
        if self.recoveries == RECOVERIES_MAX {
            (self.max, self.present) = (self.present, Time::ZERO);
            self.recoveries = 0;
        }
    }

    fn is_seen(&self) -> bool {
        self.max > Time::ZERO
    }

    /// Returns the time that a gap waits where packets are lost. (RACK bounds it by the smoothed round trip. RACK also
    /// waits for the round trip of a usual packet, whereas a gap is found when the fastest of the packets behind it
    /// arrives.)
    fn window(&self, rtt: RttBounds) -> Time {
        self.max + Time::from_nanos(rtt.min.as_nanos() / RTT_DIVISOR)
    }
}

impl Gaps {
    /// Creates the state before the first packet, `first`, arrived.
    pub(super) fn new(first: Seq) -> Self {
        Self {
            queue: VecDeque::new(),
            reported: 0,
            advances: 0,
            has_loss: false,
            lateness: Lateness {
                max: Time::ZERO,
                present: Time::ZERO,
                recoveries: 0,
                recovery_end: first,
            },
        }
    }

    /// Counts a packet that no later packet preceded, after the gap before it was added.
    pub(super) fn on_advance(&mut self) {
        self.advances += 1;
    }

    /// Adds the gap before a packet that was sent at `sent_us` by the sender's clock.
    pub(super) fn add(&mut self, (first, last): (Seq, Seq), sent_us: u32, now: Time) {
        if self.queue.len() == GAPS_MAX && !self.pop_reported() {
            return;
        }
        self.queue.push_back(Gap {
            first,
            last,
            detected_at: now,
            sent_us,
            advances: self.advances,
        });
    }

    /// Handles a missing packet that came: measures how late it was, unless it was retransmitted.
    pub(super) fn on_missing(&mut self, seq: Seq, sent_us: u32, now: Time) {
        let index = self.queue.partition_point(|gap| gap.last.is_before(seq));
        let Some(gap) = self
            .queue
            .get(index)
            .filter(|gap| !seq.is_before(gap.first))
        else {
            return;
        };
        if sent_us.wrapping_sub(gap.sent_us).cast_signed() > 0 {
            self.has_loss = true;
        } else {
            self.lateness
                .add(now.since(gap.detected_at).max(Time::from_nanos(1)));
        }
    }

    /// Forgets the gaps before `next`: all their packets arrived.
    pub(super) fn advance(&mut self, next: Seq) {
        while self
            .queue
            .front()
            .is_some_and(|gap| gap.last.is_before(next))
        {
            self.queue.pop_front();
            self.reported = self.reported.saturating_sub(1);
        }
    }

    /// Returns the next gap to report at `now` as its first and last packet. Some of its packets may have arrived.
    /// `next_expected` comes after the highest packet that arrived.
    pub(super) fn take_due(
        &mut self,
        rtt: RttBounds,
        next_expected: Seq,
        now: Time,
    ) -> Option<(Seq, Seq)> {
        self.deadline(rtt).filter(|due| *due <= now)?;
        let Gap { first, last, .. } = *self.queue.get(self.reported)?;
        self.reported += 1;
        self.lateness.on_report(first, next_expected);
        Some((first, last))
    }

    /// Returns the time at which the next gap is reported.
    pub(super) fn deadline(&self, rtt: RttBounds) -> Option<Time> {
        let gap = self.queue.get(self.reported)?;
        let is_overtaken = self.advances >= gap.advances + DUP_THRESHOLD;
        Some(if self.keeps_order() && is_overtaken {
            Time::ZERO
        } else {
            gap.detected_at + self.window(rtt)
        })
    }

    /// Returns whether the path has lost packets and delayed none.
    fn keeps_order(&self) -> bool {
        self.has_loss && !self.lateness.is_seen()
    }

    /// Returns the time until most gaps are reported.
    pub(super) fn report_delay(&self, rtt: RttBounds) -> Time {
        if self.keeps_order() {
            Time::ZERO
        } else {
            self.window(rtt)
        }
    }

    /// Returns the time that a gap waits for late packets, at most a round trip.
    fn window(&self, rtt: RttBounds) -> Time {
        let is_lossless = !self.has_loss && self.lateness.is_seen();
        let factor = if is_lossless { LOSSLESS_FACTOR } else { 1 };
        (self.lateness.window(rtt) * factor).min(rtt.upper)
    }

    fn pop_reported(&mut self) -> bool {
        let has_reported = self.reported > 0;
        if has_reported {
            self.queue.pop_front();
            self.reported -= 1;
        }
        has_reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Seq = Seq::new(0x7fff_fffe);
    const RTT: RttBounds = RttBounds {
        min: Time::from_millis(40),
        upper: Time::from_millis(50),
    };

    /// Receiver of one packet per millisecond, whose packet `n` is sent at `n` ms.
    struct Arrivals {
        gaps: Gaps,
        next: u32,
    }

    impl Arrivals {
        fn new() -> Self {
            Self {
                gaps: Gaps::new(FIRST),
                next: 0,
            }
        }

        /// Receives all packets up to `n`, without those that `missing` has, at the time of the last.
        fn receive_up_to(&mut self, n: u32, missing: &[u32]) {
            for packet in self.next..=n {
                if !missing.contains(&packet) {
                    self.receive_in_order(packet);
                }
            }
        }

        fn receive_in_order(&mut self, packet: u32) {
            if packet > self.next {
                let run = (FIRST.plus(self.next), FIRST.plus(packet - 1));
                self.gaps.add(run, packet * 1000, ms(packet));
            }
            self.gaps.on_advance();
            self.next = packet + 1;
        }

        /// Receives a missing packet that was sent at `sent_ms`.
        fn receive_missing(&mut self, packet: u32, sent_ms: u32, at_ms: u32) {
            let sent_us = sent_ms * 1000;
            self.gaps.on_missing(FIRST.plus(packet), sent_us, ms(at_ms));
        }

        /// Returns the first packet of each gap that is reported by then.
        fn reported(&mut self, at_ms: u32) -> Vec<u32> {
            let next = FIRST.plus(self.next);
            std::iter::from_fn(|| self.gaps.take_due(RTT, next, ms(at_ms)))
                .map(|(first, _)| first.since(FIRST).cast_unsigned())
                .collect()
        }

        fn window_ms(&self) -> f64 {
            self.gaps.window(RTT).as_secs_f64() * 1e3
        }

        /// Loses a packet in each of `count` recoveries.
        fn lose(&mut self, count: u32) {
            for _ in 0..count {
                let lost = self.next;
                self.receive_up_to(lost + 100, &[lost]);
                assert_eq!(self.reported(lost + 100), [lost]);
                self.receive_missing(lost, lost + 99, lost + 100);
            }
            self.gaps.advance(FIRST.plus(self.next));
        }
    }

    fn ms(ms: u32) -> Time {
        Time::from_millis(ms.into())
    }

    #[test]
    fn a_first_gap_waits_a_quarter_of_the_round_trip() {
        let mut arrivals = Arrivals::new();
        arrivals.receive_up_to(8, &[3, 4]);
        assert_eq!(
            arrivals.gaps.deadline(RTT),
            Some(ms(15)),
            "detected at 5 ms"
        );
        assert_eq!(arrivals.reported(14), []);
        assert_eq!(arrivals.reported(15), [3]);
        assert_eq!(arrivals.gaps.deadline(RTT), None);
    }

    #[test]
    fn three_packets_report_a_gap_where_packets_were_lost_and_none_was_late() {
        let mut arrivals = Arrivals::new();
        arrivals.lose(1);
        let lost = arrivals.next;
        arrivals.receive_up_to(lost + 2, &[lost]);
        assert_eq!(arrivals.reported(lost + 2), []);
        arrivals.receive_up_to(lost + 3, &[]);
        assert_eq!(arrivals.reported(lost + 3), [lost]);
    }

    #[test]
    fn the_last_packets_are_reported_when_the_time_is_over() {
        let mut arrivals = Arrivals::new();
        arrivals.lose(1);
        let lost = arrivals.next;
        arrivals.receive_up_to(lost + 1, &[lost]);
        assert_eq!(arrivals.gaps.deadline(RTT), Some(ms(lost + 11)));
        assert_eq!(arrivals.reported(lost + 11), [lost]);
    }

    #[test]
    fn late_packets_widen_the_window_up_to_a_round_trip() {
        let mut arrivals = Arrivals::new();
        arrivals.receive_up_to(9, &[3]);
        arrivals.receive_missing(3, 3, 6);
        assert_eq!(arrivals.window_ms(), 24.0, "2 ms late, and no loss");
        arrivals.gaps.advance(FIRST.plus(10));
        arrivals.lose(1);
        assert_eq!(arrivals.window_ms(), 12.0);
        let late = arrivals.next;
        arrivals.receive_up_to(late + 6, &[late]);
        arrivals.receive_missing(late, late, late + 17);
        assert_eq!(arrivals.window_ms(), 26.0, "16 ms late, after the report");
        let late = arrivals.next;
        arrivals.receive_up_to(late + 6, &[late]);
        arrivals.receive_missing(late, late, late + 100);
        assert_eq!(arrivals.window_ms(), 50.0);
    }

    #[test]
    fn a_retransmission_is_not_late() {
        let mut arrivals = Arrivals::new();
        arrivals.receive_up_to(9, &[3]);
        arrivals.receive_missing(3, 5, 40);
        assert_eq!(arrivals.window_ms(), 10.0, "a loss");
        arrivals.receive_missing(7, 7, 40);
        assert_eq!(arrivals.window_ms(), 10.0, "no gap has it");
    }

    #[test]
    fn a_lateness_is_forgotten_after_sixteen_recoveries_without_it() {
        let mut arrivals = Arrivals::new();
        arrivals.receive_up_to(9, &[3]);
        arrivals.receive_missing(3, 3, 20);
        arrivals.gaps.advance(FIRST.plus(10));
        arrivals.lose(31);
        assert_eq!(arrivals.window_ms(), 26.0);
        arrivals.lose(1);
        assert_eq!(arrivals.window_ms(), 10.0);
    }

    #[test]
    fn keeps_a_bounded_number_of_gaps() {
        let mut arrivals = Arrivals::new();
        for packet in 0..3 * GAPS_MAX as u32 {
            arrivals.receive_up_to(2 * packet + 1, &[2 * packet]);
        }
        assert_eq!(arrivals.gaps.queue.len(), GAPS_MAX);
        let due = arrivals.reported(1_000_000);
        assert_eq!(due.len(), GAPS_MAX);
        arrivals.receive_up_to(arrivals.next + 1, &[arrivals.next]);
        assert_eq!(arrivals.gaps.queue.len(), GAPS_MAX, "a reported one left");
    }
}
