// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of two-point comparison: one connection tapped at both ends of the path, with true delays and losses.

use super::simulated_flow::{Case, GroundTruth, MSS, analyse, case};
use longhaul_flow::{
    joint_verdict,
    record::{Clocks, Flow, Limit, TwoPointComparison},
    segment::Segment,
    two_point::{Comparison, ComparisonSettings, Side},
};

/// Compares the segments of both points by their times, as two files are read together.
fn compare(
    left: &[Segment],
    right: &[Segment],
    same_clock: bool,
    settings: ComparisonSettings,
) -> TwoPointComparison {
    let mut comparison = Comparison::new(same_clock, settings);
    let mut rest = (left.iter().peekable(), right.iter().peekable());
    loop {
        let take_left = match (rest.0.peek(), rest.1.peek()) {
            (None, None) => break,
            (Some(left), Some(right)) => left.at_ns <= right.at_ns,
            (left, _) => left.is_some(),
        };
        let (side, segment) = if take_left {
            (Side::Left, rest.0.next())
        } else {
            (Side::Right, rest.1.next())
        };
        comparison.process_segment(side, segment.unwrap());
        assert!(comparison.unmatched_parts() <= 8 * settings.packets_max);
    }
    comparison.finish(&analyse(left), &analyse(right))
}

fn compare_same_clock(truth: &GroundTruth) -> TwoPointComparison {
    compare(
        &truth.at_sender,
        &truth.at_receiver,
        true,
        ComparisonSettings::default(),
    )
}

/// Path of 20 ms each way with a queue of 20 ms that is sometimes full.
fn lossy() -> Case {
    case(
        "20ms",
        &[("rate", "50mbit"), ("queue", "1bdp"), ("loss", "0.05%")],
        6.0,
    )
}

/// Asserts that every packet that was sent and not lost is matched, and that lost packets count as lost on the path.
fn assert_agrees(truth: &GroundTruth, found: &TwoPointComparison) {
    assert!(found.client_is_left);
    let forward = &found.from_client;
    let (lost, edge) = (forward.lost, forward.outside_overlap);
    // Packets in flight at the end are outside the overlap.
    assert_eq!(lost.segments, truth.lost, "{lost:?} {edge:?}");
    assert_eq!(lost.bytes, truth.lost * MSS);
    let sent = truth.counters.sent * MSS;
    assert_eq!(forward.matched_bytes, sent + 1 - lost.bytes - edge.bytes);
    assert_eq!(
        forward.uncaptured.bytes + forward.lost_upstream_bytes + forward.reordered,
        0
    );
    assert_eq!(found.from_server.lost.segments, 0);
}

#[test]
fn measures_losses_and_delays_with_one_clock() {
    let truth = lossy().run();
    assert!(truth.lost > 20);
    let found = compare_same_clock(&truth);
    assert_agrees(&truth, &found);
    assert_eq!((found.clocks, found.offset_ns), (Clocks::Same, 0));
    // A packet takes 240 µs on the wire; the handshake takes none.
    let (forward, reverse) = (
        &found.from_client.one_way_delay,
        &found.from_server.one_way_delay,
    );
    let deepest = truth
        .samples
        .iter()
        .map(|sample| sample.queue)
        .max()
        .unwrap();
    let most = 20_000_000 + (deepest + 3_000) * 8 * 20;
    assert_eq!(forward.min, 20_000_000);
    assert!(
        forward.max <= most && forward.max * 10 > most * 9,
        "{} {most}",
        forward.max
    );
    assert_eq!((reverse.min, reverse.max), (20_000_000, 20_000_000));
    assert_eq!(
        found.from_server.lost.acks + found.from_server.uncaptured.acks,
        0
    );
}

#[test]
fn matches_super_packets_with_their_segments() {
    let truth = lossy().run_with_super_packets();
    assert_agrees(&truth, &compare_same_clock(&truth));
}

/// Without timestamps, delays distinguish a retransmission from its original.
#[test]
fn finds_losses_without_timestamps() {
    let truth = lossy().run();
    let bare = |segments: &[Segment]| -> Vec<Segment> {
        let without = |segment: &Segment| Segment {
            has_timestamps: false,
            ..*segment
        };
        segments.iter().map(without).collect()
    };
    let (left, right) = (bare(&truth.at_sender), bare(&truth.at_receiver));
    assert_agrees(
        &truth,
        &compare(&left, &right, true, ComparisonSettings::default()),
    );
}

/// The right clock is 2.5 s ahead (or behind) and 60 ppm fast.
#[test]
fn corrects_clock_offset_and_skew() {
    for ahead in [2_500_000_000i64, -2_500_000_000] {
        let truth = lossy().run();
        let origin = 10_000_000_000;
        let other = |at_ns: u64| {
            let fast = at_ns + (at_ns as f64 * 60e-6) as u64;
            (fast + origin).saturating_add_signed(ahead)
        };
        let moved = |segments: &[Segment], clock: &dyn Fn(u64) -> u64| -> Vec<Segment> {
            let moved = |segment: &Segment| Segment {
                at_ns: clock(segment.at_ns),
                ..*segment
            };
            segments.iter().map(moved).collect()
        };
        let left = moved(&truth.at_sender, &|at| at + origin);
        let right = moved(&truth.at_receiver, &other);
        let found = compare(&left, &right, false, ComparisonSettings::default());
        assert_agrees(&truth, &found);
        assert_eq!(found.clocks, Clocks::Symmetric);
        assert!(
            (found.offset_ns - ahead).abs() < 200_000,
            "{}",
            found.offset_ns
        );
        // The first packets are short: 240 µs less on the wire are 20 ppm of both directions in 6 s.
        assert!((found.skew_ppm - 60.0).abs() < 21.0, "{}", found.skew_ppm);
        let true_delay = compare_same_clock(&truth).from_client.one_way_delay;
        assert!(found.from_client.one_way_delay.p50.abs_diff(true_delay.p50) < 1_000_000);
    }
}

#[test]
fn accepts_client_on_either_side() {
    let truth = lossy().run();
    let straight = compare_same_clock(&truth);
    let other = compare(
        &truth.at_receiver,
        &truth.at_sender,
        true,
        ComparisonSettings::default(),
    );
    assert!(straight.client_is_left && !other.client_is_left);
    let buckets = |found: &TwoPointComparison| found.from_client.one_way_delay.buckets.clone();
    assert_eq!(buckets(&straight), buckets(&other));
    assert_eq!(
        straight.from_server.ack_spacing,
        other.from_server.ack_spacing
    );
    assert_eq!(straight.from_client.lost, other.from_client.lost);
}

/// One ACK in eight arrives: the comparison sees the others as lost on the reverse path.
#[test]
fn counts_thinned_acks_as_lost() {
    let truth = case("20ms", &[("rate", "50mbit")], 3.0)
        .receive_window(100_000)
        .reverse("ack-thin", "3")
        .run();
    let found = compare_same_clock(&truth).from_server;
    let pure = |segments: &[Segment]| segments.iter().filter(|s| !s.from_low).count() as u64 - 1;
    let (sent, arrived) = (pure(&truth.at_receiver), pure(&truth.at_sender));
    assert_eq!(found.lost.acks + found.outside_overlap.acks, sent - arrived);
    assert!(
        found.outside_overlap.acks < 200 && found.lost.acks > 1_000,
        "{found:?}"
    );
}

/// Paced ACKs are evenly spaced where they arrive, whatever their spacing where they left.
#[test]
fn measures_ack_spacing_after_pacing() {
    let truth = case("20ms", &[("rate", "1gbit")], 4.0)
        .receive_window(1 << 20)
        .reverse("ack-rate", "1000")
        .reverse("ack-buffer", "100000")
        .run();
    let spacing = compare_same_clock(&truth).from_server.ack_spacing;
    assert!(
        spacing.arrived.p50.abs_diff(1_000_000) < 32_000,
        "{}",
        spacing.arrived.p50
    );
    assert!(spacing.stretched > spacing.compressed);
    assert_eq!(spacing.arrived.count, spacing.sent.count);
}

/// A capture that covers half of the time shows no losses in the other half.
#[test]
fn packets_outside_overlap_are_not_lost() {
    let truth = lossy().run();
    let late = truth
        .at_receiver
        .partition_point(|s| s.at_ns < 3_000_000_000);
    let found = compare(
        &truth.at_sender,
        &truth.at_receiver[late..],
        true,
        ComparisonSettings::default(),
    );
    let forward = &found.from_client;
    assert!(forward.lost.segments < truth.lost && forward.outside_overlap.bytes > 10_000_000);
    assert_eq!(forward.uncaptured.bytes, 0);
    // No overlap to compare.
    let none = compare(
        &truth.at_sender,
        &truth.at_sender[..3],
        true,
        ComparisonSettings::default(),
    );
    assert_eq!(none.from_client.lost.bytes, 0);
}

/// `compare` asserts the bound of unmatched parts. With too little room fewer bytes are matched, and every byte is
/// still counted once.
#[test]
fn bounded_comparison_accounts_for_every_byte() {
    let truth = lossy().run();
    let sent = |segments: &[Segment]| -> u64 {
        let data = segments.iter().filter(|segment| segment.from_low);
        data.map(|segment| u64::from(segment.payload) + u64::from(segment.flags & 2 != 0))
            .sum()
    };
    for packets_max in [16, 150, 200, 1 << 16] {
        let settings = ComparisonSettings {
            packets_max,
            ..ComparisonSettings::default()
        };
        let metrics = compare(&truth.at_sender, &truth.at_receiver, true, settings).from_client;
        let alone = metrics.lost.bytes + metrics.uncaptured.bytes + metrics.outside_overlap.bytes;
        let both = sent(&truth.at_sender) + sent(&truth.at_receiver);
        assert_eq!(2 * metrics.matched_bytes + alone, both, "{packets_max}");
    }
}

/// Returns both flows after the joint verdict, the sender's first. The receiver's clock is `ahead_ns` ahead.
fn assess_jointly(truth: &GroundTruth, ahead_ns: u64) -> [Flow; 2] {
    let later = |segment: &Segment| Segment {
        at_ns: segment.at_ns + ahead_ns,
        ..*segment
    };
    let at_receiver: Vec<_> = truth.at_receiver.iter().map(later).collect();
    let pair = compare(
        &truth.at_sender,
        &at_receiver,
        ahead_ns == 0,
        ComparisonSettings::default(),
    );
    let (mut near, mut far) = (analyse(&truth.at_sender), analyse(&at_receiver));
    joint_verdict::assess(&mut near, &mut far, &pair);
    [near, far]
}

#[test]
fn joint_verdict_finds_standing_queue() {
    for ahead_ns in [0, 3_000_000_000] {
        let path = [("rate", "50mbit"), ("queue", "2bdp")];
        let truth = case("20ms", &path, 20.0).run();
        let [near, far] = assess_jointly(&truth, ahead_ns);
        assert_eq!(near.upload.verdict, far.upload.verdict);
        let verdict = &near.upload.verdict;
        assert!(verdict.starts_with("Captured at both ends: "), "{verdict}");
        assert!(verdict.contains("by the bottleneck bandwidth"), "{verdict}");
        let shifted = near.upload.limits.iter().zip(&far.upload.limits);
        for (near, far) in shifted {
            assert_eq!(near.limit, far.limit);
            let ahead = far.from_ns - near.from_ns;
            assert!(ahead.abs_diff(ahead_ns) < 1_000_000, "{ahead}");
        }
    }
}

/// With ACKs at a constant 6,000 a second, the one-way delays show the direction of the queue.
#[test]
fn joint_verdict_finds_ack_queue() {
    let truth = case("125ms", &[("rate", "10gbit")], 40.0)
        .receive_window(16 << 20)
        .reverse("ack-rate", "6000")
        .reverse("ack-buffer", "100000")
        .run();
    let [near, far] = assess_jointly(&truth, 0);
    assert_eq!(near.upload.verdict, far.upload.verdict);
    let last = near.upload.limits.last().unwrap();
    assert_eq!(last.limit, Limit::AckStream, "{}", near.upload.verdict);
}
