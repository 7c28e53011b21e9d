// SPDX-License-Identifier: MIT OR Apache-2.0
//! Position of a capture point on the path from a sender to its receiver, and what cannot be known from there.
//!
//! The round trips from the capture point to both ends add up to the whole. The capture point sees the sender's packets
//! later by half of the round trip to the sender; it does not see what is in flight between the sender and itself. A queue
//! between them is a distance, too.

use super::queues::data_excess_ns;
use crate::record::{CaptureLocation, CapturePosition, Direction};
use crate::time_series::change_points::median;

/// Divisor of the whole round trip for a part that is negligible.
const NEAR_DIVISOR: u64 = 10;
/// Round trip within a host or a room, ns.
const NEAR_NS: u64 = 500_000;
/// Least delay of data before the capture point that is a queue, ns: timestamps have a resolution of a millisecond, and a
/// sender that paces may hold a packet for as long.
const QUEUE_MIN_NS: f64 = 3e6;

/// Returns the least round trip of the data of `direction`, or of its half of the handshake.
pub(super) fn least_rtt(handshake_ns: Option<u64>, direction: &Direction) -> Option<u64> {
    let samples = [&direction.rtt_by_acks, &direction.rtt_by_timestamps];
    let found = samples
        .iter()
        .filter(|rtt| rtt.count > 0)
        .map(|rtt| rtt.min);
    found.chain(handshake_ns).min()
}

/// Returns the delay of the queue in which most data of `direction` waited between its sender and the capture point, by
/// TSval, ns; 0 if there is none.
pub(super) fn queue_before_ns(direction: &Direction) -> u64 {
    let series = &direction.time_series;
    let excess = data_excess_ns(&series.bins, series.width_ns).unwrap_or_default();
    let excess: Vec<_> = excess.into_iter().flatten().collect();
    if excess.is_empty() {
        return 0;
    }
    match median(excess) {
        queue_ns if queue_ns < QUEUE_MIN_NS => 0,
        queue_ns => queue_ns as u64,
    }
}

/// Returns the position of a capture point with these least round trips to the sender and to the receiver, and this queue
/// between the sender and itself.
pub(super) fn locate(
    to_sender_ns: Option<u64>,
    to_receiver_ns: Option<u64>,
    queue_ns: u64,
) -> CapturePosition {
    let with_queue = to_sender_ns.map(|ns| ns.saturating_add(queue_ns));
    let location = match with_queue.zip(to_receiver_ns) {
        Some((sender, receiver)) if sender <= receiver => {
            near_or_middle(sender, receiver, CaptureLocation::NearSender)
        }
        Some((sender, receiver)) => near_or_middle(receiver, sender, CaptureLocation::NearReceiver),
        None => CaptureLocation::Unknown,
    };
    CapturePosition {
        location,
        to_sender_ns,
        to_receiver_ns,
    }
}

fn near_or_middle(nearer: u64, farther: u64, location: CaptureLocation) -> CaptureLocation {
    let part = nearer.saturating_add(farther) / NEAR_DIVISOR;
    if nearer <= part || nearer < NEAR_NS {
        location
    } else {
        CaptureLocation::Middle
    }
}

/// Returns the first words of a verdict. `shows_sender` is true if timestamps show what the sender knew.
pub(super) fn verdict_prefix(location: CaptureLocation, shows_sender: bool) -> &'static str {
    match (location, shows_sender) {
        (CaptureLocation::NearSender, _) => "Captured near the sender: ",
        (CaptureLocation::Middle, true) => "Captured in the middle of the path: ",
        (CaptureLocation::Middle, false) => {
            "Captured in the middle of the path, without timestamps: probably "
        }
        (CaptureLocation::NearReceiver, true) => "Captured near the receiver: ",
        (CaptureLocation::NearReceiver, false) => {
            "Captured near the receiver, without timestamps: probably "
        }
        (CaptureLocation::Unknown, _) => "Captured at an unknown position; if near the sender: ",
    }
}

/// Returns what a verdict from this position cannot take into account.
pub(super) fn verdict_caveat(position: &CapturePosition, shows_sender: bool) -> String {
    match position.location {
        CaptureLocation::NearSender => String::new(),
        CaptureLocation::Middle | CaptureLocation::NearReceiver if shows_sender => {
            " The sender's view is inferred from the ACKs that its packets echo.".to_owned()
        }
        CaptureLocation::Middle => format!(
            " {} of the round trip lies between the sender and the capture point: data in flight and queues of \
             data or ACKs there do not show; losses there show as sequence gaps.",
            percent(position)
        ),
        CaptureLocation::NearReceiver => " The data in flight is inferred from the least round trip. Queues before the \
             capture point and a slow ACK path do not show; data that arrives evenly at one rate counts as a full path."
            .to_owned(),
        CaptureLocation::Unknown => " Without a handshake or data in both directions, the distance to the sender is unknown.".to_owned(),
    }
}

fn percent(position: &CapturePosition) -> String {
    let [sender, receiver] =
        [position.to_sender_ns, position.to_receiver_ns].map(|ns| ns.unwrap_or(0) as f64);
    format!("{:.0} %", 100.0 * sender / (sender + receiver).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn tenth_of_round_trip_counts_as_near() {
        let location =
            |sender, receiver| locate(Some(sender * MS), Some(receiver * MS), 0).location;
        assert_eq!(location(10, 90), CaptureLocation::NearSender);
        assert_eq!(location(11, 89), CaptureLocation::Middle);
        assert_eq!(location(89, 11), CaptureLocation::Middle);
        assert_eq!(location(90, 10), CaptureLocation::NearReceiver);
        assert_eq!(locate(None, Some(MS), 0).location, CaptureLocation::Unknown);
    }

    #[test]
    fn queue_before_capture_point_counts_as_distance() {
        let location = |queue| locate(Some(MS), Some(50 * MS), queue * MS).location;
        assert_eq!(location(0), CaptureLocation::NearSender);
        assert_eq!(location(30), CaptureLocation::Middle);
    }

    #[test]
    fn nearer_end_counts_within_room() {
        assert_eq!(
            locate(Some(100_000), Some(300_000), 0).location,
            CaptureLocation::NearSender
        );
        assert_eq!(
            locate(Some(300_000), Some(100_000), 0).location,
            CaptureLocation::NearReceiver
        );
    }
}
