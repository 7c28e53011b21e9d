// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must be equal, and where rules differ, by how much exactly (docs/tap-peers.md).

use crate::tap_peers::{ours::Ours, tcptrace::Tcptrace, tshark::Tshark};

/// tcptrace prints tenths of a millisecond.
const TENTH: f64 = 0.051;
/// tshark prints nanoseconds of captures in microseconds.
const MICROSECOND: f64 = 0.001;

#[track_caller]
fn equal(name: &str, what: &str, ours: u64, theirs: u64) {
    assert_eq!(ours, theirs, "{what} of {name}: ours and theirs");
}

#[track_caller]
fn near(name: &str, what: &str, ours: f64, theirs: f64, by: f64) {
    assert!(
        (ours - theirs).abs() <= by,
        "{what} of {name}: {ours} and {theirs}"
    );
}

/// What tshark says of both ways, packet by packet.
pub(crate) struct Packets<'a> {
    pub(crate) sent: &'a Tshark,
    pub(crate) answers: &'a Tshark,
}

/// tshark's rules.
pub(crate) fn beside_tshark(name: &str, ours: &Ours, theirs: &Tshark) {
    counts_beside_tshark(name, ours, theirs);
    rtt_beside_tshark(name, ours, theirs);
}

/// All but round trips.
pub(crate) fn counts_beside_tshark(name: &str, ours: &Ours, theirs: &Tshark) {
    packets_beside_tshark(name, ours, theirs);
    let same = |what: &str, ours, theirs| equal(name, &format!("{what} (tshark)"), ours, theirs);
    same(
        "zero windows",
        ours.acks("zero_windows"),
        theirs.zero_windows,
    );
    // D1, D11: it also counts repeats with nothing outstanding, and looks at the packet before only.
    let duplicates = theirs.duplicate_acks - theirs.no_duplicates + theirs.other_duplicates;
    same("duplicate ACKs", ours.acks("duplicates"), duplicates);
    // D2: it sorts late packets by the clock, so only the sum can agree. D10: a byte that was sent again
    // looks like a keep-alive to it. D14, D16: data that comes behind its ACK.
    same(
        "sent again or late",
        ours.retransmissions() + ours.data("reordered") + theirs.lone_bytes,
        theirs.again_or_late + theirs.keep_alives_of_data + theirs.late_to_acks,
    );
}

/// What no order changes.
pub(crate) fn packets_beside_tshark(name: &str, ours: &Ours, theirs: &Tshark) {
    let same = |what: &str, ours, theirs| equal(name, &format!("{what} (tshark)"), ours, theirs);
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

/// D3: it takes samples of what was sent twice, too; those are left out here. D6: it has none of an ACK
/// inside of a packet.
fn rtt_beside_tshark(name: &str, ours: &Ours, theirs: &Tshark) {
    let samples = ours.rtt_samples();
    let fewest = theirs.rtt_ms.len() as u64 + theirs.answers_inside;
    assert!(
        (fewest..=fewest + theirs.answers_to_late).contains(&samples),
        "RTT samples of {name}: {samples}, tshark {fewest} and {} of what came late",
        theirs.answers_to_late
    );
    if samples == theirs.rtt_ms.len() as u64 {
        for (ours, theirs) in ours.rtt_ms().into_iter().zip(summary(&theirs.rtt_ms)) {
            near(name, "RTT (tshark)", ours, theirs, MICROSECOND);
        }
    }
}

/// Least, mean and greatest; 0 without samples.
fn summary(samples: &[f64]) -> [f64; 3] {
    let least = samples.iter().copied().reduce(f64::min);
    let greatest = samples.iter().copied().reduce(f64::max);
    let mean = samples.iter().sum::<f64>() / samples.len().max(1) as f64;
    [least.unwrap_or(0.0), mean, greatest.unwrap_or(0.0)]
}

/// tcptrace's rules, connection by connection.
pub(crate) fn beside_tcptrace(
    name: &str,
    ours: &Ours,
    theirs: &Tcptrace,
    packets: &Packets<'_>,
    super_packets: bool,
) {
    let same = |what: &str, ours, theirs| equal(name, &format!("{what} (tcptrace)"), ours, theirs);
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
    // D9: what was sent into a window of zero is a probe to it, whatever it was.
    let apart = &packets.sent.apart;
    same(
        "unique bytes",
        ours.data("unique_bytes"),
        theirs.count_and("unique_bytes_sent", apart.unique_bytes),
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
    // D4: what was lost before the tap is out of order to it, and a retransmission to us. D5: SYNs and FINs
    // are data to it. D9, D10: probes.
    let seen_twice = ours.retransmissions() - ours.data("unseen_retransmissions");
    same(
        "sent again",
        seen_twice,
        theirs.count_and("rexmt_data_pkts", apart.again_packets),
    );
    let again_bytes = ours.data("retransmitted_bytes") - ours.data("unseen_retransmitted_bytes");
    same(
        "bytes sent again",
        again_bytes,
        theirs.count_and("rexmt_data_bytes", apart.again_bytes),
    );
    let late = ours.data("unseen_retransmissions") + ours.data("reordered");
    // D13: it doesn't look at the numbers of packets without data.
    same(
        "late",
        late,
        theirs.count_and("outoforder_pkts", apart.late_packets),
    );
    // D6: it knows ACKs only by the end of a packet; one inside a super-packet acknowledges none.
    if !super_packets {
        // D5, D11: it counts repeats when nothing is outstanding, FINs and RSTs, but none after a late ACK.
        same(
            "duplicate ACKs",
            ours.acked("duplicates"),
            theirs.count_and("duplicate_acks", -packets.answers.more_repeats),
        );
        rtt_beside_tcptrace(name, theirs, packets.sent);
    }
}

/// D7: of ACKs that cover something that was sent twice or late, and of those for what was sent before
/// that, it takes other samples than we. D8: it takes them of RSTs too. What tshark says is between both.
fn rtt_beside_tcptrace(name: &str, theirs: &Tcptrace, sent: &Tshark) {
    let all = [&sent.rtt_ms[..], &sent.reset_rtt_ms].concat();
    let (samples, others) = (all.len() as u64, theirs.count("RTT_samples"));
    let most = samples + sent.answers_to_twice + sent.answers_to_late;
    let fewest = samples.saturating_sub(sent.answers_behind);
    assert!(
        (fewest..=most).contains(&others),
        "RTT samples of {name}: {others} by tcptrace, {fewest} to {most} by its rules"
    );
    if samples > 0 && fewest == most {
        // D12: its mean is of a ten-thousandth of a sample more than there are.
        let [least, mean, greatest] = summary(&all);
        let mean = mean * samples as f64 / (samples as f64 + 1e-4);
        let columns = ["RTT_min", "RTT_avg", "RTT_max"].map(|column| theirs.ms(column));
        for (ours, theirs) in [least, mean, greatest].into_iter().zip(columns) {
            near(name, "RTT (tcptrace)", ours, theirs, TENTH);
        }
    }
}
