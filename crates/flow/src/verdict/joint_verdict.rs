// SPDX-License-Identifier: MIT OR Apache-2.0
//! One verdict on a connection that was captured at two points.
//!
//! The capture nearer to the sender is assessed, because it sees the data in flight. With one capture near the sender
//! and one near the receiver, the one-way delays between them show queues, and no delayed ACK is mistaken for a queue.
//! The other capture gets the same limits and the same sentence.

use super::advertised_window::Windows;
use super::limit_shares;
use super::limits::{self, CapturePoints, PathDelays};
use crate::record::{CaptureLocation, Direction, Flow, Limit, LimitPeriod, TwoPointComparison};

/// Assesses both directions of a connection, seen as `left` and as `right`. `pair` is their comparison. Limits use the
/// clock of the capture that they are stored in.
pub fn assess(left: &mut Flow, right: &mut Flow, pair: &TwoPointComparison) {
    let of_left = SenderCapture {
        round_trip_ns: left.handshake.round_trip_ns(),
        delay_clock_ahead_ns: 0,
        other_clock_ahead_ns: pair.offset_ns,
    };
    let of_right = SenderCapture {
        round_trip_ns: right.handshake.round_trip_ns(),
        delay_clock_ahead_ns: pair.offset_ns.saturating_neg(),
        other_clock_ahead_ns: pair.offset_ns.saturating_neg(),
    };
    if pair.client_is_left {
        of_left.assess(&mut left.upload, &mut right.upload, pair, true);
        of_right.assess(&mut right.download, &mut left.download, pair, false);
    } else {
        of_right.assess(&mut right.upload, &mut left.upload, pair, true);
        of_left.assess(&mut left.download, &mut right.download, pair, false);
    }
}

/// Capture nearer to the sender.
struct SenderCapture {
    round_trip_ns: Option<u64>,
    /// Clock of the one-way delays less that of this capture, ns.
    delay_clock_ahead_ns: i64,
    /// Clock of the other capture less that of this one, ns.
    other_clock_ahead_ns: i64,
}

impl SenderCapture {
    /// Assesses one direction, seen `near` the sender and `far` from it.
    fn assess(
        &self,
        near: &mut Direction,
        far: &mut Direction,
        pair: &TwoPointComparison,
        upload: bool,
    ) {
        let (data, acks) = if upload {
            (&pair.from_client, &pair.from_server)
        } else {
            (&pair.from_server, &pair.from_client)
        };
        let locations = (near.tap_position.location, far.tap_position.location);
        let at_ends = locations == (CaptureLocation::NearSender, CaptureLocation::NearReceiver);
        // Only the largest flows still have their time series here.
        if at_ends && !near.time_series.is_empty() {
            let delays = PathDelays {
                data: &data.time_series,
                acks: &acks.time_series,
                clock_ahead_ns: self.delay_clock_ahead_ns,
            };
            let joint = limits::classify(
                &near.time_series,
                Windows::of(&near.acks),
                self.round_trip_ns,
                CapturePoints::BothEnds(&delays),
            );
            if !adds_ack_queue(&near.limits, &joint) {
                near.limits = joint;
            }
            near.verdict = verdict_text(near, far);
            near.remedy = super::remedy_text(near, self.round_trip_ns);
        }
        far.limits = near
            .limits
            .iter()
            .map(|period| self.to_other_clock(*period))
            .collect();
        far.verdict.clone_from(&near.verdict);
        far.remedy.clone_from(&near.remedy);
        far.congestion_control.clone_from(&near.congestion_control);
    }

    fn to_other_clock(&self, period: LimitPeriod) -> LimitPeriod {
        let at = |ns: u64| ns.saturating_add_signed(self.other_clock_ahead_ns);
        LimitPeriod {
            from_ns: at(period.from_ns),
            to_ns: at(period.to_ns),
            ..period
        }
    }
}

/// Returns whether both captures show a queue of ACKs as the main limit, and the sender's own shows no queue. It would: such
/// a queue lengthens its round trips. Delays that fluctuate slowly look like one between the captures.
fn adds_ack_queue(own: &[LimitPeriod], joint: &[LimitPeriod]) -> bool {
    let main = |limits| limit_shares(limits).first().map(|(limit, _)| *limit);
    let has_queue = |limit| matches!(limit, Limit::AckStream | Limit::BottleneckBandwidth);
    main(joint) == Some(Limit::AckStream) && main(own).is_some_and(|own| !has_queue(own))
}

/// Returns the verdict on a direction, captured `near` its sender and `far` from it. All ECN marks of the path pass the
/// capture near the receiver: its count replaces what ACKs report of them.
fn verdict_text(near: &mut Direction, far: &Direction) -> String {
    let own = near.ecn;
    if far.ecn.ce_data_segments > 0 {
        near.ecn.reported_ce_packets = far.ecn.ce_data_segments;
    }
    let text = super::two_point_verdict_text(near);
    near.ecn = own;
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(limit: Limit) -> Vec<LimitPeriod> {
        vec![LimitPeriod {
            limit,
            from_ns: 0,
            to_ns: 1,
        }]
    }

    #[test]
    fn ack_queue_that_the_sender_does_not_see_is_none() {
        let adds = |own, joint| adds_ack_queue(&limits(own), &limits(joint));
        assert!(adds(Limit::CongestionWindow, Limit::AckStream));
        assert!(adds(Limit::Application, Limit::AckStream));
        assert!(!adds(Limit::BottleneckBandwidth, Limit::AckStream));
        assert!(!adds(Limit::CongestionWindow, Limit::BottleneckBandwidth));
        assert!(!adds_ack_queue(&[], &limits(Limit::AckStream)));
    }
}
