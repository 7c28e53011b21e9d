// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures that must be equal, and the exact differences where definitions differ (docs/tap-peers.md).

use crate::tap_peers::{ours::Ours, tcptrace::Tcptrace, tshark::Tshark};

/// Tolerance in ms for tcptrace, which prints tenths of a millisecond.
const TENTH: f64 = 0.051;
/// Tolerance in ms for tshark, which rounds nanoseconds to microseconds.
const MICROSECOND: f64 = 0.001;

#[track_caller]
fn assert_equal(name: &str, what: &str, ours: u64, theirs: u64) {
    assert_eq!(ours, theirs, "{what} of {name}: ours and theirs");
}

#[track_caller]
fn assert_near(name: &str, what: &str, ours: f64, theirs: f64, by: f64) {
    assert!(
        (ours - theirs).abs() <= by,
        "{what} of {name}: {ours} and {theirs}"
    );
}

/// tshark's analysis of both directions, packet by packet.
pub(crate) struct Packets<'a> {
    pub(crate) sent: &'a Tshark,
    pub(crate) received: &'a Tshark,
}

/// Compares all figures with tshark's.
pub(crate) fn compare_with_tshark(name: &str, ours: &Ours, theirs: &Tshark) {
    compare_counts_with_tshark(name, ours, theirs);
    compare_rtt_with_tshark(name, ours, theirs);
}

/// Compares all figures but round trips with tshark's.
pub(crate) fn compare_counts_with_tshark(name: &str, ours: &Ours, theirs: &Tshark) {
    compare_packets_with_tshark(name, ours, theirs);
    let same =
        |what: &str, ours, theirs| assert_equal(name, &format!("{what} (tshark)"), ours, theirs);
    same(
        "zero windows",
        ours.acks("zero_windows"),
        theirs.zero_windows,
    );
    // D1, D11: tshark also counts repeats with nothing outstanding, and only compares with the packet before.
    let duplicates = theirs.duplicate_acks - theirs.false_duplicates + theirs.other_duplicates;
    same("duplicate ACKs", ours.acks("duplicates"), duplicates);
    // D2: tshark classifies late packets by time, so only the sum can agree. D10: it takes a retransmitted byte for a
    // keep-alive. D14, D16: data after its ACK.
    same(
        "retransmitted or late",
        ours.retransmissions() + ours.data("reordered") + theirs.first_packet_keep_alives,
        theirs.retransmitted_or_late + theirs.keep_alives_of_data + theirs.acked_before_capture,
    );
}

/// Compares the figures that do not depend on the order of packets.
pub(crate) fn compare_packets_with_tshark(name: &str, ours: &Ours, theirs: &Tshark) {
    let same =
        |what: &str, ours, theirs| assert_equal(name, &format!("{what} (tshark)"), ours, theirs);
    same("packets", ours.data("packets"), theirs.packets);
    same(
        "data packets",
        ours.data("data_packets"),
        theirs.data_packets,
    );
    same("payload", ours.data("payload_bytes"), theirs.payload_bytes);
    same("pure ACKs", ours.acks("pure"), theirs.pure_acks);
    same("ACKs with SACK", ours.acks("with_sack"), theirs.with_sack);
    same("SACK blocks", ours.acks("sack_blocks"), theirs.sack_blocks);
}

/// Compares RTTs. D3: tshark also takes samples of retransmitted data; these are left out here. D6: it has no sample
/// of an ACK inside a packet.
fn compare_rtt_with_tshark(name: &str, ours: &Ours, theirs: &Tshark) {
    let samples = ours.rtt_samples();
    let fewest = theirs.rtt_ms.len() as u64 + theirs.acks_inside_packets;
    assert!(
        (fewest..=fewest + theirs.acks_of_late_data).contains(&samples),
        "RTT samples of {name}: {samples}, tshark {fewest} and {} of what came late",
        theirs.acks_of_late_data
    );
    if samples == theirs.rtt_ms.len() as u64 {
        for (ours, theirs) in ours.rtt_ms().into_iter().zip(summary(&theirs.rtt_ms)) {
            assert_near(name, "RTT (tshark)", ours, theirs, MICROSECOND);
        }
    }
}

/// Returns minimum, mean and maximum; 0 without samples.
fn summary(samples: &[f64]) -> [f64; 3] {
    let least = samples.iter().copied().reduce(f64::min);
    let greatest = samples.iter().copied().reduce(f64::max);
    let mean = samples.iter().sum::<f64>() / samples.len().max(1) as f64;
    [least.unwrap_or(0.0), mean, greatest.unwrap_or(0.0)]
}

/// Compares the figures of a connection with tcptrace's.
pub(crate) fn compare_with_tcptrace(
    name: &str,
    ours: &Ours,
    theirs: &Tcptrace,
    packets: &Packets<'_>,
    super_packets: bool,
) {
    let same =
        |what: &str, ours, theirs| assert_equal(name, &format!("{what} (tcptrace)"), ours, theirs);
    same(
        "packets",
        ours.data("packets"),
        theirs.count("total_packets"),
    );
    same(
        "data packets",
        ours.data("data_packets"),
        theirs.count("actual_data_pkts"),
    );
    same(
        "payload",
        ours.data("payload_bytes"),
        theirs.count("actual_data_bytes"),
    );
    // D9: tcptrace takes all data sent into a zero window for probes.
    let differences = &packets.sent.differences;
    same(
        "unique bytes",
        ours.data("unique_bytes"),
        theirs.count_and("unique_bytes_sent", differences.unique_bytes),
    );
    same(
        "pure ACKs",
        ours.acks("pure"),
        theirs.count("pure_acks_sent"),
    );
    same(
        "ACKs with SACK",
        ours.acks("with_sack"),
        theirs.count("sack_pkts_sent"),
    );
    same(
        "zero windows",
        ours.acks("zero_windows"),
        theirs.count("zero_win_adv"),
    );
    // D4: data lost before the capture point is out of order to tcptrace, and a retransmission to us. D5: it counts
    // SYNs and FINs as data. D9, D10: probes.
    let captured_twice = ours.retransmissions() - ours.data("unseen_retransmissions");
    same(
        "retransmitted",
        captured_twice,
        theirs.count_and("rexmt_data_pkts", differences.retransmitted_packets),
    );
    let retransmitted_bytes =
        ours.data("retransmitted_bytes") - ours.data("unseen_retransmitted_bytes");
    same(
        "retransmitted bytes",
        retransmitted_bytes,
        theirs.count_and("rexmt_data_bytes", differences.retransmitted_bytes),
    );
    let late = ours.data("unseen_retransmissions") + ours.data("reordered");
    // D13: tcptrace ignores the sequence numbers of packets without data.
    same(
        "late",
        late,
        theirs.count_and("outoforder_pkts", differences.late_packets),
    );
    // D6: tcptrace matches ACKs only with the end of a packet; an ACK inside a super-packet acknowledges none.
    if !super_packets {
        // D5, D11: tcptrace counts repeats when nothing is outstanding, FINs and RSTs, but none after a late ACK.
        same(
            "duplicate ACKs",
            ours.received("duplicates"),
            theirs.count_and(
                "duplicate_acks",
                -packets.received.extra_tcptrace_duplicates,
            ),
        );
        compare_rtt_with_tcptrace(name, theirs, packets.sent);
    }
}

/// Compares RTTs. D7: tcptrace takes other samples for ACKs of data that was retransmitted or late, and of data sent
/// before that. D8: it also takes samples of RSTs. tshark's samples give a lower and an upper limit.
fn compare_rtt_with_tcptrace(name: &str, theirs: &Tcptrace, sent: &Tshark) {
    let all = [&sent.rtt_ms[..], &sent.reset_rtt_ms].concat();
    let (samples, others) = (all.len() as u64, theirs.count("RTT_samples"));
    let most = samples + sent.acks_of_data_captured_twice + sent.acks_of_late_data;
    let fewest = samples.saturating_sub(sent.acks_of_data_before_repeat);
    assert!(
        (fewest..=most).contains(&others),
        "RTT samples of {name}: {others} by tcptrace, {fewest} to {most} by its rules"
    );
    if samples > 0 && fewest == most {
        // D12: tcptrace's mean divides by the number of samples plus 0.0001.
        let [least, mean, greatest] = summary(&all);
        let mean = mean * samples as f64 / (samples as f64 + 1e-4);
        let columns = ["RTT_min", "RTT_avg", "RTT_max"].map(|column| theirs.ms(column));
        for (ours, theirs) in [least, mean, greatest].into_iter().zip(columns) {
            assert_near(name, "RTT (tcptrace)", ours, theirs, TENTH);
        }
    }
}
