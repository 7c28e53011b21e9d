// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classification of retransmissions: their cause, and their distinction from reordering.
//!
//! A late packet whose bytes the capture point has not seen before was either reordered ([`is_reordered`]) or lost
//! before the capture point and retransmitted. Wireshark only compares the delay with 3 ms or the handshake's round
//! trip; tcptrace calls all such packets out of order. A TSval decides for certain: a reordered packet was stamped
//! before the packets that arrived first.
//!
//! A retransmission has one cause, the first of these that applies:
//! 1. *timeout*: nothing had been sent for longer than a round trip plus Linux's least timeout. The receiver may have had
//!    the data, if its ACKs were lost or late;
//! 2. *spurious*: all of it had been acknowledged or SACKed when it passed the capture point. Wireshark requires that it was
//!    acknowledged. Later D-SACKs are counted separately;
//! 3. the cause of the current recovery, for data that was outstanding when the recovery began and is still
//!    unacknowledged (go-back-N after a timeout, partial ACKs of RFC 6582, further gaps of RFC 6675);
//! 4. *fast*: three duplicate ACKs (RFC 5681 §3.2), or SACKs above it (RFC 6675, RFC 8985). Wireshark requires two
//!    duplicates and less than 20 ms since the last;
//! 5. *timeout*: nothing had been sent for max(200 ms, SRTT + 4 RTTVAR);
//! 6. *other*: tail loss probes, and causes that the capture point cannot see.

use super::sequence_gaps::SequenceGap;
use crate::round_trips::round_trip::PathRoundTrip;
use crate::segment::is_newer;

/// Duplicate ACKs that trigger a fast retransmission (RFC 5681 §3.2).
const DUPLICATE_ACKS: u32 = 3;

/// Cause of a retransmission.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The receiver already had the data.
    Spurious,
    /// ACKs reported a loss.
    Fast,
    /// The retransmission timer of the sender expired.
    Timeout,
    /// Cause not visible at the capture point.
    #[default]
    Other,
}

/// Evidence about one retransmission.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence {
    /// First number of the retransmission.
    pub(crate) start: u64,
    /// Next new number of the sender.
    pub(crate) next: u64,
    /// Whether the receiver had acknowledged or SACKed all of it, as far as the capture point saw.
    pub(crate) received: bool,
    /// Whether the receiver had SACKed anything above it.
    pub(crate) sacked_above: bool,
    /// Duplicate ACKs in a row.
    pub(crate) duplicates: u32,
    /// Time since the sender's last packet, ns.
    pub(crate) silence_ns: u64,
    /// Round trip between both ends.
    pub(crate) round_trip: PathRoundTrip,
}

/// Current recovery, if any.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Recovery {
    cause: Cause,
    /// Recovery ends when this number is acknowledged: it was the next new one when the recovery began.
    end: u64,
}

impl Recovery {
    /// Classifies a retransmission and updates the recovery.
    pub(crate) fn classify(&mut self, evidence: &Evidence) -> Cause {
        let timed_out = (evidence.round_trip).is_surely_timeout(evidence.silence_ns);
        if evidence.received && !timed_out {
            return Cause::Spurious;
        }
        let direct = direct_cause(evidence);
        if evidence.start < self.end && !timed_out {
            return self.cause;
        }
        if direct != Cause::Other {
            (self.cause, self.end) = (direct, evidence.next);
        }
        direct
    }
}

/// Returns the cause without regard to a current recovery.
fn direct_cause(evidence: &Evidence) -> Cause {
    let silence = evidence.silence_ns;
    if evidence.round_trip.is_surely_timeout(silence) {
        Cause::Timeout
    } else if evidence.duplicates >= DUPLICATE_ACKS || evidence.sacked_above {
        Cause::Fast
    } else if silence >= evidence.round_trip.timeout_min_ns() {
        Cause::Timeout
    } else {
        Cause::Other
    }
}

/// Returns whether a packet that fills `gap` at `at_ns` was reordered rather than retransmitted. Its TSval decides if
/// it differs from that of the packet that opened the gap. Otherwise the packet must come within half a round trip
/// between both ends.
pub(crate) fn is_reordered(
    gap: &SequenceGap,
    at_ns: u64,
    tsval: Option<u32>,
    round_trip: PathRoundTrip,
) -> bool {
    if let (Some(own), Some(beyond)) = (tsval, gap.tsval)
        && own != beyond
    {
        return is_newer(beyond, own);
    }
    at_ns.saturating_sub(gap.at_ns) < round_trip.reordering_ns()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round_trips::round_trip::RoundTrip;

    const MS: u64 = 1_000_000;

    /// Round trip of a path whose capture point is beside the sender.
    fn path(rtt_ms: u64) -> PathRoundTrip {
        let [mut there, mut back] = [RoundTrip::default(); 2];
        (0..100).for_each(|_| there.add_sample(rtt_ms * MS));
        back.add_sample(0);
        there.plus(back)
    }

    fn evidence(start: u64, silence_ms: u64) -> Evidence {
        Evidence {
            start,
            next: 100,
            received: false,
            sacked_above: false,
            duplicates: 0,
            silence_ns: silence_ms * MS,
            round_trip: path(100),
        }
    }

    #[test]
    fn three_duplicates_or_sack_mean_fast_retransmission() {
        let two = Evidence {
            duplicates: 2,
            ..evidence(10, 0)
        };
        let three = Evidence {
            duplicates: 3,
            ..two
        };
        let sack = Evidence {
            sacked_above: true,
            ..two
        };
        let cause = |e| Recovery::default().classify(&e);
        assert_eq!(
            [two, three, sack].map(cause),
            [Cause::Other, Cause::Fast, Cause::Fast]
        );
    }

    #[test]
    fn silence_means_time_out() {
        let cause = |ms| Recovery::default().classify(&evidence(10, ms));
        assert_eq!([199, 201].map(cause), [Cause::Other, Cause::Timeout]);
    }

    #[test]
    fn sack_above_overrides_short_silence_only() {
        let sack = |ms| Evidence {
            sacked_above: true,
            ..evidence(10, ms)
        };
        let cause = |ms| Recovery::default().classify(&sack(ms));
        assert_eq!([201, 301].map(cause), [Cause::Fast, Cause::Timeout]);
    }

    #[test]
    fn recovery_keeps_its_cause_until_end() {
        let mut recovery = Recovery::default();
        let sack = |start| Evidence {
            sacked_above: true,
            next: 200,
            ..evidence(start, 0)
        };
        assert_eq!(recovery.classify(&evidence(10, 500)), Cause::Timeout);
        assert_eq!(recovery.classify(&sack(99)), Cause::Timeout);
        assert_eq!(recovery.classify(&sack(100)), Cause::Fast);
        assert_eq!(recovery.classify(&evidence(150, 0)), Cause::Fast);
        assert_eq!(recovery.classify(&evidence(150, 500)), Cause::Timeout);
    }

    #[test]
    fn received_data_is_spurious_unless_timer_expired() {
        let received = |ms| Evidence {
            received: true,
            sacked_above: true,
            ..evidence(10, ms)
        };
        let cause = |ms| Recovery::default().classify(&received(ms));
        assert_eq!(
            [0, 299, 301].map(cause),
            [Cause::Spurious, Cause::Spurious, Cause::Timeout]
        );
    }

    #[test]
    fn time_stamp_overrides_delay() {
        let gap = SequenceGap {
            start: 1,
            end: 2,
            at_ns: 0,
            tsval: Some(50),
        };
        let is = |at_ms, tsval| is_reordered(&gap, at_ms * MS, tsval, path(100));
        assert!(is(500, Some(49)));
        assert!(!is(0, Some(51)));
        assert!(is(49, Some(50)) && !is(50, Some(50)));
        assert!(is(49, None) && !is(50, None));
    }

    #[test]
    fn uses_three_milliseconds_without_round_trip() {
        let gap = SequenceGap {
            start: 1,
            end: 2,
            at_ns: 0,
            tsval: None,
        };
        let is = |at_ns| is_reordered(&gap, at_ns, None, PathRoundTrip::default());
        assert!(is(3 * MS - 1) && !is(3 * MS));
    }
}
