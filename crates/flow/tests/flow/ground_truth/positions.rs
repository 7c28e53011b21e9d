// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every cause is found from every capture point: beside the sender, in the middle of the path, and beside the
//! receiver.

use super::simulated_flow::{Case, analyse, case};
use longhaul_flow::{
    record::{
        CaptureLocation, Flow,
        Limit::{
            self, AckStream, Application, BottleneckBandwidth, CongestionWindow, ReceiveWindow,
        },
    },
    verdict::limit_shares,
};
use longhaul_tcpsim::congestion_control::cubic::Cubic;
use longhaul_units::Time;

/// A cause by name, and what limits the flow most.
type Cause = (&'static str, Limit, fn() -> Case);

const CAUSES: [Cause; 16] = [
    ("window of 64 KB", ReceiveWindow, || {
        case("20ms", &[("rate", "50mbit")], 5.0).receive_window(64 << 10)
    }),
    ("window of 1 MiB", ReceiveWindow, || {
        case("20ms", &[("rate", "1gbit")], 5.0).receive_window(1 << 20)
    }),
    ("queue of one BDP", BottleneckBandwidth, || {
        case("20ms", &[("rate", "50mbit"), ("queue", "1bdp")], 15.0)
    }),
    ("queue of four BDP", BottleneckBandwidth, || {
        case("20ms", &[("rate", "20mbit"), ("queue", "4bdp")], 20.0).control(Cubic::new(false))
    }),
    ("random loss, reno", CongestionWindow, || {
        case("20ms", &[("rate", "1gbit"), ("loss", "0.1%")], 10.0)
    }),
    ("random loss, cubic", CongestionWindow, || {
        case("20ms", &[("rate", "1gbit"), ("loss", "0.1%")], 10.0).control(Cubic::new(false))
    }),
    ("slow start", CongestionWindow, || {
        case("100ms", &[("rate", "10gbit")], 2.0)
    }),
    ("6,000 ACKs a second", AckStream, || {
        case("125ms", &[("rate", "10gbit")], 20.0)
            .receive_window(16 << 20)
            .reverse("ack-rate", "6000")
            .reverse("ack-buffer", "100000")
    }),
    ("small writes", Application, || {
        let writes = (0..500).map(|n| (0.1 + f64::from(n) / 100.0, 5));
        case("10ms", &[("rate", "100mbit")], 5.0).writes(writes)
    }),
    ("bursts and pauses", Application, || {
        let writes = (0..6).map(|n| (0.5 + f64::from(n), 400));
        case("10ms", &[("rate", "100mbit")], 6.0).writes(writes)
    }),
    ("window with jitter", ReceiveWindow, || {
        case("20ms", &[("rate", "50mbit"), ("jitter", "4ms")], 10.0)
            .reverse("jitter", "4ms")
            .receive_window(64 << 10)
    }),
    ("window with uniform jitter", ReceiveWindow, || {
        case(
            "20ms",
            &[("rate", "50mbit"), ("jitter", "uniform:10ms")],
            10.0,
        )
        .reverse("jitter", "uniform:10ms")
        .receive_window(64 << 10)
    }),
    ("queue with jitter", BottleneckBandwidth, || {
        case(
            "20ms",
            &[("rate", "20mbit"), ("queue", "4bdp"), ("jitter", "3ms")],
            15.0,
        )
    }),
    ("writes with jitter", Application, || {
        let writes = (0..1_000).map(|n| (0.1 + f64::from(n) / 100.0, 7));
        case("20ms", &[("rate", "50mbit"), ("jitter", "4ms")], 10.0).writes(writes)
    }),
    ("writes, and a longer path", Application, || {
        let writes = (0..1_000).map(|n| (0.1 + f64::from(n) / 100.0, 7));
        case("12ms", &[("rate", "50mbit")], 10.0)
            .writes(writes)
            .change("3s: delay 30ms")
    }),
    ("window, and a longer path", ReceiveWindow, || {
        case("12ms", &[("rate", "50mbit")], 10.0)
            .receive_window(64 << 10)
            .change("3s: delay 30ms")
    }),
];

/// Returns the limit of most of the time, and its share.
fn main_limit(flow: &Flow) -> Option<(Limit, f64)> {
    limit_shares(&flow.upload.limits).first().copied()
}

#[test]
fn finds_each_cause_from_every_capture_point() {
    let mut wrong = Vec::new();
    for (name, limit, case) in CAUSES {
        let truth = case().run();
        let flows = [
            ("sender", truth.flow()),
            ("middle", truth.flow_before_receiver(Time::from_millis(5))),
            ("receiver", truth.flow_before_receiver(Time::ZERO)),
        ];
        for (place, flow) in flows {
            if main_limit(&flow).is_none_or(|(found, _)| found != limit) {
                wrong.push(format!("{name}, {place}: {}", flow.upload.verdict));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A queue behind a capture point in the middle shows in its round trip to the receiver.
#[test]
fn finds_a_queue_behind_the_middle_without_timestamps() {
    let path = [("rate", "20mbit"), ("queue", "4bdp")];
    let mut segments = case("20ms", &path, 10.0).run().at_sender;
    let to_sender_ns = 5_000_000;
    for segment in &mut segments {
        segment.has_timestamps = false;
        segment.at_ns = if segment.from_low {
            segment.at_ns + to_sender_ns
        } else {
            segment.at_ns - to_sender_ns
        };
    }
    segments.sort_by_key(|segment| segment.at_ns);
    let flow = analyse(&segments);
    assert_eq!(flow.upload.tap_position.location, CaptureLocation::Middle);
    let (limit, _) = main_limit(&flow).unwrap();
    assert_eq!(limit, BottleneckBandwidth, "{}", flow.upload.verdict);
}

/// Without timestamps the delay of the ACK path, and a lasting change of the path before the capture point, do not show.
const NEED_TIMESTAMPS: [&str; 2] = ["6,000 ACKs a second", "window, and a longer path"];

#[test]
fn finds_causes_far_from_the_sender_without_timestamps() {
    let mut wrong = Vec::new();
    for (name, limit, case) in CAUSES {
        let mut truth = case().run();
        for segment in &mut truth.at_receiver {
            segment.has_timestamps = false;
        }
        for before_ms in [0, 5] {
            let flow = truth.flow_before_receiver(Time::from_millis(before_ms));
            let verdict = &flow.upload.verdict;
            assert!(
                verdict.contains(", without timestamps: probably "),
                "{verdict}"
            );
            if main_limit(&flow).is_none_or(|(found, _)| found != limit) {
                wrong.push(format!("{name}, {before_ms} ms: {verdict}"));
            }
        }
    }
    wrong.retain(|case| !NEED_TIMESTAMPS.iter().any(|name| case.starts_with(name)));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
