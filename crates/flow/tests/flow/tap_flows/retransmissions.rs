// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was sent again, why, and what only came late.

use crate::tap_flows::script::{MS, Seg, US, c, handshake, run_one, s, script};
use longhaul_flow::record::Data;

/// A handshake of 100 ms and six segments of 1,000 bytes, the first at 200 ms, a microsecond apart.
fn sent() -> Vec<Seg> {
    let data = (0..6u32).map(|i| c(200 * MS + u64::from(i) * US, 1 + i * 1_000, 1).data(1_000));
    handshake(100 * MS).into_iter().chain(data).collect()
}

fn upload(parts: &[&[Seg]]) -> Data {
    run_one(&script(parts)).upload.data
}

/// Fast, time-out, spurious, other.
fn causes(data: &Data) -> [u64; 4] {
    [
        data.fast_retransmissions,
        data.timeout_retransmissions,
        data.spurious_retransmissions,
        data.other_retransmissions,
    ]
}

#[test]
fn three_duplicates_make_a_fast_retransmission() {
    let mut segments = sent();
    segments.extend((0..4).map(|i| s(300 * MS + i * US, 1, 1_001)));
    segments.extend([c(301 * MS, 1_001, 1).data(1_000), s(401 * MS, 1, 6_001)]);
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
fn two_duplicates_do_not() {
    let mut segments = sent();
    segments.extend((0..3).map(|i| s(300 * MS + i * US, 1, 1_001)));
    segments.push(c(301 * MS, 1_001, 1).data(1_000));
    assert_eq!(causes(&upload(&[&segments])), [0, 0, 0, 1]);
}

/// They answer what came twice: no hole is behind them (RFC 6675 §2).
#[test]
fn duplicates_with_dsack_make_nothing_fast() {
    let mut segments = sent();
    segments.push(s(300 * MS, 1, 1_001));
    segments.extend((1..4).map(|i| s(300 * MS + i * US, 1, 1_001).sack(&[(1, 1_001)])));
    segments.push(c(301 * MS, 1_001, 1).data(1_000));
    let upload = run_one(&segments).upload;
    assert_eq!(causes(&upload.data), [0, 0, 0, 1]);
    assert_eq!((upload.acks.duplicates, upload.acks.dsacks), (3, 3));
}

#[test]
fn sack_above_makes_all_holes_fast() {
    let data = upload(&[
        &sent(),
        &[
            s(300 * MS, 1, 1).sack(&[(3_001, 4_001)]),
            s(300 * MS, 1, 1).sack(&[(5_001, 6_001), (3_001, 4_001)]),
            c(301 * MS, 1, 1).data(1_000),
            c(301 * MS, 1_001, 1).data(1_000),
            s(400 * MS, 1, 2_001).sack(&[(5_001, 6_001), (3_001, 4_001)]),
            c(401 * MS, 2_001, 1).data(1_000),
            c(401 * MS, 4_001, 1).data(1_000),
        ],
    ]);
    assert_eq!(causes(&data), [4, 0, 0, 0]);
}

#[test]
fn what_was_sacked_is_sent_again_for_nothing() {
    let data = upload(&[
        &sent(),
        &[
            s(300 * MS, 1, 1).sack(&[(3_001, 5_001)]),
            c(301 * MS, 3_001, 1).data(1_000),
        ],
    ]);
    assert_eq!(causes(&data), [0, 0, 1, 0]);
}

#[test]
fn what_was_acknowledged_is_sent_again_for_nothing() {
    let data = upload(&[
        &sent(),
        &[s(300 * MS, 1, 2_001), c(301 * MS, 1_001, 1).data(1_000)],
    ]);
    assert_eq!(causes(&data), [0, 0, 1, 0]);
}

#[test]
fn after_a_silence_everything_goes_back() {
    let data = upload(&[
        &sent(),
        &[
            c(700 * MS, 1, 1).data(1_000),
            s(800 * MS, 1, 1_001),
            c(800 * MS, 1_001, 1).data(1_000),
            c(800 * MS, 2_001, 1).data(1_000),
        ],
    ]);
    assert_eq!(causes(&data), [0, 3, 0, 0]);
}

#[test]
fn a_tail_loss_probe_is_other() {
    // Two round trips after the last.
    let data = upload(&[&sent(), &[c(350 * MS, 5_001, 1).data(1_000)]]);
    assert_eq!(causes(&data), [0, 0, 0, 1]);
}

#[test]
fn a_retransmission_with_new_data_counts_both() {
    let data = upload(&[
        &sent(),
        &[c(700 * MS, 5_001, 1).data(1_500), s(800 * MS, 1, 6_501)],
    ]);
    assert_eq!(
        (data.unique_bytes, data.retransmitted_bytes),
        (6_500, 1_000)
    );
    assert_eq!((causes(&data), data.acked_unseen_bytes), ([0, 1, 0, 0], 0));
}

#[test]
fn a_fin_may_be_sent_again() {
    let data = upload(&[
        &sent(),
        &[
            c(201 * MS, 6_001, 1).fin(),
            c(700 * MS, 6_001, 1).fin(),
            s(800 * MS, 1, 6_002),
        ],
    ]);
    assert_eq!(causes(&data), [0, 1, 0, 0]);
    assert_eq!((data.retransmitted_bytes, data.acked_unseen_bytes), (0, 0));
}

#[test]
fn a_fin_sent_again_soon_is_no_time_out() {
    let fin = |at_ms: u64| c(at_ms * MS, 6_001, 1).fin();
    assert_eq!(
        causes(&upload(&[&sent(), &[fin(5_000), fin(5_050)]])),
        [0, 0, 0, 1]
    );
    assert_eq!(
        causes(&upload(&[&sent(), &[fin(5_000), fin(5_500)]])),
        [0, 1, 0, 0]
    );
}

/// Of 100 bytes with a FIN, the tap had seen the FIN.
#[test]
fn a_fin_is_no_byte_that_was_seen_before() {
    let data = upload(&[
        &handshake(100 * MS),
        &[
            c(200 * MS, 101, 1).fin(),
            c(700 * MS, 1, 1).data(100).fin(),
            s(800 * MS, 1, 102),
        ],
    ]);
    assert_eq!((data.unique_bytes, data.acked_unseen_bytes), (100, 0));
    assert_eq!((data.retransmissions, data.retransmitted_bytes), (1, 100));
    assert_eq!(
        (data.unseen_retransmissions, data.unseen_retransmitted_bytes),
        (1, 100)
    );
}

/// Six segments of which the second comes last, `late_ns` after its successor.
fn second_comes_last(late_ns: u64, stamps: Option<[u32; 2]>) -> Vec<Seg> {
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
fn overtaken_within_half_a_round_trip_is_reordered() {
    let data = upload(&[&second_comes_last(50 * MS - 1, None)]);
    assert_eq!((data.reordered, causes(&data)), (1, [0; 4]));
    assert_eq!((data.unique_bytes, data.retransmitted_bytes), (6_000, 0));
}

#[test]
fn later_it_was_lost_before_the_tap_and_sent_again() {
    let data = upload(&[&second_comes_last(50 * MS, None)]);
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

/// The tap is beside the receiver, and nothing shows how far away the sender is.
#[test]
fn half_a_round_trip_is_three_milliseconds_at_least_if_only_a_part_is_known() {
    let late_after = |us: u64| {
        let numbers = [1, 1_001, 3_001, 2_001];
        let times = [0, 1_000, 2_000, 2_000 + us];
        let data = (numbers.into_iter().zip(times)).flat_map(|(seq, at)| {
            [
                c(at * US, seq, 1).data(1_000),
                s((at + 100) * US, 1, seq + 1_000),
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
fn an_older_time_stamp_tells_what_was_overtaken() {
    let data = upload(&[&second_comes_last(90 * MS, Some([7, 8]))]);
    assert_eq!((data.reordered, causes(&data)), (1, [0; 4]));
}

#[test]
fn a_newer_time_stamp_tells_what_was_sent_again() {
    let data = upload(&[&second_comes_last(MS, Some([9, 8]))]);
    assert_eq!((data.reordered, data.unseen_retransmissions), (0, 1));
}

#[test]
fn holes_beyond_the_bound_are_forgotten_but_counted() {
    use crate::tap_flows::script::{run_with, settings};
    let mut segments = handshake(MS);
    segments.extend((0..10u32).map(|i| c(2 * MS, 1 + i * 2_000, 1).data(1_000)));
    segments.push(s(3 * MS, 1, 19_001));
    let bounds = longhaul_flow::Settings {
        ranges_max: 3,
        ..settings()
    };
    let said = run_with(&segments, [5, 6], &bounds);
    // Six of nine holes had been forgotten before anything was acknowledged.
    assert_eq!(said.flows[0].upload.data.acked_unseen_bytes, 3_000);
    let said = run_with(&segments, [5, 6], &settings());
    assert_eq!(said.flows[0].upload.data.acked_unseen_bytes, 9_000);
}

/// The last packet is lost before the tap; an ACK of the same sender has the number behind it.
#[test]
fn the_number_of_an_ack_tells_of_a_lost_tail() {
    let data = upload(&[
        &sent(),
        &[
            c(210 * MS, 7_001, 2).stamps(5, 0),
            c(500 * MS, 6_001, 2).data(1_000).stamps(9, 0),
            s(600 * MS, 2, 7_001),
        ],
    ]);
    assert_eq!((data.unseen_retransmissions, data.reordered), (1, 0));
    assert_eq!((data.unique_bytes, data.acked_unseen_bytes), (7_000, 0));
}

#[test]
fn what_only_the_number_of_an_ack_tells_of_may_stay_away() {
    let data = upload(&[&sent(), &[c(210 * MS, 7_001, 2), s(600 * MS, 2, 7_001)]]);
    assert_eq!((data.unique_bytes, data.acked_unseen_bytes), (6_000, 1_000));
}

#[test]
fn an_ack_with_an_absurd_number_passes_nothing_over() {
    let data = upload(&[
        &sent(),
        &[
            c(210 * MS, 6_001 + (1 << 30) + 1, 2),
            c(220 * MS, 6_001, 2).data(1_000),
            s(600 * MS, 2, 7_001),
        ],
    ]);
    assert_eq!((data.unique_bytes, causes(&data)), (7_000, [0; 4]));
}
