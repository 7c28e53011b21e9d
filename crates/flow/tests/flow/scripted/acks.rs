// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the ACK stream: AckDiff, duplicates, windows, SACK.

use crate::scripted::script::{MS, ScriptSegment, client, handshake, run, run_one, script, server};

fn sent(segments: u32) -> Vec<ScriptSegment> {
    let data = (0..segments).map(|i| client(2 * MS, 1 + i * 1_000, 1).data(1_000));
    handshake(MS).into_iter().chain(data).collect()
}

#[test]
fn ack_diff_counts_newly_acknowledged_bytes() {
    let results = run(&script(&[
        &sent(9),
        &[
            server(3 * MS, 1, 2_001),
            server(4 * MS, 1, 2_001),
            server(5 * MS, 1, 8_001),
            server(6 * MS, 1, 9_001),
        ],
    ]));
    let upload = &results.flows[0].upload;
    assert_eq!(
        (
            upload.acks.pure,
            upload.acks.advancing,
            upload.acks.acked_bytes
        ),
        (4, 3, 9_000)
    );
    let d = &upload.ack_diff;
    assert_eq!((d.count, d.min, d.max), (3, 1_000, 6_000));
    assert!((d.mean - 3_000.0).abs() < 1e-9);
    assert_eq!(upload.packets_per_ack.buckets, [(1, 1), (2, 1), (6, 1)]);
    let series = results.series(0, true, 0);
    let of = |ms| series.iter().find(|(at, _)| *at == ms * MS).unwrap().1;
    assert_eq!(
        (of(5).acked_bytes, of(5).ack_diff_max, of(5).acks),
        (6_000, 6_000, 1)
    );
    assert_eq!(
        (of(4).acked_bytes, of(4).duplicate_acks, of(4).in_flight_max),
        (0, 1, 7_000)
    );
}

#[test]
fn excludes_syn_and_fin_from_bytes() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            client(2 * MS, 1, 1).data(500).fin(),
            server(3 * MS, 1, 502),
            server(3 * MS, 1, 502).fin(),
            client(3 * MS, 502, 2),
        ],
    ]));
    assert_eq!(
        (flow.upload.acks.acked_bytes, flow.upload.acks.advancing),
        (500, 1)
    );
    assert_eq!(
        (flow.download.acks.acked_bytes, flow.download.acks.advancing),
        (0, 0)
    );
    assert_eq!(flow.upload.in_flight_max_bytes, 500);
}

#[test]
fn counts_duplicates_by_rfc5681() {
    let flow = run_one(&script(&[
        &sent(3),
        &[
            server(3 * MS, 1, 1_001),
            server(4 * MS, 1, 1_001),
            server(5 * MS, 1, 1_001).window(999),
            server(6 * MS, 1, 1_001).window(999).data(10),
            server(7 * MS, 11, 1_001).window(999),
            server(8 * MS, 11, 3_001).window(999),
            // All data is acknowledged by now.
            server(9 * MS, 11, 3_001).window(999),
        ],
    ]));
    let acks = flow.upload.acks;
    assert_eq!((acks.duplicates, acks.window_updates), (2, 1));
    assert_eq!((acks.pure, acks.advancing, acks.out_of_order), (6, 2, 0));
}

#[test]
fn counts_acks_out_of_order() {
    let flow = run_one(&script(&[
        &sent(3),
        &[
            server(3 * MS, 1, 2_001),
            server(3 * MS, 1, 1_001),
            server(4 * MS, 1, 3_001),
        ],
    ]));
    let acks = flow.upload.acks;
    assert_eq!(
        (
            acks.out_of_order,
            acks.duplicates,
            acks.advancing,
            acks.acked_bytes
        ),
        (1, 0, 2, 3_000)
    );
}

#[test]
fn scales_windows_by_handshake() {
    let results = run(&script(&[
        &sent(1),
        &[
            server(3 * MS, 1, 1_001).window(50),
            server(4 * MS, 1, 1_001).window(0),
        ],
    ]));
    let acks = results.flows[0].upload.acks;
    assert_eq!(acks.window_scale, Some(7));
    assert_eq!(
        (acks.window_min_bytes, acks.window_max_bytes),
        (0, 50 * 128)
    );
    assert_eq!((acks.zero_windows, acks.window_updates), (1, 1));
    let series = results.series(0, true, 0);
    let of = |ms| {
        series
            .iter()
            .find(|(at, _)| *at == ms * MS)
            .unwrap()
            .1
            .window_min
    };
    assert_eq!((of(2), of(3), of(4)), (None, Some(6_400), Some(0)));
}

#[test]
fn scales_windows_only_if_both_ends_offer() {
    let flow = run_one(&[
        client(0, 0, 0).syn(1_000, 7).without_ack(),
        server(MS, 0, 1).syn(1_000, 0xff),
        client(MS, 1, 1).data(10),
        server(2 * MS, 1, 11),
    ]);
    assert_eq!(flow.upload.acks.window_scale, Some(0));
    assert_eq!(flow.upload.acks.window_max_bytes, 1_000);
    assert_eq!(flow.download.acks.window_scale, Some(0));
}

#[test]
fn scale_is_unknown_without_handshake() {
    let flow = run_one(&[client(0, 1, 1).data(1_000), server(MS, 1, 1_001)]);
    assert_eq!(flow.upload.acks.window_scale, None);
    assert_eq!(flow.upload.acks.window_max_bytes, 1_000);
}

#[test]
fn ignores_first_ack_of_partial_capture() {
    let flow = run_one(&[
        client(0, 50_000, 1).data(1_000),
        server(MS, 1, 51_000),
        client(2 * MS, 51_000, 1).data(1_000),
        server(3 * MS, 1, 52_000),
    ]);
    let acks = flow.upload.acks;
    assert_eq!((acks.advancing, acks.acked_bytes), (1, 1_000));
    assert_eq!(
        (
            flow.upload.data.unique_bytes,
            flow.upload.data.acked_unseen_bytes
        ),
        (2_000, 0)
    );
    assert_eq!(flow.upload.rtt_by_acks.count, 2);
}

#[test]
fn analyses_acks_without_data() {
    let flow = run_one(&[
        server(0, 1, 1_000),
        server(MS, 1, 3_000),
        server(2 * MS, 1, 3_000),
        server(3 * MS, 1, 6_000),
    ]);
    // All packets come from the server, which has the lower port.
    assert_eq!(flow.server.port, 80);
    let direction = &flow.upload;
    assert_eq!(direction.acks.acked_bytes, 5_000);
    assert_eq!(
        (
            direction.acks.pure,
            direction.acks.advancing,
            direction.acks.duplicates
        ),
        (4, 2, 1)
    );
    assert_eq!(
        (direction.data.acked_unseen_bytes, direction.data.packets),
        (0, 0)
    );
    assert_eq!(
        (direction.in_flight_max_bytes, direction.rtt_by_acks.count),
        (0, 0)
    );
}

#[test]
fn nothing_is_in_flight_without_acks() {
    let flow = run_one(&[
        client(0, 1, 1).data(1_000),
        client(MS, 1_001, 1).data(1_000),
        client(2 * MS, 1, 1).data(1_000),
    ]);
    assert_eq!(flow.upload.data.unique_bytes, 2_000);
    assert_eq!(flow.upload.data.other_retransmissions, 1);
    assert_eq!(flow.upload.in_flight_max_bytes, 0);
    assert_eq!(flow.upload.acks.advancing, 0);
}

#[test]
fn sacked_bytes_are_not_in_flight() {
    let results = run(&script(&[
        &sent(4),
        &[
            server(3 * MS, 1, 1).sack(&[(1_001, 3_001)]),
            client(4 * MS, 4_001, 1).data(1_000),
            server(5 * MS, 1, 1).sack(&[(4_001, 5_001), (1_001, 3_001)]),
        ],
    ]));
    let upload = &results.flows[0].upload;
    let acks = upload.acks;
    assert_eq!((acks.with_sack, acks.sack_blocks, acks.dsacks), (2, 3, 0));
    assert_eq!(upload.in_flight_max_bytes, 4_000);
    let series = results.series(0, true, 0);
    assert_eq!(
        series
            .iter()
            .find(|(at, _)| *at == 4 * MS)
            .unwrap()
            .1
            .in_flight_max,
        3_000
    );
}

#[test]
fn recognises_dsack_below_ack_or_in_second_block() {
    let flow = run_one(&script(&[
        &sent(6),
        &[
            server(3 * MS, 1, 2_001),
            server(4 * MS, 1, 2_001).sack(&[(1_001, 2_001)]),
            server(5 * MS, 1, 2_001).sack(&[(4_001, 5_001)]),
            server(6 * MS, 1, 2_001).sack(&[(4_001, 5_001), (4_001, 6_001)]),
        ],
    ]));
    let acks = flow.upload.acks;
    assert_eq!((acks.with_sack, acks.dsacks, acks.duplicates), (3, 2, 3));
}

#[test]
fn acked_data_beyond_seen_counts_as_unseen() {
    let flow = run_one(&script(&[
        &sent(2),
        &[
            server(3 * MS, 1, 1_001).sack(&[(3_001, 4_001)]),
            server(4 * MS, 1, 4_001),
        ],
    ]));
    assert_eq!(flow.upload.data.acked_unseen_bytes, 2_000);
}

#[test]
fn ignores_implausible_numbers() {
    let flow = run_one(&script(&[
        &sent(2),
        &[
            server(3 * MS, 1, 0x6000_0000),
            server(4 * MS, 1, 1_001).sack(&[(0x6000_0000, 0x6000_1000), (900, 100)]),
            server(5 * MS, 1, 2_001),
        ],
    ]));
    assert_eq!(flow.upload.acks.acked_bytes, 2_000);
    assert_eq!(flow.upload.data.acked_unseen_bytes, 0);
}

#[test]
fn accepts_fin_with_number_of_syn() {
    let flow = run_one(&[
        client(0, 0, 0).syn(1_000, 7).without_ack(),
        client(MS, 0, 1).fin(),
        server(2 * MS, 1, 1),
    ]);
    assert_eq!(flow.upload.acks.acked_bytes, 0);
}
