// SPDX-License-Identifier: MIT OR Apache-2.0
//! One verdict on a connection that was captured at two places.
//!
//! The capture nearer to the sender is judged, because it sees what is in flight. With one capture near the
//! sender and one near the receiver, the one-way delays between them show queues, and no delayed ACK is
//! taken for one. The other capture gets the same limits and the same sentence.

use super::limits::{self, PathDelays, Windows};
use crate::record::{BothEnds, Direction, Flow, Limited, Place};

/// Judges both directions of a connection, seen as `left` and as `right`. `pair` is their comparison.
/// Limits keep the clock of the capture that they are written to.
pub fn judge(left: &mut Flow, right: &mut Flow, pair: &BothEnds) {
    let of_left = Sender {
        round_trip_ns: left.opening.round_trip_ns(),
        delay_clock_ahead_ns: 0,
        other_clock_ahead_ns: pair.offset_ns,
    };
    let of_right = Sender {
        round_trip_ns: right.opening.round_trip_ns(),
        delay_clock_ahead_ns: pair.offset_ns.saturating_neg(),
        other_clock_ahead_ns: pair.offset_ns.saturating_neg(),
    };
    if pair.client_is_left {
        of_left.judge(&mut left.upload, &mut right.upload, pair, true);
        of_right.judge(&mut right.download, &mut left.download, pair, false);
    } else {
        of_right.judge(&mut right.upload, &mut left.upload, pair, true);
        of_left.judge(&mut left.download, &mut right.download, pair, false);
    }
}

/// The capture nearer to the sender.
struct Sender {
    round_trip_ns: Option<u64>,
    /// The clock of the one-way delays less that of this capture, ns.
    delay_clock_ahead_ns: i64,
    /// The clock of the other capture less that of this one, ns.
    other_clock_ahead_ns: i64,
}

impl Sender {
    /// Judges one direction: `near` the sender, and `far` from it.
    fn judge(&self, near: &mut Direction, far: &mut Direction, pair: &BothEnds, upload: bool) {
        let (data, acks) = match upload {
            true => (&pair.from_client, &pair.from_server),
            false => (&pair.from_server, &pair.from_client),
        };
        let places = (near.standing.place, far.standing.place);
        let at_ends = places == (Place::NearSender, Place::NearReceiver);
        // Only the largest flows still have their course here.
        if at_ends && !near.course.is_absent() {
            let delays = PathDelays {
                data: &data.course,
                acks: &acks.course,
                clock_ahead_ns: self.delay_clock_ahead_ns,
            };
            near.limits = limits::of(
                &near.course,
                Windows::of(&near.acks),
                self.round_trip_ns,
                Some(&delays),
            );
            near.verdict = super::sentence_of_both_ends(near);
        }
        far.limits = near
            .limits
            .iter()
            .map(|limited| self.moved(*limited))
            .collect();
        far.verdict.clone_from(&near.verdict);
    }

    fn moved(&self, limited: Limited) -> Limited {
        let at = |ns: u64| ns.saturating_add_signed(self.other_clock_ahead_ns);
        Limited {
            from_ns: at(limited.from_ns),
            to_ns: at(limited.to_ns),
            ..limited
        }
    }
}
