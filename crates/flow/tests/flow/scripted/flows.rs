// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the assignment of segments to flows, and of the bounds of the flow table.

use crate::scripted::script::{
    MS, Results, client, handshake, key, run, run_with, script, server, settings,
};
use longhaul_flow::record::Termination;
use longhaul_flow::segment::CapturePoint;
use longhaul_flow::{Flows, Settings};

const S: u64 = 1_000 * MS;

#[test]
fn flow_has_number_of_first_packet() {
    let results = run(&[
        client(0, 1, 1).data(10),
        client(1, 1, 1).data(10).port(1_001),
        client(2, 11, 1).data(10),
        client(3, 1, 1).data(10).port(1_002),
    ]);
    let numbers: Vec<_> = results
        .flows
        .iter()
        .map(|f| (f.number, f.client.port))
        .collect();
    assert_eq!(numbers, [(0, 1_000), (1, 1_001), (3, 1_002)]);
    assert_eq!(results.flows[0].upload.data.unique_bytes, 20);
}

#[test]
fn each_capture_point_has_its_own_flow() {
    let (mut flows, mut results) = (Flows::new(settings()), Results::default());
    for number in 0..6 {
        let segment = client(number, 1, 1).data(10).segment;
        flows.process_segment(
            number,
            CapturePoint(number as u32 % 2),
            &key(500),
            &segment,
            &mut results,
        );
    }
    flows.finish(&mut results);
    let seen: Vec<_> = results
        .flows
        .iter()
        .map(|f| (f.capture_point.0, f.upload.data.packets))
        .collect();
    assert_eq!(seen, [(0, 3), (1, 3)]);
}

#[test]
fn syn_with_new_number_begins_flow() {
    let syn = |at, isn| client(at, isn, 0).syn(1_000, 7).without_ack();
    let results = run(&script(&[
        &handshake(MS),
        &[
            client(2 * MS, 1, 1).rst(),
            syn(3 * MS, 70_000),
            syn(4 * MS, 70_000),
            server(5 * MS, 90_000, 70_001).syn(1_000, 7),
            client(5 * MS, 70_001, 90_001).data(5),
        ],
    ]));
    let flows: Vec<_> = results
        .flows
        .iter()
        .map(|f| (f.number, f.termination))
        .collect();
    assert_eq!(
        flows,
        [(0, Termination::ResetByClient), (4, Termination::Open)]
    );
    assert_eq!(results.flows[1].handshake.syn_retransmissions, 1);
    assert_eq!(results.flows[1].upload.data.unique_bytes, 5);
}

#[test]
fn syn_after_data_begins_flow() {
    let results = run(&[
        client(0, 1, 1).data(10),
        server(1, 1, 11),
        client(2 * MS, 500, 0).syn(1_000, 7).without_ack(),
    ]);
    assert_eq!(results.flows.len(), 2);
}

/// Segments of a capture with packets out of order.
#[test]
fn late_syn_belongs_to_same_flow() {
    let [syn, syn_ack, ack] = handshake(MS).try_into().unwrap();
    let data = client(2 * MS, 1, 1).data(10);
    let last = client(3 * MS, 11, 1).data(10);
    let results = run(&[ack, data, syn_ack, syn, last]);
    assert_eq!(results.flows.len(), 1);
    let upload = &results.flows[0].upload;
    assert_eq!(upload.syn_options.mss, Some(1_000));
    assert_eq!(upload.data.unique_bytes, 20);
    let older = run(&[last, syn, data, syn_ack, ack]);
    assert_eq!(older.flows.len(), 1);
    assert_eq!(older.flows[0].upload.data.payload_bytes, 20);
    let older_and_far_away = client(0, 1 << 31, 0).syn(1_000, 7).without_ack();
    assert_eq!(run(&[last, older_and_far_away]).flows.len(), 2);
}

#[test]
fn repeated_syn_begins_flow_after_long_silence() {
    let syn = |at| client(at, 0, 0).syn(1_000, 7).without_ack();
    assert_eq!(run(&[syn(0), syn(120 * S)]).flows.len(), 1);
    assert_eq!(run(&[syn(0), syn(120 * S + 1)]).flows.len(), 2);
}

#[test]
fn evicts_least_recently_seen_flow() {
    let settings = Settings {
        flows_max: 2,
        ..settings()
    };
    let results = run_with(
        &[
            client(0, 1, 1).data(10).port(101),
            client(1, 1, 1).data(10).port(102),
            client(2, 11, 1).data(10).port(101),
            client(3, 1, 1).data(10).port(103),
            client(4, 21, 1).data(10).port(101),
        ],
        [0, 0],
        &settings,
    );
    let flows: Vec<_> = results
        .flows
        .iter()
        .map(|f| (f.client.port, f.upload.data.packets))
        .collect();
    assert_eq!(flows, [(102, 1), (101, 3), (103, 1)]);
    results.check_consistency(2);
}

/// Sixty flows fit when they begin. Gaps that double use a new octave of a distribution each.
#[test]
fn evicts_flows_when_memory_grows() {
    let settings = Settings {
        flows_max_bytes: 400_000,
        tables_max_bytes: 50_000,
        ..settings()
    };
    let (mut flows, mut results) = (Flows::new(settings), Results::default());
    for round in 0..40u32 {
        for flow in 0..60u16 {
            let at_ns = (1 << round) + u64::from(flow);
            let segment = client(at_ns, 1 + 10 * round, 1).data(10).segment;
            let number = u64::from(round) * 60 + u64::from(flow);
            let key = key(1_000 + flow);
            flows.process_segment(number, CapturePoint(0), &key, &segment, &mut results);
            assert!(flows.memory_bytes() <= 400_000 + 50_000 + 60 * 2 * 320);
        }
        assert!(round > 3 || results.flows.is_empty(), "all fit in");
    }
    assert!(!results.flows.is_empty());
    assert!(flows.memory_bytes() > 350_000);
    flows.finish(&mut results);
    let packets = results.flows.iter().map(|flow| flow.upload.data.packets);
    assert_eq!(packets.sum::<u64>(), 40 * 60);
}

#[test]
fn keeps_single_flow_over_budget() {
    let settings = Settings {
        flows_max_bytes: 1,
        tables_max_bytes: 0,
        ..settings()
    };
    let segments: Vec<_> = (0..20u32)
        .map(|i| client(u64::from(i) * MS, 1 + i, 1).data(1))
        .collect();
    let results = run_with(&segments, [0, 0], &settings);
    assert_eq!(results.flows[0].upload.data.packets, 20);
    assert_eq!(results.flows[0].upload.time_series.bins.len(), 2);
    results.check_consistency(2);
}

#[test]
fn evicts_old_closed_flow() {
    let mut segments = handshake(MS);
    segments.extend([
        client(2 * MS, 1, 1).rst(),
        client(200 * S, 1, 1).data(10).port(7),
    ]);
    let (mut flows, mut results) = (Flows::new(settings()), Results::default());
    for (number, seg) in segments.iter().enumerate() {
        flows.process_segment(
            number as u64,
            CapturePoint(0),
            &key(seg.port),
            &seg.segment,
            &mut results,
        );
    }
    assert_eq!(results.flows.len(), 1);
    flows.finish(&mut results);
    assert_eq!(results.flows.len(), 2);
}

#[test]
fn reuses_slots() {
    let settings = Settings {
        flows_max: 3,
        ..settings()
    };
    let segments: Vec<_> = (1_000..2_000u16)
        .map(|port| client(u64::from(port), 1, 1).data(10).port(port))
        .collect();
    let results = run_with(&segments, [0, 0], &settings);
    let ports: Vec<_> = results.flows.iter().map(|f| f.client.port).collect();
    assert_eq!(ports, (1_000..2_000).collect::<Vec<_>>());
}

#[test]
fn shards_equal_single_table() {
    let segments: Vec<_> = (0..600u32)
        .map(|i| {
            let (port, number) = (i * i % 7, i / 7);
            let at_ns = u64::from(i) * 300_000;
            match i % 3 {
                2 => server(at_ns, 1, 1 + number * 10),
                _ => client(at_ns, 1 + number * 10, 1).data(10),
            }
            .port(port as u16)
        })
        .collect();
    let analyse = |shards: u16| {
        let mut all = Results::default();
        for shard in 0..shards {
            let (mut flows, mut results) = (Flows::new(settings()), Results::default());
            for (number, seg) in segments.iter().enumerate() {
                if seg.port % shards == shard {
                    let key = key(seg.port);
                    flows.process_segment(
                        number as u64,
                        CapturePoint(0),
                        &key,
                        &seg.segment,
                        &mut results,
                    );
                }
            }
            flows.finish(&mut results);
            all.flows.append(&mut results.flows);
            all.bins.append(&mut results.bins);
        }
        all.flows.sort_by_key(|flow| flow.number);
        all.bins
            .sort_by_key(|b| (b.flow, !b.upload, b.width, b.from_ns));
        all
    };
    let one = analyse(1);
    assert_eq!(one.flows.len(), 4); // The squares modulo 7.
    assert_eq!(analyse(3), one);
}
