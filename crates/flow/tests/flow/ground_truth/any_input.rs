// SPDX-License-Identifier: MIT OR Apache-2.0
//! Property tests with any times and numbers, as in damaged captures: results stay consistent.

use crate::simulated_capture::SimulatedCapture;
use longhaul_flow::{
    advertised_window::Windows,
    bin::Bin,
    limits::{self, CapturePoints, PathDelays},
    phases,
    record::{DelayBin, DelaySeries, Direction, Flow},
    segment::{NO_SCALE, Segment},
    time_series::TimeSeries,
    two_point::{Comparison, ComparisonSettings, Side},
    verdict,
};
use proptest::prelude::*;

/// Amounts that are mostly realistic, and sometimes extreme.
fn any_amount() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0), 8 => 1u64..5_000_000, 1 => Just(u64::MAX / 4)]
}

fn any_bin() -> impl Strategy<Value = Bin> {
    let bytes = (any_amount(), any_amount(), any_amount(), any_amount());
    let times = (
        any_amount(),
        prop::option::of(any::<i64>()),
        prop::option::of(any::<u32>()),
    );
    (bytes, times, 0u32..2_000, any::<bool>()).prop_map(
        |((data, retransmitted, acked, in_flight), (rtt, path_delay, window), segments, full)| {
            Bin {
                data_bytes: data,
                data_segments: segments,
                retransmitted_bytes: retransmitted,
                acked_bytes: acked,
                acks: segments / 2,
                in_flight_max: in_flight,
                rtt_min_ns: rtt,
                rtt_max_ns: rtt,
                window_full: u32::from(full),
                ack_path_delay_ns: path_delay,
                window_min: window,
                unacked_age_min_us: u32::try_from(rtt / 1_000).unwrap_or(u32::MAX),
                ..Bin::default()
            }
        },
    )
}

fn any_time_series() -> impl Strategy<Value = TimeSeries> {
    let width = prop_oneof![Just(1u64), Just(1_000_000), Just(u64::MAX / 8_192)];
    let bins = prop::collection::vec(any_bin(), 0..200);
    (width, any::<u64>(), bins).prop_map(|(width_ns, from_ns, bins)| TimeSeries {
        width_ns,
        from_ns,
        bins,
    })
}

fn any_delays() -> impl Strategy<Value = DelaySeries> {
    let bin = (0u64..3, any_amount()).prop_map(|(count, min_ns)| DelayBin {
        count,
        min_ns,
        ..DelayBin::default()
    });
    let bins = prop::collection::vec(bin, 0..50);
    (any_amount(), any::<u64>(), bins).prop_map(|(width_ns, from_ns, bins)| DelaySeries {
        width_ns,
        from_ns,
        bins,
    })
}

fn any_segment() -> impl Strategy<Value = (bool, Segment)> {
    let times = prop_oneof![8 => 0u64..2_000_000_000, 1 => any::<u64>()];
    let numbers = prop_oneof![8 => 0u32..100_000, 1 => any::<u32>()];
    let payload = prop_oneof![Just(0u32), 1u32..3_000, Just(65_000), Just(u32::MAX)];
    (
        any::<(bool, bool, bool, u8)>(),
        times,
        numbers.clone(),
        numbers,
        payload,
    )
        .prop_map(
            |((left, from_low, stamps, flags), at_ns, seq, ack, payload)| {
                let segment = Segment {
                    at_ns,
                    seq,
                    ack,
                    payload,
                    wire_bytes: 40,
                    wire_segments: u16::from(flags % 3),
                    window: 9,
                    flags,
                    sack_blocks: flags % 5,
                    from_low,
                    window_scale: NO_SCALE,
                    has_timestamps: stamps,
                    tsval: seq / 1_000,
                    sack: [(1, 2); 4],
                    ..Segment::default()
                };
                (left, segment)
            },
        )
}

/// A flow without packets.
fn empty_flow() -> Flow {
    let key = SimulatedCapture::key(0);
    serde_json::from_value(serde_json::json!({
        "number": 0, "capture_point": 0, "client": key.low, "server": key.high,
        "first_ns": 0, "last_ns": 0,
        "handshake": {
            "syn_to_syn_ack_ns": null, "syn_ack_to_ack_ns": null,
            "syn_retransmissions": 0, "syn_ack_retransmissions": 0,
        },
        "termination": "open",
        "upload": Direction::default(), "download": Direction::default(),
    }))
    .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn phases_and_limits_are_contiguous(
        time_series in any_time_series(),
        handshake in prop::option::of(any_amount()),
        delays in (any_delays(), any_delays()),
        ahead in any::<i64>(),
        known in any::<bool>(),
        scaled in any::<bool>(),
    ) {
        let windows = if scaled { Windows::Scaled } else { Windows::Unknown };
        let phases = phases::detect(&time_series, handshake);
        for pair in phases.windows(2) {
            prop_assert_eq!(pair[0].to_ns, pair[1].from_ns);
        }
        for phase in &phases {
            let rates = [phase.data_bps, phase.acked_bps, phase.acks_per_s, phase.packets_per_ack];
            prop_assert!(rates.iter().all(|rate| rate.is_finite()), "{:?}", phase);
        }
        let delays = PathDelays { data: &delays.0, acks: &delays.1, clock_ahead_ns: ahead };
        let capture_points = match (known, ahead % 2) {
            (true, _) => CapturePoints::BothEnds(&delays),
            (false, 0) => CapturePoints::NearSender,
            (false, _) => CapturePoints::FarFromSender,
        };
        let limits = limits::classify(&time_series, windows, handshake, capture_points);
        for pair in limits.windows(2) {
            prop_assert_eq!(pair[0].to_ns, pair[1].from_ns);
            prop_assert_ne!(pair[0].limit, pair[1].limit);
        }
        prop_assert_eq!(phases.is_empty(), limits.is_empty());
        let mut direction = Direction { time_series, ..Direction::default() };
        direction.acks.pure = 1;
        verdict::assess_direction(&mut direction, handshake);
        prop_assert_eq!(direction.phases.is_empty(), direction.verdict.is_empty() || direction.limits.is_empty());
    }

    #[test]
    fn compares_any_segments_within_bounds(
        segments in prop::collection::vec(any_segment(), 0..300),
        same_clock in any::<bool>(),
        packets_max in 1usize..100,
    ) {
        let settings = ComparisonSettings { packets_max, samples_max: 8, bins_max: 8, width_ns: 1_000 };
        let mut comparison = Comparison::new(same_clock, settings);
        for (left, segment) in &segments {
            let side = if *left { Side::Left } else { Side::Right };
            comparison.process_segment(side, segment);
        }
        let found = comparison.finish(&empty_flow(), &empty_flow());
        prop_assert!(found.skew_ppm.is_finite());
        let (mut bytes, mut seen) = (0u64, 0u64);
        for metrics in [&found.from_client, &found.from_server] {
            bytes += 2 * metrics.matched_bytes + metrics.lost.bytes + metrics.uncaptured.bytes + metrics.outside_overlap.bytes;
            prop_assert!(metrics.time_series.bins.len() <= 8);
            prop_assert_eq!(metrics.one_way_delay.count, metrics.matched);
        }
        for (_, segment) in &segments {
            let syn_fin = (segment.flags & 1) + (segment.flags >> 1 & 1);
            seen += u64::from(segment.payload) + u64::from(syn_fin);
        }
        prop_assert_eq!(bytes, seen);
    }
}
