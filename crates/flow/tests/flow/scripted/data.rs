// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the data stream: counts, super-packets, bytes that the capture point misses, probes, gaps and bursts.

use crate::scripted::script::{
    MS, US, client, handshake, run, run_one, run_with, script, server, settings,
};
use longhaul_packet::capture::Verdict;

#[test]
fn counts_a_transfer() {
    let results = run(&script(&[
        &handshake(10 * MS),
        &[
            client(20 * MS, 1, 1).data(1_000),
            client(20 * MS + 10 * US, 1_001, 1).data(1_000),
            client(20 * MS + 30 * US, 2_001, 1).data(500),
            server(30 * MS, 1, 2_001),
            server(30 * MS + 40 * US, 1, 2_501),
        ],
    ]));
    let flow = &results.flows[0];
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
    assert_eq!(flow.upload.inter_packet_gaps.buckets.len(), 2);
    assert_eq!(
        (
            flow.upload.inter_packet_gaps.min,
            flow.upload.inter_packet_gaps.max
        ),
        (10 * US, 20 * US)
    );
    assert_eq!(flow.upload.bursts.max, 3);
    assert_eq!(flow.upload.in_flight_max_bytes, 2_500);
    assert_eq!(flow.download.data.packets, 3);
    assert_eq!(flow.download.data.payload_bytes, 0);
    let bin = results.series(0, true, 0)[1].1;
    assert_eq!(
        (bin.data_segments, bin.short_segments, bin.in_flight_max),
        (3, 1, 2_500)
    );
}

#[test]
fn counts_segments_of_super_packets() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            client(2 * MS, 1, 1).data(2_500).segments(3),
            client(3 * MS, 2_501, 1).data(1_000),
            server(4 * MS, 1, 3_501),
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
    assert_eq!(flow.upload.inter_packet_gaps.count, 1);
    assert_eq!(flow.upload.packets_per_ack.max, 4);
}

#[test]
fn estimates_segments_of_super_packets_from_mss() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            client(2 * MS, 1, 1).data(2_500),
            client(3 * MS, 2_501, 1).data(2_500).stamps(1, 0),
            client(3 * MS, 5_001, 1).data(1_000),
        ],
    ]));
    let data = flow.upload.data;
    // With timestamps a segment has 988 bytes of payload.
    assert_eq!((data.data_segments, data.estimated_packets), (3 + 3 + 1, 2));
    assert_eq!(data.segment_max_bytes, 1_000);
    assert_eq!(data.wire_bytes, 2 * 40 + 6_000 + 7 * 40);
}

/// An end sends no segments larger than its own MSS.
#[test]
fn uses_lesser_mss_of_both_ends() {
    let flow = run_one(&[
        client(0, 0, 0).syn(1_000, 7).without_ack(),
        server(MS, 0, 1).syn(8_960, 7),
        client(MS, 1, 1).data(2_500),
        server(2 * MS, 1, 2_501).data(2_500),
    ]);
    for data in [flow.upload.data, flow.download.data] {
        assert_eq!((data.data_segments, data.estimated_packets), (3, 1));
    }
}

/// More segments within a millisecond than 32 bits can count.
#[test]
fn saturates_segment_count() {
    let segments = (0..66_000u32).map(|i| client(MS, 1 + i, 1).data(1).segments(u16::MAX));
    let segments: Vec<_> = segments.collect();
    let results = run_with(&segments, [1, 2], &settings());
    let sent = 66_000 * u64::from(u16::MAX);
    assert_eq!(results.flows[0].upload.data.data_segments, sent);
    assert_eq!(results.series(0, true, 0)[0].1.data_segments, u32::MAX);
}

#[test]
fn assumes_jumbo_frames_without_handshake() {
    let flow = run_one(&[
        client(0, 1, 1).data(8_948),
        client(1, 8_949, 1).data(14_600),
    ]);
    let data = flow.upload.data;
    assert_eq!((data.data_segments, data.estimated_packets), (1 + 10, 1));
}

/// A capture that begins in the middle of a connection: no SYN has the size of a segment.
#[test]
fn longest_super_packet_shows_merged_ones_without_handshake() {
    let flow = run_one(&[
        client(0, 1, 1).data(4_380),
        client(1, 4_381, 1).data(14_600),
        client(2, 18_981, 1).data(4_380),
    ]);
    let data = flow.upload.data;
    assert_eq!(
        (data.data_segments, data.estimated_packets),
        (1 + 10 + 3, 2)
    );
    assert_eq!(data.segment_max_bytes, 1_460);
}

#[test]
fn counts_acked_unseen_bytes() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            client(2 * MS, 1, 1).data(1_000),
            client(2 * MS, 2_001, 1).data(1_000),
            server(3 * MS, 1, 3_001),
            server(4 * MS, 1, 5_001),
            client(5 * MS, 5_001, 1).data(1_000),
            client(5 * MS, 7_001, 1).data(1_000),
        ],
    ]));
    let data = flow.upload.data;
    assert_eq!((data.acked_unseen_bytes, data.unique_bytes), (3_000, 4_000));
    assert_eq!(flow.upload.acks.acked_bytes, 5_000);
    assert_eq!((data.reordered, data.other_retransmissions), (0, 0));
}

#[test]
fn excludes_unseen_fin_from_bytes() {
    let closed = |last: u32| {
        let flow = run_one(&script(&[
            &handshake(MS),
            &[
                client(2 * MS, 1, 1).data(100),
                server(3 * MS, 1, last).fin(),
                client(4 * MS, last, 2),
            ],
        ]));
        flow.upload.data.acked_unseen_bytes
    };
    assert_eq!([101, 102, 103].map(closed), [0, 0, 2]);
}

#[test]
fn accepts_ack_captured_before_its_data() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            client(2 * MS, 1, 1).data(1_000),
            server(3 * MS, 1, 2_001),
            client(3 * MS + 1, 1_001, 1).data(1_000),
        ],
    ]));
    let data = flow.upload.data;
    assert_eq!((data.acked_unseen_bytes, data.unique_bytes), (0, 2_000));
    assert_eq!((data.reordered, data.spurious_retransmissions), (1, 0));
}

#[test]
fn distinguishes_late_last_byte_from_keep_alive() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            client(2 * MS, 1, 1).data(100),
            server(3 * MS, 1, 102),
            client(3 * MS + 1, 101, 1).data(1),
            client(3_000 * MS, 101, 1).data(1),
        ],
    ]));
    let data = flow.upload.data;
    assert_eq!(
        (data.window_probes_and_keep_alives, data.unique_bytes),
        (1, 101)
    );
    assert_eq!((data.reordered, data.retransmissions), (1, 0));
}

#[test]
fn counts_keep_alives_as_probes() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            client(2 * MS, 1, 1).data(100),
            server(3 * MS, 1, 101),
            client(7_000 * MS, 100, 1),
            server(7_001 * MS, 1, 101),
            client(14_000 * MS, 100, 1).data(1),
            server(14_001 * MS, 1, 101),
        ],
    ]));
    let data = flow.upload.data;
    assert_eq!(
        (
            data.window_probes_and_keep_alives,
            data.unique_bytes,
            data.retransmitted_bytes
        ),
        (2, 100, 0)
    );
    assert_eq!(flow.upload.acks.duplicates, 0);
}

#[test]
fn counts_zero_window_probes() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            client(2 * MS, 1, 1).data(1_000),
            server(3 * MS, 1, 1_001).window(0),
            client(300 * MS, 1_001, 1).data(1),
            server(301 * MS, 1, 1_001).window(0),
            client(900 * MS, 1_001, 1).data(1),
            server(901 * MS, 1, 1_001).window(0),
            server(950 * MS, 1, 1_001).window(10),
            client(951 * MS, 1_001, 1).data(1_000),
            server(952 * MS, 1, 2_001),
        ],
    ]));
    let data = flow.upload.data;
    assert_eq!(
        (
            data.window_probes_and_keep_alives,
            data.unique_bytes,
            data.payload_bytes
        ),
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
fn accepts_fin_with_number_of_probe() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            client(2 * MS, 1, 1).data(1_000),
            server(3 * MS, 1, 1_001).window(0),
            client(300 * MS, 1_001, 1).data(1),
            client(400 * MS, 1_001, 1).fin(),
        ],
    ]));
    assert_eq!(
        (
            flow.upload.data.window_probes_and_keep_alives,
            flow.upload.data.unique_bytes
        ),
        (1, 1_001)
    );
}

#[test]
fn pause_ends_burst() {
    let mut segments = handshake(MS);
    for burst in 0..3u32 {
        for i in 0..4u32 {
            let at = 2 * MS + u64::from(burst) * MS + u64::from(i) * 10 * US;
            segments.push(client(at, 1 + (burst * 4 + i) * 1_000, 1).data(1_000));
        }
    }
    let upload = run_one(&segments).upload;
    assert_eq!(upload.bursts.buckets, [(4, 3)]);
    assert_eq!(upload.inter_packet_gaps.count, 11);
}

#[test]
fn counts_data_of_both_ends() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            client(2 * MS, 1, 1).data(100),
            server(3 * MS, 1, 101).data(1_000),
            server(3 * MS, 1_001, 101).data(700),
            client(4 * MS, 101, 1_701).data(50),
            server(5 * MS, 1_701, 151),
        ],
    ]));
    assert_eq!(flow.upload.data.unique_bytes, 150);
    assert_eq!(flow.download.data.unique_bytes, 1_700);
    assert_eq!(flow.upload.acks.acked_bytes, 150);
    assert_eq!(flow.download.acks.acked_bytes, 1_700);
    // ACKs with data advance, but are not pure.
    assert_eq!(
        (flow.download.acks.pure, flow.download.acks.advancing),
        (1, 1)
    );
    assert_eq!((flow.upload.acks.pure, flow.upload.acks.advancing), (1, 2));
}

#[test]
fn keeps_emulator_records() {
    let results = run(&script(&[
        &handshake(MS),
        &[
            client(2 * MS, 1, 1)
                .data(1_000)
                .emulator_record(5_000, Verdict::Passed),
            client(2 * MS, 1_001, 1)
                .data(1_000)
                .emulator_record(9_000, Verdict::Dropped),
            client(2 * MS, 2_001, 1)
                .data(1_000)
                .emulator_record(8_000, Verdict::Lost),
            server(3 * MS, 1, 1_001).emulator_record(70, Verdict::AckFiltered),
        ],
    ]));
    let upload = results.series(0, true, 0);
    let bin = upload.iter().find(|(at, _)| *at == 2 * MS).unwrap().1;
    assert_eq!((bin.queue_max, bin.drops, bin.data_segments), (9_000, 2, 3));
    let download = results.series(0, false, 1);
    assert_eq!((download[0].1.queue_max, download[0].1.drops), (70, 0));
}

#[test]
fn detects_full_window() {
    let results = run(&script(&[
        &handshake(MS),
        &[
            server(MS, 1, 1).window(16),
            client(2 * MS, 1, 1).data(1_000),
            client(2 * MS, 1_001, 1).data(1_000),
        ],
    ]));
    // 2,048 bytes: two segments fit, a third would not.
    assert_eq!(results.series(0, true, 1)[0].1.window_full, 1);
    assert_eq!(results.flows[0].upload.acks.window_max_bytes, 16 * 128);
}
