// SPDX-License-Identifier: MIT OR Apache-2.0
//! How flows begin and end.

use crate::tap_flows::script::{MS, Seg, c, handshake, run, run_one, s, script};
use longhaul_flow::record::Termination;
use longhaul_packet::tcp::{ACK, RST};

#[test]
fn a_handshake_says_what_both_can() {
    let flow = run_one(&handshake(10 * MS));
    assert_eq!((flow.client.port, flow.server.port), (1_000, 80));
    assert_eq!(flow.handshake.syn_to_syn_ack_ns, Some(10 * MS));
    assert_eq!(flow.handshake.syn_ack_to_ack_ns, Some(0));
    let offer = flow.upload.syn_options;
    assert_eq!(
        (offer.mss, offer.window_scale, offer.sack, offer.timestamps),
        (Some(1_000), Some(7), true, false)
    );
    assert_eq!(flow.termination, Termination::Open);
    assert_eq!((flow.first_ns, flow.last_ns), (0, 10 * MS));
}

#[test]
fn the_first_is_the_client_without_a_syn() {
    let flow = run_one(&[s(0, 1, 1).data(10), c(MS, 1, 11)]);
    assert_eq!(flow.client.port, 80);
    assert_eq!(flow.upload.data.unique_bytes, 10);
}

#[test]
fn whoever_answers_a_syn_is_the_server() {
    let flow = run_one(&[s(0, 0, 1).syn(1_000, 7), c(MS, 1, 1)]);
    assert_eq!(flow.client.port, 1_000);
    assert_eq!(
        (
            flow.handshake.syn_to_syn_ack_ns,
            flow.handshake.syn_ack_to_ack_ns
        ),
        (None, Some(MS))
    );
    // The client's scale is unknown, the server's is taken to be used.
    assert_eq!(flow.upload.acks.window_scale, Some(7));
    assert_eq!(flow.download.acks.window_scale, None);
}

#[test]
fn both_may_open() {
    let flow = run_one(&[
        c(0, 0, 0).syn(1_000, 7).no_ack(),
        s(MS, 0, 0).syn(1_000, 7).no_ack(),
        c(10 * MS, 0, 1).syn(1_000, 7),
        s(11 * MS, 0, 1).syn(1_000, 7),
        c(12 * MS, 1, 1).data(10),
        s(20 * MS, 1, 11),
    ]);
    assert_eq!(flow.client.port, 1_000);
    assert_eq!(flow.handshake.syn_to_syn_ack_ns, Some(11 * MS));
    assert_eq!(
        (
            flow.handshake.syn_retransmissions,
            flow.handshake.syn_ack_retransmissions
        ),
        (0, 0)
    );
    assert_eq!(
        (flow.upload.data.unique_bytes, flow.upload.acks.acked_bytes),
        (10, 10)
    );
    assert_eq!(flow.upload.data.retransmitted_bytes, 0);
}

#[test]
fn a_syn_may_carry_data() {
    let flow = run_one(&[
        c(0, 0, 0).syn(1_000, 7).data(100).no_ack(),
        s(MS, 0, 101).syn(1_000, 7),
        c(MS, 101, 1).data(50),
        s(2 * MS, 1, 151),
    ]);
    assert_eq!(
        (flow.upload.data.unique_bytes, flow.upload.acks.acked_bytes),
        (150, 150)
    );
    assert_eq!(flow.upload.ack_diff.count, 2);
}

fn closed_by(last: &[Seg]) -> Termination {
    run_one(&script(&[&handshake(MS), last])).termination
}

#[test]
fn each_end_has_a_word_of_its_own() {
    let fins = [
        c(2 * MS, 1, 1).fin(),
        s(3 * MS, 1, 2).fin(),
        c(4 * MS, 2, 2),
    ];
    assert_eq!(closed_by(&fins), Termination::Finished);
    assert_eq!(closed_by(&fins[..1]), Termination::HalfClosed);
    assert_eq!(
        closed_by(&[c(2 * MS, 1, 1).rst()]),
        Termination::ResetByClient
    );
    assert_eq!(
        closed_by(&[s(2 * MS, 1, 1).flags(RST | ACK)]),
        Termination::ResetByServer
    );
    assert_eq!(
        closed_by(&[fins[0], s(3 * MS, 1, 2).rst()]),
        Termination::ResetByServer
    );
    // What comes after both are done changes nothing.
    assert_eq!(
        closed_by(&[fins[0], fins[1], c(9 * MS, 2, 0).rst()]),
        Termination::Finished
    );
    // At once.
    assert_eq!(
        closed_by(&[c(2 * MS, 1, 1).fin(), s(2 * MS, 1, 1).fin()]),
        Termination::Finished
    );
}

#[test]
fn a_reset_is_counted_but_says_nothing_of_numbers() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            c(2 * MS, 1, 1).data(10),
            s(3 * MS, 0x7000_0000, 0x5000_0000).rst(),
        ],
    ]));
    assert_eq!(
        (flow.upload.acks.acked_bytes, flow.download.data.packets),
        (0, 2)
    );
    assert_eq!(flow.download.data.acked_unseen_bytes, 0);
}

/// A server that answers a SYN anew each time chooses another number each time: the last counts.
#[test]
fn another_syn_ack_before_the_handshake_ends_is_of_the_same_flow() {
    let flow = run_one(&[
        c(0, 0, 0).syn(1_000, 7).no_ack(),
        s(MS, 5_000_000, 1).syn(1_000, 7),
        c(1_000 * MS, 0, 0).syn(1_000, 7).no_ack(),
        s(1_001 * MS, 900_000, 1).syn(1_000, 7),
        c(1_002 * MS, 1, 900_001).data(10),
        s(1_003 * MS, 900_001, 11).data(100),
        c(1_004 * MS, 11, 900_101),
    ]);
    assert_eq!(flow.handshake.syn_retransmissions, 1);
    assert_eq!(flow.handshake.syn_ack_retransmissions, 1);
    assert_eq!(flow.handshake.syn_ack_to_ack_ns, Some(MS));
    let down = &flow.download;
    assert_eq!((down.data.packets, down.data.unique_bytes), (3, 100));
    assert_eq!(
        down.data.retransmitted_bytes + down.data.acked_unseen_bytes,
        0
    );
    assert_eq!((down.acks.acked_bytes, down.data.reordered), (100, 0));
    assert_eq!(
        down.rtt_by_pairs.count, 2,
        "of the last SYN/ACK and of the data"
    );
    assert_eq!(flow.upload.data.unique_bytes, 10);
}

#[test]
fn another_syn_ack_after_the_handshake_begins_a_new_flow() {
    let said = run(&script(&[
        &handshake(10 * MS),
        &[s(20 * MS, 700_000, 1).syn(1_000, 7)],
    ]));
    assert_eq!(said.flows.len(), 2);
}

/// A SYN at `at_ms` that is answered after a millisecond with the number 90,000, and 10 bytes each way.
fn opens(at_ms: u64) -> Vec<Seg> {
    let at = |ms| (at_ms + ms) * MS;
    vec![
        c(at(0), 0, 0).syn(1_000, 7).no_ack(),
        s(at(1), 90_000, 1).syn(1_000, 7),
        c(at(2), 1, 90_001).data(10),
        s(at(3), 90_001, 11).data(10),
        c(at(4), 11, 90_011),
    ]
}

/// What `before` leaves of a connection that opens after it.
fn opens_after(before: &[Seg], syns: u32) {
    let flow = run_one(&script(&[before, &opens(1_000)]));
    assert_eq!(flow.termination, Termination::Open);
    assert_eq!(flow.handshake.syn_retransmissions, syns);
    assert_eq!(flow.handshake.syn_ack_to_ack_ns, Some(MS));
    for way in [&flow.upload, &flow.download] {
        let (data, acks) = (way.data, way.acks);
        assert_eq!((data.unique_bytes, acks.acked_bytes), (10, 10));
        assert_eq!(
            (
                data.acked_unseen_bytes,
                data.retransmissions,
                data.reordered
            ),
            (0, 0, 0)
        );
        assert_eq!((acks.out_of_order, way.in_flight_max_bytes), (0, 10));
    }
}

#[test]
fn a_syn_that_was_refused_may_be_answered_the_next_time() {
    opens_after(
        &[
            c(0, 0, 0).syn(1_000, 7).no_ack(),
            s(MS, 0, 1).flags(RST | ACK),
        ],
        1,
    );
}

/// The server knows a connection of before: it answers with its numbers (RFC 9293 §3.5.1, RFC 5961 §4.2).
#[test]
fn an_ack_of_the_connection_before_is_reset_and_then_the_syn_answered() {
    opens_after(
        &[
            c(0, 0, 0).syn(1_000, 7).no_ack(),
            s(MS, 5_000, 777_000),
            c(2 * MS, 777_000, 0).rst(),
        ],
        1,
    );
}

/// Some guards answer a SYN so first, to see that its sender is there.
#[test]
fn a_syn_ack_with_a_wrong_number_answers_nothing() {
    opens_after(
        &[
            c(0, 0, 0).syn(1_000, 7).no_ack(),
            s(MS, 5_000, 999_999).syn(1_000, 7),
            c(2 * MS, 999_999, 0).rst(),
        ],
        1,
    );
}

#[test]
fn a_refusal_stands_if_nothing_answers_the_syn() {
    let flow = run_one(&[
        c(0, 0, 0).syn(1_000, 7).no_ack(),
        s(MS, 0, 1).flags(RST | ACK),
        c(1_000 * MS, 0, 0).syn(1_000, 7).no_ack(),
        s(1_001 * MS, 0, 1).flags(RST | ACK),
    ]);
    assert_eq!(flow.termination, Termination::ResetByServer);
    let scan = run_one(&[
        c(0, 0, 0).syn(1_000, 7).no_ack(),
        s(MS, 0, 1).syn(1_000, 7),
        c(2 * MS, 1, 0).rst(),
        s(1_000 * MS, 0, 1).syn(1_000, 7),
    ]);
    assert_eq!(scan.termination, Termination::ResetByClient);
}

/// The FIN of a connection between the same ports comes when the next has begun.
#[test]
fn a_late_fin_ends_no_later_connection() {
    let mut next = opens(1_000);
    next[0].segment.seq = 400_000;
    for seg in &mut next[1..] {
        let number = if seg.segment.from_low {
            &mut seg.segment.seq
        } else {
            &mut seg.segment.ack
        };
        *number += 400_000;
    }
    next.insert(1, s(1_000 * MS + 1, 500, 20).fin());
    let said = run(&script(&[
        &handshake(MS),
        &[c(2 * MS, 1, 1).data(19)],
        &next,
    ]));
    assert_eq!(said.flows.len(), 2);
    let flow = &said.flows[1];
    assert_eq!(flow.termination, Termination::Open);
    assert_eq!(flow.handshake.syn_to_syn_ack_ns, Some(MS));
    let (up, down) = (&flow.upload, &flow.download);
    assert_eq!((up.data.unique_bytes, up.acks.acked_bytes), (10, 10));
    assert_eq!((down.data.unique_bytes, down.acks.acked_bytes), (10, 10));
    assert_eq!(up.data.acked_unseen_bytes + down.data.acked_unseen_bytes, 0);
}

/// A capture without the SYN/ACK.
#[test]
fn what_acknowledges_more_than_the_syn_answers_it_too() {
    let flow = run_one(&[
        c(0, 0, 0).syn(1_000, 7).no_ack(),
        c(2 * MS, 1, 90_001).data(10),
        s(3 * MS, 90_001, 11).data(10),
        c(4 * MS, 11, 90_011),
    ]);
    let (up, down) = (&flow.upload, &flow.download);
    assert_eq!((up.data.unique_bytes, up.acks.acked_bytes), (10, 10));
    assert_eq!((down.data.unique_bytes, down.acks.acked_bytes), (10, 10));
}
