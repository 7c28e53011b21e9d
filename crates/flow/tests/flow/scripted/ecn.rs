// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of ECN: negotiation, marks and their reports.

use crate::scripted::script::{MS, ScriptSegment, US, client, handshake, run_one, server};
use longhaul_flow::ecn::{EcnCounts, negotiation::EcnNegotiation};
use longhaul_flow::record::{Flow, Limit};
use longhaul_flow::segment::{CE, ECT_0, ECT_1};

/// AE, CWR and ECE of the handshake.
const CLASSIC: [u8; 2] = [0b011, 0b001];
const ACCURATE: [u8; 2] = [0b111, 0b010];
const CWR: u8 = 0b010;
const ECE: u8 = 0b001;

/// Returns a handshake with these flags in the SYN and the SYN/ACK. With AccECN the ACK repeats the SYN/ACK's ECN field
/// in place of a count.
fn negotiation([syn, syn_ack]: [u8; 2]) -> Vec<ScriptSegment> {
    let mut handshake = handshake(10 * MS);
    handshake[0] = handshake[0].ace(syn);
    handshake[1] = handshake[1].ace(syn_ack);
    if syn_ack == ACCURATE[1] {
        handshake[2] = handshake[2].ace(0b010);
    }
    handshake
}

/// Returns `count` segments of data from number `first` on, with this ECN field.
fn data(at_ms: u64, first: u32, count: u32, ecn: u8) -> Vec<ScriptSegment> {
    let segment = |i: u32| {
        let at_ns = at_ms * MS + u64::from(i) * US;
        client(at_ns, 1 + (first + i) * 1_000, 1)
            .data(1_000)
            .ecn(ecn)
    };
    (0..count).map(segment).collect()
}

fn ack(at_ms: u64, packets: u32) -> ScriptSegment {
    server(at_ms * MS, 1, 1 + packets * 1_000)
}

#[test]
fn classic_ecn_counts_ece_and_cwr() {
    let mut script = negotiation(CLASSIC);
    script.extend(data(20, 0, 3, ECT_0));
    script.extend(data(21, 3, 1, CE));
    script.extend([ack(30, 2), ack(31, 4).ace(ECE), ack(32, 4).ace(ECE)]);
    script.extend(data(33, 4, 1, ECT_0).iter().map(|first| first.ace(CWR)));
    script.push(ack(43, 5));
    let flow = run_one(&script);
    assert_eq!(flow.handshake.ecn, EcnNegotiation::Classic);
    let expected = EcnCounts {
        ect0_segments: 4,
        ce_segments: 1,
        ce_data_segments: 1,
        cwr_packets: 1,
        ece_acks: 2,
        ..EcnCounts::default()
    };
    assert_eq!(flow.upload.ecn, expected);
    assert_eq!(flow.download.ecn, EcnCounts::default());
    let bins = &flow.upload.time_series.bins;
    let marks = [21, 31, 32].map(|ms| (bins[ms].ce_segments, bins[ms].reported_marks));
    assert_eq!(marks, [(1, 0), (0, 1), (0, 1)]);
}

/// Ten packets with CE, of which the ACE field of three bits counts two after its wrap.
#[test]
fn accurate_ecn_counts_over_wrap_of_ace() {
    let mut script = negotiation(ACCURATE);
    script.extend(data(20, 0, 12, ECT_1));
    script.extend([
        ack(30, 2).ace(5),
        ack(31, 4).ace(7),
        ack(32, 8).ace(3),
        ack(33, 12).ace(7),
    ]);
    script.push(server(32_500 * US, 1, 8_001).ace(3)); // Late: it would be four more.
    let flow = run_one(&script);
    assert_eq!(flow.handshake.ecn, EcnNegotiation::Accurate);
    let expected = EcnCounts {
        ect1_segments: 12,
        reported_ce_packets: 10,
        ..EcnCounts::default()
    };
    assert_eq!(flow.upload.ecn, expected);
    let bins = &flow.upload.time_series.bins;
    let marks = [30, 31, 32, 33].map(|ms| bins[ms].reported_marks);
    assert_eq!(marks, [0, 2, 4, 4]);
}

/// One ACK covers 40 packets of which 34 have CE.
#[test]
fn option_of_accurate_ecn_shows_wraps_of_ace() {
    let reported = |option: Option<u32>| {
        let mut script = negotiation(ACCURATE);
        script.extend(data(20, 0, 42, ECT_1));
        let last = ack(31, 42).ace(7);
        let last = option.map_or(last, |bytes| last.ce_bytes(bytes));
        script.extend([ack(30, 2).ace(5), last]);
        run_one(&script).upload.ecn.reported_ce_packets
    };
    assert_eq!(reported(Some(34_000)), 34);
    assert_eq!(reported(Some(2_000)), 2);
    assert_eq!(reported(None), 2);
}

#[test]
fn peer_that_refuses_ecn_reports_no_marks() {
    let mut script = negotiation([0b111, 0b000]);
    script.extend(data(20, 0, 2, 0));
    script.push(ack(30, 2).ace(ECE));
    let flow = run_one(&script);
    assert_eq!(flow.handshake.ecn, EcnNegotiation::NotNegotiated);
    assert_eq!(flow.upload.ecn, EcnCounts::default());
}

#[test]
fn partial_capture_infers_ecn_from_its_packets() {
    let infer = |ecn: u8, ace: u8| {
        let mut script = data(20, 0, 2, ecn);
        script.extend([ack(30, 1).ace(ace), ack(31, 2).ace(ace)]);
        run_one(&script)
    };
    assert_eq!(infer(0, 0).handshake.ecn, EcnNegotiation::Unknown);
    assert_eq!(infer(ECT_0, 0).handshake.ecn, EcnNegotiation::Inferred);
    assert_eq!(infer(ECT_0, ECE).upload.ecn.ece_acks, 2);
    let accurate = infer(ECT_1, 0b101);
    assert_eq!(accurate.handshake.ecn, EcnNegotiation::Accurate);
    assert_eq!(accurate.upload.ecn.ece_acks, 0);
    assert_eq!(accurate.upload.ecn.reported_ce_packets, 0);
}

/// Returns a flow with twenty packets in flight in each round trip of 10 ms. `marks` is the ECN field and the ACE field
/// of the first packet and of its ACK, in every second round trip.
fn steady_flow(flags: [u8; 2], [ecn, ace]: [u8; 2]) -> Flow {
    let mut script = negotiation(flags);
    for round in 0..200 {
        let marked = round % 2 == 1;
        let (at_ms, first) = (20 + 10 * u64::from(round), round * 20);
        script.extend(data(at_ms, first, 1, if marked { ecn } else { 0 }));
        script.extend(data(at_ms, first + 1, 19, 0).iter().map(|sent| {
            let mut sent = *sent;
            sent.segment.at_ns += US;
            sent
        }));
        let echo = if marked { ace } else { 0 };
        script.push(ack(at_ms + 10, first + 20).ace(echo));
    }
    script.sort_by_key(|sent| sent.segment.at_ns);
    run_one(&script)
}

#[test]
fn marks_make_congestion_window_the_limit() {
    let limits = |flow: &Flow| -> Vec<Limit> {
        flow.upload
            .limits
            .iter()
            .map(|period| period.limit)
            .collect()
    };
    let unmarked = steady_flow(CLASSIC, [ECT_0, 0]);
    assert_eq!(limits(&unmarked).last(), Some(&Limit::Application));
    for (marks, share) in [
        ([CE, 0], "2.5 % of packets at the capture point"),
        ([ECT_0, ECE], "ECE in 50 % of ACKs"),
    ] {
        let flow = steady_flow(CLASSIC, marks);
        assert_eq!(limits(&flow), [Limit::CongestionWindow]);
        let expected = format!(
            "limited all the time by the congestion window, reduced by ECN marks ({share}), not by losses."
        );
        assert!(
            flow.upload.verdict.contains(&expected),
            "{}",
            flow.upload.verdict
        );
    }
    let refused = steady_flow([0b011, 0b000], [CE, ECE]);
    assert_eq!(limits(&refused).last(), Some(&Limit::Application));
}
