// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why something was sent again, and whether it was sent again at all.
//!
//! Packets that come late, their bytes not having been seen here before, were either overtaken
//! ([`is_reordered`]) or lost before the tap and sent again. Wireshark asks only whether 3 ms (or the
//! handshake's round trip) have passed; tcptrace calls all of them out of order. A TSval tells both
//! apart for good, because what was overtaken was stamped before what overtook it.
//!
//! A retransmission has one cause, the first of these that holds:
//! 1. *spurious*: all of it had been acknowledged or SACKed when it passed here. (Wireshark: acknowledged
//!    only. What D-SACK reports later is counted apart.)
//! 2. *time-out*: nothing had been sent for longer than a round trip plus Linux's least time-out;
//! 3. the cause of the recovery that goes on: what was outstanding when it began and is not acknowledged
//!    (go-back after a time-out, partial ACKs of RFC 6582, further holes of RFC 6675);
//! 4. *fast*: three duplicate ACKs (RFC 5681 §3.2), or SACK of anything above it (RFC 6675, RFC 8985).
//!    Wireshark wants two duplicates and less than 20 ms since the last;
//! 5. *time-out*: nothing had been sent for max(200 ms, SRTT + 4 RTTVAR);
//! 6. *other*: tail loss probes, and what the tap can't see the reason of.

use super::sequence_gaps::SequenceGap;
use crate::round_trips::{round_trip::PathRoundTrip, timestamps::is_newer};

/// RFC 5681 §3.2.
const DUPLICATE_ACKS: u32 = 3;

/// Why something was sent again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The receiver had it.
    Spurious,
    /// ACKs said that it was lost.
    Fast,
    /// The sender's timer ran out.
    Timeout,
    /// Not to be seen from here.
    #[default]
    Other,
}

/// What is known when `start..end` is sent again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence {
    /// Its first number.
    pub(crate) start: u64,
    /// The next new number of the same sender.
    pub(crate) next: u64,
    /// Whether the receiver had acknowledged or SACKed all of it.
    pub(crate) received: bool,
    /// Whether it had SACKed anything above.
    pub(crate) sacked_above: bool,
    /// Duplicate ACKs in a row.
    pub(crate) duplicates: u32,
    /// How long nothing had been sent.
    pub(crate) silence_ns: u64,
    /// Between both ends.
    pub(crate) round_trip: PathRoundTrip,
}

/// The recovery that goes on, if any.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Recovery {
    cause: Cause,
    /// What was outstanding when it began ends here.
    end: u64,
}

impl Recovery {
    /// Why something was sent again.
    pub(crate) fn cause(&mut self, evidence: &Evidence) -> Cause {
        if evidence.received {
            return Cause::Spurious;
        }
        let seen = direct_cause(evidence);
        let timed_out = (evidence.round_trip).is_surely_timeout(evidence.silence_ns);
        if evidence.start < self.end && !timed_out {
            return self.cause;
        }
        if seen != Cause::Other {
            (self.cause, self.end) = (seen, evidence.next);
        }
        seen
    }
}

/// Without regard to what went before.
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

/// Whether what fills `hole` at `at_ns` was overtaken rather than sent again. Its TSval decides if it is
/// older or newer than that of what came first. Else it must have come within half a round trip between
/// both ends.
pub(crate) fn is_reordered(
    gap: &SequenceGap,
    at_ns: u64,
    tsval: Option<u32>,
    round_trip: PathRoundTrip,
) -> bool {
    if let (Some(mine), Some(beyond)) = (tsval, gap.tsval)
        && mine != beyond
    {
        return is_newer(beyond, mine);
    }
    at_ns.saturating_sub(gap.at_ns) < round_trip.reordering_ns()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round_trips::round_trip::RoundTrip;

    const MS: u64 = 1_000_000;

    /// The tap is beside the sender.
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
    fn three_duplicates_or_sack_make_it_fast() {
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
        let cause = |e| Recovery::default().cause(&e);
        assert_eq!(
            [two, three, sack].map(cause),
            [Cause::Other, Cause::Fast, Cause::Fast]
        );
    }

    #[test]
    fn silence_makes_it_a_time_out() {
        let cause = |ms| Recovery::default().cause(&evidence(10, ms));
        assert_eq!([199, 201].map(cause), [Cause::Other, Cause::Timeout]);
    }

    #[test]
    fn sack_above_outweighs_a_short_silence_only() {
        let sack = |ms| Evidence {
            sacked_above: true,
            ..evidence(10, ms)
        };
        let cause = |ms| Recovery::default().cause(&sack(ms));
        assert_eq!([201, 301].map(cause), [Cause::Fast, Cause::Timeout]);
    }

    #[test]
    fn a_recovery_has_one_cause_until_its_end() {
        let mut recovery = Recovery::default();
        let sack = |start| Evidence {
            sacked_above: true,
            next: 200,
            ..evidence(start, 0)
        };
        assert_eq!(recovery.cause(&evidence(10, 500)), Cause::Timeout);
        assert_eq!(recovery.cause(&sack(99)), Cause::Timeout);
        assert_eq!(recovery.cause(&sack(100)), Cause::Fast);
        assert_eq!(recovery.cause(&evidence(150, 0)), Cause::Fast);
        assert_eq!(recovery.cause(&evidence(150, 500)), Cause::Timeout);
    }

    #[test]
    fn what_is_held_is_spurious_whatever_else() {
        let held = Evidence {
            received: true,
            ..evidence(10, 500)
        };
        assert_eq!(Recovery::default().cause(&held), Cause::Spurious);
    }

    #[test]
    fn a_time_stamp_tells_more_than_time() {
        let hole = SequenceGap {
            start: 1,
            end: 2,
            at_ns: 0,
            tsval: Some(50),
        };
        let is = |at_ms, tsval| is_reordered(&hole, at_ms * MS, tsval, path(100));
        assert!(is(500, Some(49)));
        assert!(!is(0, Some(51)));
        assert!(is(49, Some(50)) && !is(50, Some(50)));
        assert!(is(49, None) && !is(50, None));
    }

    #[test]
    fn without_a_round_trip_three_milliseconds_decide() {
        let hole = SequenceGap {
            start: 1,
            end: 2,
            at_ns: 0,
            tsval: None,
        };
        let is = |at_ns| is_reordered(&hole, at_ns, None, PathRoundTrip::default());
        assert!(is(3 * MS - 1) && !is(3 * MS));
    }
}
