// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the bursts after each ACK against what the sender did, exactly.

use super::simulated_flow::{GroundTruth, MSS, case};
use longhaul_flow::{record::AckClocking, segment::Segment};
use longhaul_units::Time;

const BURST_GAP_NS: u64 = 100_000;

/// Reference for the bursts after each ACK that advances or repeats a number. Returns AckDiff and length of each in
/// segments, and the payload of all.
fn bursts(segments: &[Segment]) -> (Vec<(u64, u64)>, u64) {
    let segments_after_handshake: Vec<_> = segments.iter().filter(|s| s.flags & 2 == 0).collect();
    let (mut bursts, mut clocked_bytes, mut una, mut next) = (Vec::new(), 0, None, 0);
    for (at, ack) in segments_after_handshake.iter().enumerate() {
        if ack.from_low {
            next = ack.seq.wrapping_add(ack.payload);
            continue;
        }
        let before = *una.get_or_insert(segments_after_handshake[0].seq);
        let newly = ack.ack.wrapping_sub(before);
        una = Some(ack.ack);
        if newly == 0 && next == ack.ack {
            continue; // Nothing is outstanding.
        }
        let (mut last_ns, mut length) = (ack.at_ns, 0);
        for data in segments_after_handshake[at + 1..]
            .iter()
            .take_while(|s| s.from_low)
        {
            if data.at_ns - last_ns >= BURST_GAP_NS {
                break;
            }
            last_ns = data.at_ns;
            length += u64::from(data.wire_segments);
            clocked_bytes += u64::from(data.payload);
        }
        bursts.push((u64::from(newly).div_ceil(MSS), length));
    }
    (bursts, clocked_bytes)
}

fn class(segments: u64) -> usize {
    let edges = [0, 1, 2, 4, 8, 16, 32, 64, u64::MAX];
    edges.iter().position(|most| segments <= *most).unwrap()
}

fn assert_agrees(truth: &GroundTruth) -> AckClocking {
    let found = truth.flow().upload.ack_clocking;
    let (bursts, clocked_bytes) = bursts(&truth.at_sender);
    assert_eq!(found.clocked_bytes, clocked_bytes);
    let mut counts = vec![[0u64; 9]; 9];
    for (ack_diff, length) in &bursts {
        counts[class(*ack_diff)][class(*length)] += 1;
    }
    for by in &found.by_ack_diff {
        let row = counts[class(by.segments.0)];
        assert_eq!((by.bursts, by.acks), (row, row.iter().sum()), "{by:?}");
    }
    let acks: u64 = found.by_ack_diff.iter().map(|by| by.acks).sum();
    assert_eq!(acks, bursts.len() as u64);
    found
}

/// With a full window all data waits for ACKs. An ACK of 64 segments is followed by 64 segments. Most ACKs of one segment are
/// followed by none, since the sender waits until a super-packet is worth it (`tcp_tso_should_defer`).
#[test]
fn full_window_is_fully_ack_clocked() {
    let run = |packets| {
        case("20ms", &[("rate", "1gbit")], 5.0)
            .receive_window(400 * MSS)
            .acks(packets, Time::ZERO)
            .run()
    };
    let of = |found: &AckClocking, least| {
        let mut rows = found.by_ack_diff.iter();
        rows.find(|by| by.segments.0 == least).unwrap().clone()
    };
    let (each, merged) = (assert_agrees(&run(1)), assert_agrees(&run(64)));
    for found in [&each, &merged] {
        assert_eq!(found.clocked_bytes, found.sent_bytes, "{found:?}");
    }
    let (each, merged) = (of(&each, 1), of(&merged, 33));
    assert!(each.bursts[0] as f64 > 0.8 * each.acks as f64, "{each:?}");
    assert!(
        merged.bursts[7] as f64 > 0.8 * merged.acks as f64,
        "{merged:?}"
    );
}

#[test]
fn counts_bursts_with_losses_and_few_acks() {
    let path = [("rate", "100mbit"), ("queue", "1bdp")];
    assert_agrees(&case("20ms", &path, 6.0).run());
    assert_agrees(&case("20ms", &path, 6.0).reverse("ack-thin", "4").run());
    let truth = case("20ms", &[("rate", "1gbit"), ("loss", "0.1%")], 6.0).run();
    assert_agrees(&truth);
}

/// A sender that paces sends independently of its ACKs.
#[test]
fn paced_sender_is_not_ack_clocked() {
    let path = [("rate", "50mbit"), ("queue", "4bdp")];
    let run = || {
        case("50ms", &path, 10.0)
            .receive_window(100 * MSS)
            .acks(8, Time::ZERO)
    };
    let (clocked, paced) = (
        assert_agrees(&run().run()),
        assert_agrees(&run().paced().run()),
    );
    let share = |found: &AckClocking| found.clocked_bytes as f64 / found.sent_bytes as f64;
    assert!(share(&clocked) > 0.99, "{clocked:?}");
    assert!(share(&paced) < 0.5, "{paced:?}");
}
