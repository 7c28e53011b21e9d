// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must be equal, and where rules differ, by how much exactly (docs/tap-peers.md).

use crate::{ours::Ours, tcptrace::Tcptrace, tshark::Tshark};

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
pub(crate) fn beside_tshark(name: &str, ours: &Ours, theirs: &Tshark, super_packets: bool) {
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
    same(
        "zero windows",
        ours.acks("zero_windows"),
        theirs.zero_windows,
    );
    // D1: it also counts an ACK that repeats a number when nothing is outstanding.
    let duplicates = theirs.duplicate_acks - theirs.duplicates_of_everything;
    same("duplicate ACKs", ours.acks("duplicates"), duplicates);
    // D2: it sorts late packets by the clock, so only the sum can agree.
    let again_or_late = ours.retransmissions() + ours.data("reordered");
    same("sent again or late", again_or_late, theirs.again_or_late);
    // D6: ACKs inside a super-packet.
    if !super_packets {
        rtt_beside_tshark(name, ours, theirs);
    }
}

/// D3: it takes samples of what was sent twice, too.
fn rtt_beside_tshark(name: &str, ours: &Ours, theirs: &Tshark) {
    let count = theirs.rtt_ms.len() as u64;
    if ours.retransmissions() > 0 {
        let samples = ours.rtt_samples();
        assert!(
            samples <= count,
            "RTT samples of {name}: {samples}, tshark {count}"
        );
        return;
    }
    equal(name, "RTT samples (tshark)", ours.rtt_samples(), count);
    if count > 0 {
        let least = theirs.rtt_ms.iter().copied().fold(f64::MAX, f64::min);
        let greatest = theirs.rtt_ms.iter().copied().fold(0.0, f64::max);
        let mean = theirs.rtt_ms.iter().sum::<f64>() / count as f64;
        for (ours, theirs) in ours.rtt_ms().into_iter().zip([least, mean, greatest]) {
            near(name, "RTT (tshark)", ours, theirs, MICROSECOND);
        }
    }
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
    same(
        "unique bytes",
        ours.data("unique_bytes"),
        theirs.count("unique_bytes_sent"),
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
    // D4: what was lost before the tap is out of order to it, and a retransmission to us.
    let seen_twice = ours.retransmissions() - ours.data("unseen_retransmissions");
    same("sent again", seen_twice, theirs.count("rexmt_data_pkts"));
    let again_bytes = ours.data("retransmitted_bytes") - ours.data("unseen_retransmitted_bytes");
    same(
        "bytes sent again",
        again_bytes,
        theirs.count("rexmt_data_bytes"),
    );
    let late = ours.data("unseen_retransmissions") + ours.data("reordered");
    same("late", late, theirs.count("outoforder_pkts"));
    // D6: it knows ACKs only by the end of a packet; one inside a super-packet acknowledges none.
    if !super_packets {
        // D5: it counts repeats when nothing is outstanding, FINs and RSTs.
        let duplicates = ours.acked("duplicates") + packets.answers.other_repeats;
        same("duplicate ACKs", duplicates, theirs.count("duplicate_acks"));
        rtt_beside_tcptrace(name, ours, theirs);
    }
}

/// D7: after a hole, whether it was a loss or only late, both leave samples out, not quite the same ones.
fn rtt_beside_tcptrace(name: &str, ours: &Ours, theirs: &Tcptrace) {
    let (samples, others) = (ours.rtt_samples(), theirs.count("RTT_samples"));
    if ours.retransmissions() + ours.data("reordered") + theirs.count("post-loss_acks") > 0 {
        let after_holes = theirs.count("post-loss_acks");
        let fewest = others.saturating_sub(after_holes + ours.retransmissions());
        assert!(
            (fewest..=others + after_holes).contains(&samples),
            "RTT samples of {name}: {samples}, tcptrace {others} and {after_holes} after holes"
        );
        return;
    }
    equal(name, "RTT samples (tcptrace)", samples, others);
    if samples > 0 {
        let columns = ["RTT_min", "RTT_avg", "RTT_max"].map(|column| theirs.ms(column));
        for (ours, theirs) in ours.rtt_ms().into_iter().zip(columns) {
            near(name, "RTT (tcptrace)", ours, theirs, TENTH);
        }
    }
}
