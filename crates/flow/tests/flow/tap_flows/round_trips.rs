// SPDX-License-Identifier: MIT OR Apache-2.0
//! Round trips by pairs and by time stamps.

use crate::tap_flows::script::{MS, US, c, handshake, run, run_one, run_with, s, script, settings};
use longhaul_flow::Settings;

#[test]
fn the_handshake_is_a_sample() {
    let flow = run_one(&handshake(10 * MS));
    assert_eq!(
        (flow.upload.rtt_by_pairs.count, flow.upload.rtt_by_pairs.max),
        (1, 10 * MS)
    );
    assert_eq!(
        (
            flow.download.rtt_by_pairs.count,
            flow.download.rtt_by_pairs.max
        ),
        (1, 0)
    );
}

#[test]
fn one_sample_an_ack_from_the_last_segment_that_it_covers() {
    let said = run(&script(&[
        &handshake(10 * MS),
        &[
            c(20 * MS, 1, 1).data(1_000),
            c(22 * MS, 1_001, 1).data(1_000),
            c(24 * MS, 2_001, 1).data(1_000),
            s(35 * MS, 1, 2_001),
            s(35 * MS, 1, 2_001),
            s(37 * MS, 1, 3_001),
        ],
    ]));
    let rtt = &said.flows[0].upload.rtt_by_pairs;
    assert_eq!((rtt.count, rtt.min, rtt.max), (3, 10 * MS, 13 * MS));
    let series = said.series(0, true, 0);
    let bin = series.iter().find(|(at, _)| *at == 35 * MS).unwrap().1;
    assert_eq!(
        (bin.rtt_samples, bin.rtt_min_ns, bin.rtt_sum_ns),
        (1, 13 * MS, 13 * MS)
    );
}

/// The fourth packet is the last that there is room for: of the fifth nobody knows how long it has been out.
#[test]
fn a_packet_beyond_the_bound_has_no_age() {
    let data = (0..8u32).map(|i| c(20 * MS, 1 + i * 1_000, 1).data(1_000));
    let acks = [2_001, 4_001].map(|ack| s(30 * MS + u64::from(ack) * US / 10, 1, ack));
    let segments: Vec<_> = handshake(10 * MS)
        .into_iter()
        .chain(data)
        .chain(acks)
        .collect();
    let bounds = Settings {
        unacked_max: 4,
        ..settings()
    };
    let said = run_with(&segments, [5, 6], &bounds);
    let series = said.series(0, true, 0);
    let bin = series.iter().find(|(at, _)| *at == 30 * MS).unwrap().1;
    assert_eq!((bin.rtt_samples, bin.unacked_age_min_us), (2, 10_200));
}

#[test]
fn what_was_sent_twice_is_no_sample() {
    let flow = run_one(&script(&[
        &handshake(10 * MS),
        &[
            c(20 * MS, 1, 1).data(1_000),
            c(20 * MS, 1_001, 1).data(1_000),
            c(300 * MS, 1, 1).data(1_000),
            s(310 * MS, 1, 2_001),
            c(320 * MS, 2_001, 1).data(1_000),
            s(331 * MS, 1, 3_001),
        ],
    ]));
    let rtt = &flow.upload.rtt_by_pairs;
    assert_eq!((rtt.count, rtt.min, rtt.max), (2, 10 * MS, 11 * MS));
}

/// A byte that is sent into a closed window each time the sender's timer runs out.
#[test]
fn a_window_probe_sent_twice_is_no_sample() {
    let flow = run_one(&script(&[
        &handshake(10 * MS),
        &[
            c(20 * MS, 1, 1).data(1_000),
            s(30 * MS, 1, 1_001).window(0),
            c(300 * MS, 1_001, 1).data(1),
            s(310 * MS, 1, 1_001).window(0),
            c(900 * MS, 1_001, 1).data(1),
            s(910 * MS, 1, 1_002).window(10),
            c(920 * MS, 1_002, 1).data(1_000),
            s(930 * MS, 1, 2_002).window(10),
        ],
    ]));
    let rtt = &flow.upload.rtt_by_pairs;
    assert_eq!((rtt.count, rtt.max), (3, 10 * MS));
    assert_eq!(flow.upload.data.probes, 2);
}

#[test]
fn a_syn_sent_twice_is_no_sample() {
    let mut segments = handshake(1_010 * MS);
    segments.insert(1, c(1_000 * MS, 0, 0).syn(1_000, 7).no_ack());
    let flow = run_one(&segments);
    assert_eq!(flow.upload.rtt_by_pairs.count, 0);
    assert_eq!(flow.handshake.syn_retransmissions, 1);
    // Which of both was answered, 10 ms or 1,010 ms later, nobody knows (RFC 6298 §3).
    assert_eq!(flow.handshake.syn_to_syn_ack_ns, None);
    assert_eq!(flow.upload.data.other_retransmissions, 0);
}

#[test]
fn parts_of_a_super_packet_are_samples_of_it() {
    let flow = run_one(&script(&[
        &handshake(10 * MS),
        &[
            c(20 * MS, 1, 1).data(4_000).segments(4),
            s(31 * MS, 1, 2_001),
            s(32 * MS, 1, 4_001),
        ],
    ]));
    let rtt = &flow.upload.rtt_by_pairs;
    assert_eq!((rtt.count, rtt.max), (3, 12 * MS));
}

#[test]
fn first_echo_of_the_first_packet_of_each_time_stamp() {
    let flow = run_one(&script(&[
        &handshake(10 * MS),
        &[
            c(20 * MS, 1, 1).data(1_000).stamps(100, 5),
            c(21 * MS, 1_001, 1).data(1_000).stamps(100, 5),
            c(22 * MS, 2_001, 1).data(1_000).stamps(101, 5),
            s(30 * MS, 1, 1_001).stamps(6, 100),
            s(31 * MS, 1, 2_001).stamps(6, 100),
            s(34 * MS, 1, 3_001).stamps(6, 101),
        ],
    ]));
    let rtt = &flow.upload.rtt_by_timestamps;
    assert_eq!((rtt.count, rtt.min, rtt.max), (2, 10 * MS, 12 * MS));
    assert_eq!(flow.download.rtt_by_timestamps.count, 0);
}

#[test]
fn time_stamps_have_a_sample_where_pairs_have_none() {
    let said = run(&script(&[
        &handshake(10 * MS),
        &[
            c(20 * MS, 1, 1).data(1_000).stamps(100, 5),
            c(300 * MS, 1, 1).data(1_000).stamps(380, 5),
            s(315 * MS, 1, 1_001).stamps(6, 380),
        ],
    ]));
    let upload = &said.flows[0].upload;
    assert_eq!(
        (upload.rtt_by_pairs.count, upload.rtt_by_timestamps.max),
        (1, 15 * MS)
    );
    assert_eq!(said.series(0, true, 1)[0].1.rtt_samples, 2);
}
