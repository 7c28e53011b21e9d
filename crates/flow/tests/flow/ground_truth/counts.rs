// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the counts, exactly: those of the sender and of the path, and the bytes that each ACK acknowledged.

use super::{
    reference,
    simulated_flow::{Case, GroundTruth, MSS, case},
};
use longhaul_flow::{bin::Bin, record::Flow, segment::Segment};
use longhaul_units::Time;

fn cases() -> Vec<(&'static str, Case)> {
    let lossy = [("rate", "100mbit"), ("queue", "1bdp")];
    let flow = || case("20ms", &lossy, 6.0);
    vec![
        ("an ACK a packet", flow().acks(1, Time::ZERO)),
        ("one for two", flow()),
        ("one for eight", flow().acks(8, Time::ZERO)),
        ("one for 64", flow().acks(64, Time::ZERO)),
        ("GRO", flow().acks(2, Time::from_micros(1_000))),
        ("thinned", flow().reverse("ack-thin", "4")),
        ("paced", flow().reverse("ack-rate", "2000")),
        ("a window", flow().receive_window(100_000)),
        (
            "random loss",
            case("20ms", &[("rate", "1gbit"), ("loss", "0.1%")], 6.0),
        ),
        (
            "a path that breaks",
            flow().change("2s: loss 100%").change("3s: loss none"),
        ),
    ]
}

/// Returns the bytes that each advancing ACK acknowledged.
fn ack_diffs(segments: &[Segment]) -> Vec<u64> {
    let mut diffs = Vec::new();
    let mut last = None;
    for segment in segments.iter().filter(|s| !s.from_low) {
        let before = last.replace(segment.ack).unwrap_or(segment.ack);
        let newly = segment.ack.wrapping_sub(before);
        if newly > 0 {
            diffs.push(u64::from(newly));
        }
    }
    diffs
}

fn assert_agrees(truth: &GroundTruth, flow: &Flow) {
    let (counters, upload) = (truth.counters, &flow.upload);
    let data = upload.data;
    assert_eq!(data.data_segments, counters.sent);
    let unique = counters.sent - counters.retransmitted;
    assert_eq!(data.unique_bytes, unique * MSS);
    assert_eq!(data.retransmitted_bytes, counters.retransmitted * MSS);
    assert_eq!(
        data.reordered + data.acked_unseen_bytes + data.window_probes_and_keep_alives,
        0
    );
    assert_eq!(upload.acks.pure, counters.acks);
    assert_eq!(upload.acks.acked_bytes, truth.acked_packets * MSS);
    let diffs = ack_diffs(&truth.at_sender);
    let found = &upload.ack_diff;
    assert_eq!(found.count, diffs.len() as u64);
    assert_eq!(found.min, *diffs.iter().min().unwrap());
    assert_eq!(found.max, *diffs.iter().max().unwrap());
    let mean = diffs.iter().sum::<u64>() as f64 / diffs.len() as f64;
    assert!((found.mean / mean - 1.0).abs() < 1e-9);
    let in_flight = truth.samples.iter().map(|s| s.in_flight).max().unwrap();
    assert!(upload.in_flight_max_bytes >= in_flight * MSS);
}

#[test]
fn tap_counts_equal_sender_counters() {
    for (name, case) in cases() {
        println!("{name}");
        let truth = case.run();
        assert_agrees(&truth, &truth.flow());
    }
}

#[test]
fn counts_super_packets_as_segments() {
    let path = [("rate", "1gbit"), ("queue", "1bdp")];
    let run = || case("20ms", &path, 3.0);
    let truth = run().run_with_super_packets();
    let flow = truth.flow();
    assert_agrees(&truth, &flow);
    assert!(flow.upload.data.data_packets < flow.upload.data.data_segments / 4);
    let single = run().run().flow();
    assert_eq!(
        single.upload.data.data_segments,
        flow.upload.data.data_segments
    );
    assert_eq!(single.upload.ack_diff, flow.upload.ack_diff);
}

/// Every bin equals that of the reference.
#[test]
fn time_series_equals_reference() {
    for (name, case) in cases() {
        println!("{name}");
        let truth = case.run();
        let found = truth.flow().upload.time_series;
        let plain = reference::time_series(&truth.at_sender, found.width_ns);
        assert_eq!(found.from_ns, plain.from_ns);
        for (at, (found, plain)) in found.bins.iter().zip(&plain.bins).enumerate() {
            let counts = |bin: &Bin| {
                let data = (bin.data_bytes, bin.data_segments, bin.retransmitted_bytes);
                (
                    data,
                    bin.acked_bytes,
                    bin.acks,
                    bin.sacks,
                    bin.advancing_acks,
                    bin.ack_diff_max,
                )
            };
            assert_eq!(counts(found), counts(plain), "bin {at}");
            assert_eq!(
                found.ack_path_delay_ns.is_some(),
                found.acks > 0,
                "bin {at}"
            );
        }
    }
}

/// Round trips are those of the path and its queue, with a window and timestamps.
#[test]
fn round_trips_match_path_and_queue() {
    let path = [("rate", "100mbit"), ("queue", "100p")];
    let truth = case("20ms", &path, 6.0).acks(1, Time::ZERO).run();
    let upload = truth.flow().upload;
    // 120 µs a packet on the wire, and 100 queued packets.
    let most = 40_000_000 + 101 * 120_000;
    assert_eq!(upload.rtt_by_acks.min, 40_000_000, "the handshake's");
    assert_eq!(upload.rtt_by_timestamps.min, 40_120_000);
    for rtt in [&upload.rtt_by_acks, &upload.rtt_by_timestamps] {
        assert!(
            rtt.max <= most && rtt.max > most - 1_000_000,
            "{} {most}",
            rtt.max
        );
    }
}
