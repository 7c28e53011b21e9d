// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of capture gaps in which sequence numbers wrap, and of sequence numbers that do not belong to the flow.

use crate::scripted::script::{MS, ScriptSegment, client, handshake, run_one, script, server};
use longhaul_flow::record::Direction;

/// 2^30.
const GIB: u64 = 1 << 30;
const GIB_TENTH: u64 = GIB / 10;

/// Returns ten segments from sequence number `from` on, each acknowledged after a millisecond. TSvals are in
/// milliseconds.
fn ten_segments(at_ms: u64, from: u32) -> Vec<ScriptSegment> {
    let segment = |i: u32| {
        let (at_ms, seq) = (at_ms + 2 * u64::from(i), from.wrapping_add(i * 1_000));
        let data = client(at_ms * MS, seq, 1)
            .data(1_000)
            .stamps(at_ms as u32, 1);
        let ack = server((at_ms + 1) * MS, 1, seq.wrapping_add(1_000)).stamps(1, at_ms as u32);
        [data, ack]
    };
    (0..10).flat_map(segment).collect()
}

fn upload(parts: &[&[ScriptSegment]]) -> Direction {
    run_one(&script(parts)).upload
}

/// Returns whether nothing was retransmitted, reordered or a probe.
fn is_in_order(upload: &Direction) -> bool {
    let data = upload.data;
    data.retransmissions + data.reordered + data.window_probes_and_keep_alives == 0
}

#[test]
fn data_after_capture_gap_is_new() {
    for gap in [5, 10, 11, 15, 20, 21, 25, 30, 32, 39].map(|tenths| tenths * GIB_TENTH) {
        let from = 10_001u32.wrapping_add(gap as u32);
        let upload = upload(&[
            &handshake(MS),
            &ten_segments(10, 1),
            &ten_segments(100_000, from),
        ]);
        let data = upload.data;
        assert!(is_in_order(&upload), "{gap}: {data:?}");
        assert_eq!((data.unique_bytes, data.acked_unseen_bytes), (20_000, gap));
        let rtt = &upload.rtt_by_acks;
        assert!(rtt.count >= 20 && rtt.max == MS, "{gap}: {rtt:?}");
    }
}

/// The bytes that were acknowledged within the gap are unknown, so they are not counted.
#[test]
fn acks_resume_at_first_data_after_gap() {
    let from = 10_001 + (3 * GIB / 2) as u32;
    let upload = upload(&[
        &handshake(MS),
        &ten_segments(10, 1),
        &ten_segments(100_000, from),
    ]);
    assert_eq!(
        (upload.acks.acked_bytes, upload.acks.out_of_order),
        (20_000, 0)
    );
    assert_eq!(upload.ack_diff.max, 1_000);
    assert_eq!(upload.in_flight_max_bytes, 1_000);
}

#[test]
fn acks_without_data_resume_after_gap() {
    for gap in [15, 25].map(|tenths| (tenths * GIB_TENTH) as u32) {
        let five_acks = |at_ms: u64, from: u32| {
            (0..5)
                .map(move |i| server((at_ms + u64::from(i)) * MS, 1, from.wrapping_add(i * 2_000)))
        };
        let acks: Vec<_> = five_acks(0, 1_000)
            .chain(five_acks(9_000, 9_000 + gap))
            .collect();
        let acks = run_one(&acks).upload.acks;
        assert_eq!((acks.out_of_order, acks.advancing), (0, 8), "{gap}");
        assert_eq!(acks.acked_bytes, 16_000, "{gap}");
    }
}

#[test]
fn ignores_stray_number_that_no_other_continues() {
    for distance in [11, 15, 20, 25, 29].map(|tenths| (tenths * GIB_TENTH) as u32) {
        let stray = |at_ms: u64| {
            client(at_ms * MS, 10_001u32.wrapping_add(distance), 1)
                .data(700)
                .stamps(0, 1)
        };
        let clean = upload(&[
            &handshake(MS),
            &ten_segments(10, 1),
            &ten_segments(200, 10_001),
        ]);
        // Once, and duplicated, as from a mirror port.
        for strays in [vec![stray(100)], vec![stray(100), stray(101)]] {
            let payload = 700 * strays.len() as u64;
            let upload = upload(&[
                &handshake(MS),
                &ten_segments(10, 1),
                &strays,
                &ten_segments(200, 10_001),
            ]);
            let data = upload.data;
            assert!(is_in_order(&upload), "{distance}: {data:?}");
            assert_eq!(
                (data.unique_bytes, data.acked_unseen_bytes),
                (20_000, 0),
                "{distance}"
            );
            assert_eq!(data.payload_bytes, 20_000 + payload);
            assert_eq!(upload.acks.acked_bytes, 20_000);
            assert_eq!(upload.in_flight_max_bytes, 1_000);
            assert_eq!(upload.rtt_by_acks, clean.rtt_by_acks);
        }
    }
}

#[test]
fn ignores_stray_fin() {
    let stray = client(100 * MS, 10_001 + (3 * GIB / 2) as u32, 1).fin();
    let upload = upload(&[
        &handshake(MS),
        &ten_segments(10, 1),
        &[stray],
        &ten_segments(200, 10_001),
    ]);
    assert_eq!(upload.acks.acked_bytes, 20_000);
    assert_eq!(
        (upload.data.unique_bytes, upload.data.acked_unseen_bytes),
        (20_000, 0)
    );
}

/// More than a window of 128 kB is acknowledged before the capture has its data, as when each direction has its own
/// queue. Its TSvals are new.
#[test]
fn data_captured_after_its_ack_is_not_a_gap() {
    let data = |i: u32| {
        client((20 + u64::from(i)) * MS, 1 + i * 1_000, 1)
            .data(1_000)
            .stamps(20 + i, 1)
    };
    let data: Vec<_> = (0..300).map(data).collect();
    let upload = upload(&[&handshake(MS), &[server(10 * MS, 1, 300_001)], &data]);
    assert_eq!(
        (upload.data.unique_bytes, upload.data.acked_unseen_bytes),
        (300_000, 0)
    );
    assert_eq!(upload.acks.acked_bytes, 300_000);
}

/// A copy of data that was acknowledged long ago has an old TSval.
#[test]
fn late_copy_is_not_a_gap() {
    let data: Vec<_> = (0..30)
        .flat_map(|i| ten_segments(10 + 20 * u64::from(i), 1 + i * 10_000))
        .collect();
    let copies: Vec<_> = ten_segments(10, 1)
        .into_iter()
        .filter(|seg| seg.segment.payload > 0)
        .collect();
    let late = |mut seg: ScriptSegment| {
        seg.segment.at_ns += 2_000 * MS;
        seg
    };
    let copies: Vec<_> = copies.into_iter().map(late).collect();
    let data = upload(&[&handshake(MS), &data, &copies]).data;
    assert_eq!((data.unique_bytes, data.acked_unseen_bytes), (300_000, 0));
    assert_eq!(data.spurious_retransmissions, 10);
}
