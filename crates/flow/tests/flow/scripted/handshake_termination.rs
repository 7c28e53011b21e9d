// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of handshakes and terminations.

use crate::scripted::script::{
    MS, Results, ScriptSegment, client, handshake, key, run, run_one, script, server, settings,
};
use longhaul_flow::Flows;
use longhaul_flow::record::Termination;
use longhaul_flow::segment::CapturePoint;
use longhaul_packet::tcp::{ACK, RST};

#[test]
fn records_handshake_and_syn_options() {
    let flow = run_one(&handshake(10 * MS));
    assert_eq!((flow.client.port, flow.server.port), (1_000, 80));
    assert_eq!(flow.handshake.syn_to_syn_ack_ns, Some(10 * MS));
    assert_eq!(flow.handshake.syn_ack_to_ack_ns, Some(0));
    let options = flow.upload.syn_options;
    assert_eq!(
        (
            options.mss,
            options.window_scale,
            options.sack,
            options.timestamps
        ),
        (Some(1_000), Some(7), true, false)
    );
    assert_eq!(flow.termination, Termination::Open);
    assert_eq!((flow.first_ns, flow.last_ns), (0, 10 * MS));
}

#[test]
fn lower_port_is_the_servers_without_syn() {
    let flow = run_one(&[server(0, 1, 1).data(10), client(MS, 1, 11)]);
    assert_eq!(flow.server.port, 80);
    assert_eq!(flow.download.data.unique_bytes, 10);
    let flow = run_one(&[client(0, 1, 1).data(10), server(MS, 1, 11)]);
    assert_eq!(flow.server.port, 80);
}

/// Systems give such ports to clients, and FTP servers take them for data.
#[test]
fn first_sender_is_client_without_syn_and_with_high_ports() {
    let segments = [server(0, 1, 1).data(10), client(MS, 1, 11)];
    let client_of = |ports: [u16; 2]| {
        let (mut flows, mut results) = (Flows::new(settings()), Results::default());
        let mut key = key(ports[0]);
        key.high.port = ports[1];
        for segment in segments.map(|one| one.segment) {
            flows.process_segment(0, CapturePoint(0), &key, &segment, &mut results);
        }
        flows.finish(&mut results);
        results.flows[0].client.port
    };
    assert_eq!(client_of([32_768, 40_000]), 40_000);
    assert_eq!(client_of([40_000, 32_768]), 32_768);
    assert_eq!(client_of([32_767, 40_000]), 40_000);
    assert_eq!(client_of([40_000, 32_767]), 40_000);
    assert_eq!(client_of([5_000, 5_000]), 5_000);
}

#[test]
fn sender_of_syn_ack_is_server() {
    let flow = run_one(&[server(0, 0, 1).syn(1_000, 7), client(MS, 1, 1)]);
    assert_eq!(flow.client.port, 1_000);
    assert_eq!(
        (
            flow.handshake.syn_to_syn_ack_ns,
            flow.handshake.syn_ack_to_ack_ns
        ),
        (None, Some(MS))
    );
    // The client's scale is unknown; the server's is assumed to be in use.
    assert_eq!(flow.upload.acks.window_scale, Some(7));
    assert_eq!(flow.download.acks.window_scale, None);
}

#[test]
fn accepts_simultaneous_open() {
    let flow = run_one(&[
        client(0, 0, 0).syn(1_000, 7).without_ack(),
        server(MS, 0, 0).syn(1_000, 7).without_ack(),
        client(10 * MS, 0, 1).syn(1_000, 7),
        server(11 * MS, 0, 1).syn(1_000, 7),
        client(12 * MS, 1, 1).data(10),
        server(20 * MS, 1, 11),
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
fn counts_data_on_syn() {
    let flow = run_one(&[
        client(0, 0, 0).syn(1_000, 7).data(100).without_ack(),
        server(MS, 0, 101).syn(1_000, 7),
        client(MS, 101, 1).data(50),
        server(2 * MS, 1, 151),
    ]);
    assert_eq!(
        (flow.upload.data.unique_bytes, flow.upload.acks.acked_bytes),
        (150, 150)
    );
    assert_eq!(flow.upload.ack_diff.count, 2);
}

fn termination_after(last: &[ScriptSegment]) -> Termination {
    run_one(&script(&[&handshake(MS), last])).termination
}

#[test]
fn records_termination_by_each_end() {
    let fins = [
        client(2 * MS, 1, 1).fin(),
        server(3 * MS, 1, 2).fin(),
        client(4 * MS, 2, 2),
    ];
    assert_eq!(termination_after(&fins), Termination::Finished);
    assert_eq!(termination_after(&fins[..1]), Termination::HalfClosed);
    assert_eq!(
        termination_after(&[client(2 * MS, 1, 1).rst()]),
        Termination::ResetByClient
    );
    assert_eq!(
        termination_after(&[server(2 * MS, 1, 1).flags(RST | ACK)]),
        Termination::ResetByServer
    );
    assert_eq!(
        termination_after(&[fins[0], server(3 * MS, 1, 2).rst()]),
        Termination::ResetByServer
    );
    // Packets after both ends have closed change nothing.
    assert_eq!(
        termination_after(&[fins[0], fins[1], client(9 * MS, 2, 0).rst()]),
        Termination::Finished
    );
    // Both FINs at once.
    assert_eq!(
        termination_after(&[client(2 * MS, 1, 1).fin(), server(2 * MS, 1, 1).fin()]),
        Termination::Finished
    );
}

#[test]
fn ignores_numbers_of_reset() {
    let flow = run_one(&script(&[
        &handshake(MS),
        &[
            client(2 * MS, 1, 1).data(10),
            server(3 * MS, 0x7000_0000, 0x5000_0000).rst(),
        ],
    ]));
    assert_eq!(
        (flow.upload.acks.acked_bytes, flow.download.data.packets),
        (0, 2)
    );
    assert_eq!(flow.download.data.acked_unseen_bytes, 0);
}

/// A server without state chooses another number for each SYN/ACK: the last one counts.
#[test]
fn new_syn_ack_before_handshake_end_is_same_flow() {
    let flow = run_one(&[
        client(0, 0, 0).syn(1_000, 7).without_ack(),
        server(MS, 5_000_000, 1).syn(1_000, 7),
        client(1_000 * MS, 0, 0).syn(1_000, 7).without_ack(),
        server(1_001 * MS, 900_000, 1).syn(1_000, 7),
        client(1_002 * MS, 1, 900_001).data(10),
        server(1_003 * MS, 900_001, 11).data(100),
        client(1_004 * MS, 11, 900_101),
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
        down.rtt_by_acks.count, 2,
        "of the last SYN/ACK and of the data"
    );
    assert_eq!(flow.upload.data.unique_bytes, 10);
}

#[test]
fn new_syn_ack_after_handshake_begins_flow() {
    let results = run(&script(&[
        &handshake(10 * MS),
        &[server(20 * MS, 700_000, 1).syn(1_000, 7)],
    ]));
    assert_eq!(results.flows.len(), 2);
}

/// Returns a connection whose SYN at `at_ms` is answered after a millisecond with the number 90,000, and 10 bytes in
/// each direction.
fn connection_at(at_ms: u64) -> Vec<ScriptSegment> {
    let at = |ms| (at_ms + ms) * MS;
    vec![
        client(at(0), 0, 0).syn(1_000, 7).without_ack(),
        server(at(1), 90_000, 1).syn(1_000, 7),
        client(at(2), 1, 90_001).data(10),
        server(at(3), 90_001, 11).data(10),
        client(at(4), 11, 90_011),
    ]
}

/// Asserts that the segments `before` do not affect the connection that opens after them.
fn assert_opens_after(before: &[ScriptSegment], syns: u32) {
    let flow = run_one(&script(&[before, &connection_at(1_000)]));
    assert_eq!(flow.termination, Termination::Open);
    assert_eq!(flow.handshake.syn_retransmissions, syns);
    assert_eq!(flow.handshake.syn_ack_to_ack_ns, Some(MS));
    for direction in [&flow.upload, &flow.download] {
        let (data, acks) = (direction.data, direction.acks);
        assert_eq!((data.unique_bytes, acks.acked_bytes), (10, 10));
        assert_eq!(
            (
                data.acked_unseen_bytes,
                data.retransmissions,
                data.reordered
            ),
            (0, 0, 0)
        );
        assert_eq!((acks.out_of_order, direction.in_flight_max_bytes), (0, 10));
    }
}

#[test]
fn accepts_answer_after_refused_syn() {
    assert_opens_after(
        &[
            client(0, 0, 0).syn(1_000, 7).without_ack(),
            server(MS, 0, 1).flags(RST | ACK),
        ],
        1,
    );
}

/// The server has an old connection and answers with its numbers (RFC 9293 §3.5.1, RFC 5961 §4.2).
#[test]
fn accepts_answer_after_ack_of_old_connection() {
    assert_opens_after(
        &[
            client(0, 0, 0).syn(1_000, 7).without_ack(),
            server(MS, 5_000, 777_000),
            client(2 * MS, 777_000, 0).rst(),
        ],
        1,
    );
}

/// Some firewalls answer a SYN like this first, to verify its sender.
#[test]
fn ignores_syn_ack_with_wrong_number() {
    assert_opens_after(
        &[
            client(0, 0, 0).syn(1_000, 7).without_ack(),
            server(MS, 5_000, 999_999).syn(1_000, 7),
            client(2 * MS, 999_999, 0).rst(),
        ],
        1,
    );
}

#[test]
fn keeps_refusal_without_answer() {
    let flow = run_one(&[
        client(0, 0, 0).syn(1_000, 7).without_ack(),
        server(MS, 0, 1).flags(RST | ACK),
        client(1_000 * MS, 0, 0).syn(1_000, 7).without_ack(),
        server(1_001 * MS, 0, 1).flags(RST | ACK),
    ]);
    assert_eq!(flow.termination, Termination::ResetByServer);
    let scan = run_one(&[
        client(0, 0, 0).syn(1_000, 7).without_ack(),
        server(MS, 0, 1).syn(1_000, 7),
        client(2 * MS, 1, 0).rst(),
        server(1_000 * MS, 0, 1).syn(1_000, 7),
    ]);
    assert_eq!(scan.termination, Termination::ResetByClient);
}

/// The FIN of an earlier connection between the same ports comes after the next one has begun.
#[test]
fn ignores_fin_of_previous_connection() {
    let mut next = connection_at(1_000);
    next[0].segment.seq = 400_000;
    for seg in &mut next[1..] {
        let number = if seg.segment.from_low {
            &mut seg.segment.seq
        } else {
            &mut seg.segment.ack
        };
        *number += 400_000;
    }
    next.insert(1, server(1_000 * MS + 1, 500, 20).fin());
    let results = run(&script(&[
        &handshake(MS),
        &[client(2 * MS, 1, 1).data(19)],
        &next,
    ]));
    assert_eq!(results.flows.len(), 2);
    let flow = &results.flows[1];
    assert_eq!(flow.termination, Termination::Open);
    assert_eq!(flow.handshake.syn_to_syn_ack_ns, Some(MS));
    let (up, down) = (&flow.upload, &flow.download);
    assert_eq!((up.data.unique_bytes, up.acks.acked_bytes), (10, 10));
    assert_eq!((down.data.unique_bytes, down.acks.acked_bytes), (10, 10));
    assert_eq!(up.data.acked_unseen_bytes + down.data.acked_unseen_bytes, 0);
}

/// A capture without the SYN/ACK.
#[test]
fn ack_of_more_than_syn_answers_it() {
    let flow = run_one(&[
        client(0, 0, 0).syn(1_000, 7).without_ack(),
        client(2 * MS, 1, 90_001).data(10),
        server(3 * MS, 90_001, 11).data(10),
        client(4 * MS, 11, 90_011),
    ]);
    let (up, down) = (&flow.upload, &flow.download);
    assert_eq!((up.data.unique_bytes, up.acks.acked_bytes), (10, 10));
    assert_eq!((down.data.unique_bytes, down.acks.acked_bytes), (10, 10));
}
