// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of round trips by pairs and by timestamps.

use crate::scripted::script::{
    MS, US, client, handshake, run, run_one, run_with, script, server, settings,
};
use longhaul_flow::Settings;

#[test]
fn handshake_is_a_sample() {
    let flow = run_one(&handshake(10 * MS));
    assert_eq!(
        (flow.upload.rtt_by_acks.count, flow.upload.rtt_by_acks.max),
        (1, 10 * MS)
    );
    assert_eq!(
        (
            flow.download.rtt_by_acks.count,
            flow.download.rtt_by_acks.max
        ),
        (1, 0)
    );
}

#[test]
fn samples_last_segment_covered_by_each_ack() {
    let results = run(&script(&[
        &handshake(10 * MS),
        &[
            client(20 * MS, 1, 1).data(1_000),
            client(22 * MS, 1_001, 1).data(1_000),
            client(24 * MS, 2_001, 1).data(1_000),
            server(35 * MS, 1, 2_001),
            server(35 * MS, 1, 2_001),
            server(37 * MS, 1, 3_001),
        ],
    ]));
    let rtt = &results.flows[0].upload.rtt_by_acks;
    assert_eq!((rtt.count, rtt.min, rtt.max), (3, 10 * MS, 13 * MS));
    let series = results.series(0, true, 0);
    let bin = series.iter().find(|(at, _)| *at == 35 * MS).unwrap().1;
    assert_eq!(
        (bin.rtt_samples, bin.rtt_min_ns, bin.rtt_sum_ns),
        (1, 13 * MS, 13 * MS)
    );
}

/// The table holds four packets, so the age of the fifth is unknown.
#[test]
fn packet_beyond_bound_has_no_age() {
    let data = (0..8u32).map(|i| client(20 * MS, 1 + i * 1_000, 1).data(1_000));
    let acks = [2_001, 4_001].map(|ack| server(30 * MS + u64::from(ack) * US / 10, 1, ack));
    let segments: Vec<_> = handshake(10 * MS)
        .into_iter()
        .chain(data)
        .chain(acks)
        .collect();
    let settings = Settings {
        unacked_max: 4,
        ..settings()
    };
    let results = run_with(&segments, [5, 6], &settings);
    let series = results.series(0, true, 0);
    let bin = series.iter().find(|(at, _)| *at == 30 * MS).unwrap().1;
    assert_eq!((bin.rtt_samples, bin.unacked_age_min_us), (2, 10_200));
}

#[test]
fn retransmitted_segment_is_no_sample() {
    let flow = run_one(&script(&[
        &handshake(10 * MS),
        &[
            client(20 * MS, 1, 1).data(1_000),
            client(20 * MS, 1_001, 1).data(1_000),
            client(300 * MS, 1, 1).data(1_000),
            server(310 * MS, 1, 2_001),
            client(320 * MS, 2_001, 1).data(1_000),
            server(331 * MS, 1, 3_001),
        ],
    ]));
    let rtt = &flow.upload.rtt_by_acks;
    assert_eq!((rtt.count, rtt.min, rtt.max), (2, 10 * MS, 11 * MS));
}

/// A byte that is sent into a closed window each time the sender's timer expires.
#[test]
fn repeated_window_probe_is_no_sample() {
    let flow = run_one(&script(&[
        &handshake(10 * MS),
        &[
            client(20 * MS, 1, 1).data(1_000),
            server(30 * MS, 1, 1_001).window(0),
            client(300 * MS, 1_001, 1).data(1),
            server(310 * MS, 1, 1_001).window(0),
            client(900 * MS, 1_001, 1).data(1),
            server(910 * MS, 1, 1_002).window(10),
            client(920 * MS, 1_002, 1).data(1_000),
            server(930 * MS, 1, 2_002).window(10),
        ],
    ]));
    let rtt = &flow.upload.rtt_by_acks;
    assert_eq!((rtt.count, rtt.max), (3, 10 * MS));
    assert_eq!(flow.upload.data.window_probes_and_keep_alives, 2);
}

#[test]
fn retransmitted_syn_is_no_sample() {
    let mut segments = handshake(1_010 * MS);
    segments.insert(1, client(1_000 * MS, 0, 0).syn(1_000, 7).without_ack());
    let flow = run_one(&segments);
    assert_eq!(flow.upload.rtt_by_acks.count, 0);
    assert_eq!(flow.handshake.syn_retransmissions, 1);
    // Either SYN may have been answered, 10 ms or 1,010 ms later (RFC 6298 §3).
    assert_eq!(flow.handshake.syn_to_syn_ack_ns, None);
    assert_eq!(flow.upload.data.other_retransmissions, 0);
}

#[test]
fn samples_parts_of_super_packet() {
    let flow = run_one(&script(&[
        &handshake(10 * MS),
        &[
            client(20 * MS, 1, 1).data(4_000).segments(4),
            server(31 * MS, 1, 2_001),
            server(32 * MS, 1, 4_001),
        ],
    ]));
    let rtt = &flow.upload.rtt_by_acks;
    assert_eq!((rtt.count, rtt.max), (3, 12 * MS));
}

#[test]
fn samples_first_echo_of_each_time_stamp() {
    let flow = run_one(&script(&[
        &handshake(10 * MS),
        &[
            client(20 * MS, 1, 1).data(1_000).stamps(100, 5),
            client(21 * MS, 1_001, 1).data(1_000).stamps(100, 5),
            client(22 * MS, 2_001, 1).data(1_000).stamps(101, 5),
            server(30 * MS, 1, 1_001).stamps(6, 100),
            server(31 * MS, 1, 2_001).stamps(6, 100),
            server(34 * MS, 1, 3_001).stamps(6, 101),
        ],
    ]));
    let rtt = &flow.upload.rtt_by_timestamps;
    assert_eq!((rtt.count, rtt.min, rtt.max), (2, 10 * MS, 12 * MS));
    assert_eq!(flow.download.rtt_by_timestamps.count, 0);
}

#[test]
fn timestamps_sample_retransmitted_segment() {
    let results = run(&script(&[
        &handshake(10 * MS),
        &[
            client(20 * MS, 1, 1).data(1_000).stamps(100, 5),
            client(300 * MS, 1, 1).data(1_000).stamps(380, 5),
            server(315 * MS, 1, 1_001).stamps(6, 380),
        ],
    ]));
    let upload = &results.flows[0].upload;
    assert_eq!(
        (upload.rtt_by_acks.count, upload.rtt_by_timestamps.max),
        (1, 15 * MS)
    );
    assert_eq!(results.series(0, true, 1)[0].1.rtt_samples, 2);
}
