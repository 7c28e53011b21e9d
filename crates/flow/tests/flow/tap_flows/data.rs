// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data stream: counts, super-packets, bytes that the tap misses, probes, gaps and bursts.

use crate::tap_flows::script::{MS, US, c, handshake, run, run_one, run_with, s, script, settings};
use longhaul_packet::capture::Verdict;

#[test]
fn a_transfer_is_counted() {
    let said = run(&script(&[
        &handshake(10 * MS),
        &[
            c(20 * MS, 1, 1).data(1_000),
            c(20 * MS + 10 * US, 1_001, 1).data(1_000),
            c(20 * MS + 30 * US, 2_001, 1).data(500),
            s(30 * MS, 1, 2_001),
            s(30 * MS + 40 * US, 1, 2_501),
        ],
    ]));
    let flow = &said.flows[0];
    let data = flow.upload.data;
    assert_eq!(
        (data.packets, data.wire_segments, data.wire_bytes),
        (5, 5, 200 + 2_500)
    );
    assert_eq!((data.data_packets, data.data_segments), (3, 3));
    assert_eq!((data.payload_bytes, data.unique_bytes), (2_500, 2_500));
    assert_eq!(data.segment_max_bytes, 1_000);
    assert_eq!(data.first_data_ns, Some(20 * MS));
    assert_eq!(data.last_data_ns, Some(20 * MS + 30 * US));
    assert_eq!(flow.upload.gaps.buckets.len(), 2);
    assert_eq!(
        (flow.upload.gaps.min, flow.upload.gaps.max),
        (10 * US, 20 * US)
    );
    assert_eq!(flow.upload.bursts.max, 3);
    assert_eq!(flow.upload.in_flight_max_bytes, 2_500);
    assert_eq!(flow.download.data.packets, 3);
    assert_eq!(flow.download.data.payload_bytes, 0);
    let bin = said.series(0, true, 0)[1].1;
    assert_eq!(
        (bin.data_segments, bin.short_segments, bin.in_flight_max),
        (3, 1, 2_500)
    );
}

#[test]
fn super_packets_are_as_many_segments_as_they_were() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            c(2 * MS, 1, 1).data(2_500).segments(3),
            c(3 * MS, 2_501, 1).data(1_000),
            s(4 * MS, 1, 3_501),
        ],
    ]));
    let data = flow.upload.data;
    assert_eq!(
        (
            data.data_packets,
            data.data_segments,
            data.estimated_packets
        ),
        (2, 4, 0)
    );
    assert_eq!(data.wire_bytes, 2 * 40 + 2_500 + 3 * 40 + 1_040);
    assert_eq!(data.segment_max_bytes, 1_000);
    assert_eq!(flow.upload.gaps.count, 1);
    assert_eq!(flow.upload.packets_per_ack.max, 4);
}

#[test]
fn super_packets_without_a_word_are_estimated_from_the_mss() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            c(2 * MS, 1, 1).data(2_500),
            c(3 * MS, 2_501, 1).data(2_500).stamps(1, 0),
            c(3 * MS, 5_001, 1).data(1_000),
        ],
    ]));
    let data = flow.upload.data;
    // With time stamps a segment has 988 bytes.
    assert_eq!((data.data_segments, data.estimated_packets), (3 + 3 + 1, 2));
    assert_eq!(data.segment_max_bytes, 1_000);
    assert_eq!(data.wire_bytes, 2 * 40 + 6_000 + 7 * 40);
}

/// An end sends none that are larger than it takes itself.
#[test]
fn the_lesser_mss_of_both_is_the_size_of_a_segment() {
    let flow = run_one(&[
        c(0, 0, 0).syn(1_000, 7).no_ack(),
        s(MS, 0, 1).syn(8_960, 7),
        c(MS, 1, 1).data(2_500),
        s(2 * MS, 1, 2_501).data(2_500),
    ]);
    for data in [flow.upload.data, flow.download.data] {
        assert_eq!((data.data_segments, data.estimated_packets), (3, 1));
    }
}

/// More than fits into 32 bits, within a millisecond.
#[test]
fn more_segments_than_can_be_counted_do_no_harm() {
    let segments = (0..66_000u32).map(|i| c(MS, 1 + i, 1).data(1).segments(u16::MAX));
    let segments: Vec<_> = segments.collect();
    let said = run_with(&segments, [1, 2], &settings());
    let sent = 66_000 * u64::from(u16::MAX);
    assert_eq!(said.flows[0].upload.data.data_segments, sent);
    assert_eq!(said.series(0, true, 0)[0].1.data_segments, u32::MAX);
}

#[test]
fn without_a_handshake_jumbo_frames_are_the_largest() {
    let flow = run_one(&[c(0, 1, 1).data(8_948), c(1, 8_949, 1).data(14_600)]);
    let data = flow.upload.data;
    assert_eq!((data.data_segments, data.estimated_packets), (1 + 10, 1));
}

#[test]
fn what_is_acknowledged_and_never_seen_is_missed() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            c(2 * MS, 1, 1).data(1_000),
            c(2 * MS, 2_001, 1).data(1_000),
            s(3 * MS, 1, 3_001),
            s(4 * MS, 1, 5_001),
            c(5 * MS, 5_001, 1).data(1_000),
            c(5 * MS, 7_001, 1).data(1_000),
        ],
    ]));
    let data = flow.upload.data;
    assert_eq!((data.acked_unseen_bytes, data.unique_bytes), (3_000, 4_000));
    assert_eq!(flow.upload.acks.acked_bytes, 5_000);
    assert_eq!((data.reordered, data.other_retransmissions), (0, 0));
}

#[test]
fn a_fin_that_was_never_seen_is_no_byte() {
    let closed = |last: u32| {
        let flow = run_one(&script(&[
            &handshake(MS),
            &[
                c(2 * MS, 1, 1).data(100),
                s(3 * MS, 1, last).fin(),
                c(4 * MS, last, 2),
            ],
        ]));
        flow.upload.data.acked_unseen_bytes
    };
    assert_eq!([101, 102, 103].map(closed), [0, 0, 2]);
}

#[test]
fn an_ack_captured_before_its_data_is_no_miss() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            c(2 * MS, 1, 1).data(1_000),
            s(3 * MS, 1, 2_001),
            c(3 * MS + 1, 1_001, 1).data(1_000),
        ],
    ]));
    let data = flow.upload.data;
    assert_eq!((data.acked_unseen_bytes, data.unique_bytes), (0, 2_000));
    assert_eq!((data.reordered, data.spurious_retransmissions), (1, 0));
}

#[test]
fn a_last_byte_that_comes_behind_its_ack_is_no_keep_alive() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            c(2 * MS, 1, 1).data(100),
            s(3 * MS, 1, 102),
            c(3 * MS + 1, 101, 1).data(1),
            c(3_000 * MS, 101, 1).data(1),
        ],
    ]));
    let data = flow.upload.data;
    assert_eq!((data.probes, data.unique_bytes), (1, 101));
    assert_eq!((data.reordered, data.retransmissions), (1, 0));
}

#[test]
fn keep_alives_are_no_retransmissions() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            c(2 * MS, 1, 1).data(100),
            s(3 * MS, 1, 101),
            c(7_000 * MS, 100, 1),
            s(7_001 * MS, 1, 101),
            c(14_000 * MS, 100, 1).data(1),
            s(14_001 * MS, 1, 101),
        ],
    ]));
    let data = flow.upload.data;
    assert_eq!(
        (data.probes, data.unique_bytes, data.retransmitted_bytes),
        (2, 100, 0)
    );
    assert_eq!(flow.upload.acks.duplicates, 0);
}

#[test]
fn bytes_sent_into_a_closed_window_are_probes() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            c(2 * MS, 1, 1).data(1_000),
            s(3 * MS, 1, 1_001).window(0),
            c(300 * MS, 1_001, 1).data(1),
            s(301 * MS, 1, 1_001).window(0),
            c(900 * MS, 1_001, 1).data(1),
            s(901 * MS, 1, 1_001).window(0),
            s(950 * MS, 1, 1_001).window(10),
            c(951 * MS, 1_001, 1).data(1_000),
            s(952 * MS, 1, 2_001),
        ],
    ]));
    let data = flow.upload.data;
    assert_eq!(
        (data.probes, data.unique_bytes, data.payload_bytes),
        (2, 2_000, 2_002)
    );
    assert_eq!(
        (data.retransmitted_bytes, data.timeout_retransmissions),
        (0, 0)
    );
    assert_eq!(flow.upload.acks.zero_windows, 3);
    assert_eq!(flow.upload.acks.acked_bytes, 2_000);
}

#[test]
fn a_fin_with_the_number_of_a_probe_is_no_trouble() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            c(2 * MS, 1, 1).data(1_000),
            s(3 * MS, 1, 1_001).window(0),
            c(300 * MS, 1_001, 1).data(1),
            c(400 * MS, 1_001, 1).fin(),
        ],
    ]));
    assert_eq!(
        (flow.upload.data.probes, flow.upload.data.unique_bytes),
        (1, 1_001)
    );
}

#[test]
fn pauses_end_bursts() {
    let mut segments = handshake(MS);
    for burst in 0..3u32 {
        for i in 0..4u32 {
            let at = 2 * MS + u64::from(burst) * MS + u64::from(i) * 10 * US;
            segments.push(c(at, 1 + (burst * 4 + i) * 1_000, 1).data(1_000));
        }
    }
    let upload = run_one(&segments).upload;
    assert_eq!(upload.bursts.buckets, [(4, 3)]);
    assert_eq!(upload.gaps.count, 11);
}

#[test]
fn both_ends_may_send() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            c(2 * MS, 1, 1).data(100),
            s(3 * MS, 1, 101).data(1_000),
            s(3 * MS, 1_001, 101).data(700),
            c(4 * MS, 101, 1_701).data(50),
            s(5 * MS, 1_701, 151),
        ],
    ]));
    assert_eq!(flow.upload.data.unique_bytes, 150);
    assert_eq!(flow.download.data.unique_bytes, 1_700);
    assert_eq!(flow.upload.acks.acked_bytes, 150);
    assert_eq!(flow.download.acks.acked_bytes, 1_700);
    // ACKs with data move, but are not pure.
    assert_eq!(
        (flow.download.acks.pure, flow.download.acks.advancing),
        (1, 1)
    );
    assert_eq!((flow.upload.acks.pure, flow.upload.acks.advancing), (1, 2));
}

#[test]
fn what_the_emulator_says_is_kept() {
    let said = run(&script(&[
        &handshake(MS),
        &[
            c(2 * MS, 1, 1).data(1_000).truth(5_000, Verdict::Passed),
            c(2 * MS, 1_001, 1)
                .data(1_000)
                .truth(9_000, Verdict::Dropped),
            c(2 * MS, 2_001, 1).data(1_000).truth(8_000, Verdict::Lost),
            s(3 * MS, 1, 1_001).truth(70, Verdict::AckFiltered),
        ],
    ]));
    let upload = said.series(0, true, 0);
    let bin = upload.iter().find(|(at, _)| *at == 2 * MS).unwrap().1;
    assert_eq!((bin.queue_max, bin.drops, bin.data_segments), (9_000, 2, 3));
    let download = said.series(0, false, 1);
    assert_eq!((download[0].1.queue_max, download[0].1.drops), (70, 0));
}

#[test]
fn a_full_window_is_seen() {
    let said = run(&script(&[
        &handshake(MS),
        &[
            s(MS, 1, 1).window(16),
            c(2 * MS, 1, 1).data(1_000),
            c(2 * MS, 1_001, 1).data(1_000),
        ],
    ]));
    // 2,048 bytes: two segments fit, a third would not.
    assert_eq!(said.series(0, true, 1)[0].1.window_full, 1);
    assert_eq!(said.flows[0].upload.acks.window_max_bytes, 16 * 128);
}
