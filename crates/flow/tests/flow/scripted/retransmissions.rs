// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of retransmissions, their causes, and their distinction from reordering.

use crate::scripted::script::{MS, ScriptSegment, US, client, handshake, run_one, script, server};
use longhaul_flow::record::Data;

/// Returns a handshake of 100 ms and six segments of 1,000 bytes, the first at 200 ms, a microsecond apart.
fn sent() -> Vec<ScriptSegment> {
    let data =
        (0..6u32).map(|i| client(200 * MS + u64::from(i) * US, 1 + i * 1_000, 1).data(1_000));
    handshake(100 * MS).into_iter().chain(data).collect()
}

fn upload(parts: &[&[ScriptSegment]]) -> Data {
    run_one(&script(parts)).upload.data
}

/// Returns the counts of fast, timeout, spurious and other retransmissions.
fn causes(data: &Data) -> [u64; 4] {
    [
        data.fast_retransmissions,
        data.timeout_retransmissions,
        data.spurious_retransmissions,
        data.other_retransmissions,
    ]
}

#[test]
fn three_duplicates_mean_fast_retransmission() {
    let mut segments = sent();
    segments.extend((0..4).map(|i| server(300 * MS + i * US, 1, 1_001)));
    segments.extend([
        client(301 * MS, 1_001, 1).data(1_000),
        server(401 * MS, 1, 6_001),
    ]);
    let data = upload(&[&segments]);
    assert_eq!(causes(&data), [1, 0, 0, 0]);
    assert_eq!(
        (
            data.retransmitted_bytes,
            data.unique_bytes,
            data.payload_bytes
        ),
        (1_000, 6_000, 7_000)
    );
    assert_eq!((data.unseen_retransmissions, data.reordered), (0, 0));
}

#[test]
fn two_duplicates_do_not_mean_fast_retransmission() {
    let mut segments = sent();
    segments.extend((0..3).map(|i| server(300 * MS + i * US, 1, 1_001)));
    segments.push(client(301 * MS, 1_001, 1).data(1_000));
    assert_eq!(causes(&upload(&[&segments])), [0, 0, 0, 1]);
}

/// Such duplicates answer packets that arrived twice: they show no gap (RFC 6675 §2).
#[test]
fn ignores_duplicates_with_dsack() {
    let mut segments = sent();
    segments.push(server(300 * MS, 1, 1_001));
    segments.extend((1..4).map(|i| server(300 * MS + i * US, 1, 1_001).sack(&[(1, 1_001)])));
    segments.push(client(301 * MS, 1_001, 1).data(1_000));
    let upload = run_one(&segments).upload;
    assert_eq!(causes(&upload.data), [0, 0, 0, 1]);
    assert_eq!((upload.acks.duplicates, upload.acks.dsacks), (3, 3));
}

#[test]
fn sack_above_means_fast_for_all_gaps() {
    let data = upload(&[
        &sent(),
        &[
            server(300 * MS, 1, 1).sack(&[(3_001, 4_001)]),
            server(300 * MS, 1, 1).sack(&[(5_001, 6_001), (3_001, 4_001)]),
            client(301 * MS, 1, 1).data(1_000),
            client(301 * MS, 1_001, 1).data(1_000),
            server(400 * MS, 1, 2_001).sack(&[(5_001, 6_001), (3_001, 4_001)]),
            client(401 * MS, 2_001, 1).data(1_000),
            client(401 * MS, 4_001, 1).data(1_000),
        ],
    ]);
    assert_eq!(causes(&data), [4, 0, 0, 0]);
}

#[test]
fn retransmission_of_sacked_data_is_spurious() {
    let data = upload(&[
        &sent(),
        &[
            server(300 * MS, 1, 1).sack(&[(3_001, 5_001)]),
            client(301 * MS, 3_001, 1).data(1_000),
        ],
    ]);
    assert_eq!(causes(&data), [0, 0, 1, 0]);
}

#[test]
fn retransmission_of_acked_data_is_spurious() {
    let data = upload(&[
        &sent(),
        &[
            server(300 * MS, 1, 2_001),
            client(301 * MS, 1_001, 1).data(1_000),
        ],
    ]);
    assert_eq!(causes(&data), [0, 0, 1, 0]);
}

#[test]
fn go_back_n_after_silence_is_time_out() {
    let data = upload(&[
        &sent(),
        &[
            client(700 * MS, 1, 1).data(1_000),
            server(800 * MS, 1, 1_001),
            client(800 * MS, 1_001, 1).data(1_000),
            client(800 * MS, 2_001, 1).data(1_000),
        ],
    ]);
    assert_eq!(causes(&data), [0, 3, 0, 0]);
}

#[test]
fn tail_loss_probe_is_other() {
    // Two round trips after the last segment.
    let data = upload(&[&sent(), &[client(350 * MS, 5_001, 1).data(1_000)]]);
    assert_eq!(causes(&data), [0, 0, 0, 1]);
}

#[test]
fn counts_retransmission_with_new_data() {
    let data = upload(&[
        &sent(),
        &[
            client(700 * MS, 5_001, 1).data(1_500),
            server(800 * MS, 1, 6_501),
        ],
    ]);
    assert_eq!(
        (data.unique_bytes, data.retransmitted_bytes),
        (6_500, 1_000)
    );
    assert_eq!((causes(&data), data.acked_unseen_bytes), ([0, 1, 0, 0], 0));
}

#[test]
fn counts_retransmitted_fin() {
    let data = upload(&[
        &sent(),
        &[
            client(201 * MS, 6_001, 1).fin(),
            client(700 * MS, 6_001, 1).fin(),
            server(800 * MS, 1, 6_002),
        ],
    ]);
    assert_eq!(causes(&data), [0, 1, 0, 0]);
    assert_eq!((data.retransmitted_bytes, data.acked_unseen_bytes), (0, 0));
}

#[test]
fn early_fin_retransmission_is_other() {
    let fin = |at_ms: u64| client(at_ms * MS, 6_001, 1).fin();
    assert_eq!(
        causes(&upload(&[&sent(), &[fin(5_000), fin(5_050)]])),
        [0, 0, 0, 1]
    );
    assert_eq!(
        causes(&upload(&[&sent(), &[fin(5_000), fin(5_500)]])),
        [0, 1, 0, 0]
    );
}

/// Of 100 bytes with a FIN, the capture point had seen only the FIN.
#[test]
fn excludes_seen_fin_from_retransmitted_bytes() {
    let data = upload(&[
        &handshake(100 * MS),
        &[
            client(200 * MS, 101, 1).fin(),
            client(700 * MS, 1, 1).data(100).fin(),
            server(800 * MS, 1, 102),
        ],
    ]);
    assert_eq!((data.unique_bytes, data.acked_unseen_bytes), (100, 0));
    assert_eq!((data.retransmissions, data.retransmitted_bytes), (1, 100));
    assert_eq!(
        (data.unseen_retransmissions, data.unseen_retransmitted_bytes),
        (1, 100)
    );
}

/// Returns six segments of which the second comes last, `late_ns` after its successor.
fn with_second_last(late_ns: u64, stamps: Option<[u32; 2]>) -> Vec<ScriptSegment> {
    let mut segments = sent();
    let second = segments.remove(4);
    let after = segments.len() - 4;
    if let Some([old, newer]) = stamps {
        segments[after..]
            .iter_mut()
            .for_each(|seg| *seg = seg.stamps(newer, 0));
        segments.push(second.stamps(old, 0));
    } else {
        segments.push(second);
    }
    segments.last_mut().unwrap().segment.at_ns = segments[after].segment.at_ns + late_ns;
    segments
}

#[test]
fn late_within_half_round_trip_is_reordered() {
    let data = upload(&[&with_second_last(50 * MS - 1, None)]);
    assert_eq!((data.reordered, causes(&data)), (1, [0; 4]));
    assert_eq!((data.unique_bytes, data.retransmitted_bytes), (6_000, 0));
}

#[test]
fn packet_late_by_half_round_trip_is_retransmission() {
    let data = upload(&[&with_second_last(50 * MS, None)]);
    assert_eq!((data.reordered, causes(&data)), (0, [0, 0, 0, 1]));
    assert_eq!(
        (data.unseen_retransmissions, data.unseen_retransmitted_bytes),
        (1, 1_000)
    );
    assert_eq!(
        (data.unique_bytes, data.retransmitted_bytes),
        (6_000, 1_000)
    );
}

/// The capture point is beside the receiver, and the round trip to the sender is unknown.
#[test]
fn assumes_three_milliseconds_for_partial_round_trip() {
    let late_after = |us: u64| {
        let numbers = [1, 1_001, 3_001, 2_001];
        let times = [0, 1_000, 2_000, 2_000 + us];
        let data = (numbers.into_iter().zip(times)).flat_map(|(seq, at)| {
            [
                client(at * US, seq, 1).data(1_000),
                server((at + 100) * US, 1, seq + 1_000),
            ]
        });
        let data = upload(&[&data.collect::<Vec<_>>()]);
        (data.reordered, data.unseen_retransmissions)
    };
    assert_eq!(
        [1_000, 2_999, 3_000].map(late_after),
        [(1, 0), (1, 0), (0, 1)]
    );
}

#[test]
fn older_time_stamp_means_reordering() {
    let data = upload(&[&with_second_last(90 * MS, Some([7, 8]))]);
    assert_eq!((data.reordered, causes(&data)), (1, [0; 4]));
}

#[test]
fn newer_time_stamp_means_retransmission() {
    let data = upload(&[&with_second_last(MS, Some([9, 8]))]);
    assert_eq!((data.reordered, data.unseen_retransmissions), (0, 1));
}

#[test]
fn counts_gaps_removed_at_bound() {
    use crate::scripted::script::{run_with, settings};
    let mut segments = handshake(MS);
    segments.extend((0..10u32).map(|i| client(2 * MS, 1 + i * 2_000, 1).data(1_000)));
    segments.push(server(3 * MS, 1, 19_001));
    let small_bound = longhaul_flow::Settings {
        ranges_max: 3,
        ..settings()
    };
    let results = run_with(&segments, [5, 6], &small_bound);
    // Six of nine gaps were removed before any ACK.
    assert_eq!(results.flows[0].upload.data.acked_unseen_bytes, 3_000);
    let results = run_with(&segments, [5, 6], &settings());
    assert_eq!(results.flows[0].upload.data.acked_unseen_bytes, 9_000);
}

/// The last packet is lost before the capture point; an ACK of its sender has the next number.
#[test]
fn ack_sequence_number_reveals_lost_tail() {
    let data = upload(&[
        &sent(),
        &[
            client(210 * MS, 7_001, 2).stamps(5, 0),
            client(500 * MS, 6_001, 2).data(1_000).stamps(9, 0),
            server(600 * MS, 2, 7_001),
        ],
    ]);
    assert_eq!((data.unseen_retransmissions, data.reordered), (1, 0));
    assert_eq!((data.unique_bytes, data.acked_unseen_bytes), (7_000, 0));
}

#[test]
fn unseen_tail_counts_as_acked_unseen() {
    let data = upload(&[
        &sent(),
        &[client(210 * MS, 7_001, 2), server(600 * MS, 2, 7_001)],
    ]);
    assert_eq!((data.unique_bytes, data.acked_unseen_bytes), (6_000, 1_000));
}

#[test]
fn ack_with_implausible_number_opens_no_gap() {
    let data = upload(&[
        &sent(),
        &[
            client(210 * MS, 6_001 + (1 << 30) + 1, 2),
            client(220 * MS, 6_001, 2).data(1_000),
            server(600 * MS, 2, 7_001),
        ],
    ]);
    assert_eq!((data.unique_bytes, causes(&data)), (7_000, [0; 4]));
}
