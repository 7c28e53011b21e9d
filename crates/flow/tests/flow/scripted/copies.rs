// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that were captured more than once, as on all interfaces of a router.

use super::script::{MS, ScriptSegment, US, client, handshake, run_one, script, server};
use longhaul_flow::record::{Copies, Direction, Flow};
use longhaul_packet::tcp::{ACK, FIN, PSH};

/// An upload of 24 segments whose tenth is lost behind the capture point: three duplicate ACKs, one retransmission.
fn lossy_upload() -> Vec<ScriptSegment> {
    let mut packets = handshake(20 * MS);
    for number in 0..24 {
        let (at_ns, seq) = (u64::from(30 + number) * MS, 1 + number * 1_000);
        packets.push(client(at_ns, seq, 1).data(1_000));
        let acked = if number < 9 { seq + 1_000 } else { 9_001 };
        packets.push(server(at_ns + 500 * US, 1, acked));
        if number == 12 {
            packets.push(client(at_ns + 600 * US, 9_001, 1).data(1_000));
        }
    }
    packets.push(server(60 * MS, 1, 24_001));
    packets.push(client(61 * MS, 24_001, 1).fin());
    packets
}

/// Sets the TTL, and identifications that count up; `ipv6` has none.
fn sent(packets: &[ScriptSegment], ipv6: bool) -> Vec<ScriptSegment> {
    let numbered = (100..).zip(packets);
    numbered
        .map(|(id, packet)| packet.ip(if ipv6 { 0 } else { id }, 64))
        .collect()
}

/// Returns the packet as it is captured again, `after_ns` later.
fn again(packet: &ScriptSegment, after_ns: u64, ttl: u8) -> ScriptSegment {
    let mut copy = packet.ip(packet.segment.ip_id, ttl);
    copy.segment.at_ns += after_ns;
    copy
}

/// Adds copies behind each packet: the time until then, and the TTL.
fn with_copies(packets: &[ScriptSegment], copies: &[(u64, u8)]) -> Vec<ScriptSegment> {
    let group = |packet: &ScriptSegment| {
        let copies = copies
            .iter()
            .map(|&(after_ns, ttl)| again(packet, after_ns, ttl));
        [*packet].into_iter().chain(copies).collect::<Vec<_>>()
    };
    packets.iter().flat_map(group).collect()
}

/// Asserts that the figures of `captured` are those of `lossy_upload`. Returns the copies.
fn assert_same(captured: &[ScriptSegment]) -> [Option<Copies>; 2] {
    let (mut flow, wanted) = (run_one(captured), run_one(&lossy_upload()));
    let counts = |flow: &Flow| {
        let of = |direction: &Direction| (direction.data, direction.acks);
        [of(&flow.upload), of(&flow.download)]
    };
    assert_eq!(counts(&flow), counts(&wanted));
    let copies = [flow.upload.copies.take(), flow.download.copies.take()];
    assert!(flow == wanted);
    copies
}

#[test]
fn each_packet_counts_once_on_a_router() {
    for ipv6 in [false, true] {
        let packets = sent(&lossy_upload(), ipv6);
        let copies = assert_same(&with_copies(&packets, &[(20 * US, 63)]));
        let wanted = |packets| Copies {
            packets,
            copies: packets,
            ttl_difference_max: 1,
            delay_mean_ns: 20 * US,
        };
        assert_eq!(copies, [Some(wanted(28)), Some(wanted(26))]);
    }
}

/// On a bridge, the TTL is equal.
#[test]
fn each_packet_counts_once_on_a_bridge() {
    for ipv6 in [false, true] {
        let packets = sent(&lossy_upload(), ipv6);
        let bridged = with_copies(&packets, &[(3 * US, 64), (5 * US, 64)]);
        let copies = assert_same(&bridged);
        let upload = copies[0].unwrap();
        assert_eq!((upload.packets, upload.copies), (28, 56));
        assert_eq!(upload.ttl_difference_max, 0);
    }
}

/// A bridge with an address routes, too: in, on the bridge, out.
#[test]
fn copies_may_have_several_ttls() {
    let packets = sent(&lossy_upload(), true);
    let routed = with_copies(&packets, &[(3 * US, 64), (5 * US, 63)]);
    let copies = assert_same(&routed);
    assert_eq!(copies[1].unwrap().copies, 52);
}

/// Interrupts deliver several packets at once: in, in, in, out, out, out.
#[test]
fn copies_may_come_behind_other_packets() {
    for ttl in [63, 64] {
        let acks = |at_ns| (0..3).map(move |n| server(at_ns + n * 2 * US, 1, 9_001).ip(0, 64));
        let mut packets = sent(&lossy_upload(), true);
        packets.extend(acks(70 * MS));
        let mut captured = with_copies(&packets[..packets.len() - 3], &[(US, ttl)]);
        captured.extend(acks(70 * MS));
        captured.extend(acks(70 * MS).map(|ack| again(&ack, 9 * US, ttl)));
        let flow = run_one(&captured);
        assert_eq!(flow.upload.acks.pure, run_one(&packets).upload.acks.pure);
        assert_eq!(flow.download.copies.unwrap().copies, 29);
    }
}

/// Before its queue and behind it.
#[test]
fn copies_may_wait_in_the_queue_of_a_router() {
    let packets: Vec<_> = (0..600)
        .map(|n| {
            client(u64::from(n) * 100 * US, 1 + n * 1_000, 1)
                .data(1_000)
                .ip(n as u16 + 1, 64)
        })
        .collect();
    let mut captured = with_copies(&packets[..1], &[(US, 63)]);
    captured.extend(&packets[1..]);
    captured.extend(packets[1..].iter().map(|packet| again(packet, 50 * MS, 63)));
    captured.sort_by_key(|packet| packet.segment.at_ns);
    let flow = run_one(&captured);
    assert_eq!(flow.upload.data.packets, 600);
    assert_eq!(flow.upload.copies.unwrap().packets, 600);
}

#[test]
fn segments_of_a_super_packet_are_its_copy() {
    let whole = |seq: u32, id| {
        client(MS * u64::from(id), seq, 1)
            .data(2_500)
            .segments(3)
            .flags(ACK | PSH | FIN)
            .ip(id, 64)
    };
    let part = |seq: u32, payload, id: u16| {
        client(MS * u64::from(id) + 5 * US, seq, 1)
            .data(payload)
            .ip(id, 63)
    };
    let parts = |seq: u32, id: u16| {
        let last = part(seq + 2_000, 500, id + 2).flags(ACK | PSH | FIN);
        let mut parts = [part(seq, 1_000, id), part(seq + 1_000, 1_000, id + 1), last];
        parts
            .iter_mut()
            .for_each(|part| part.segment.at_ns = MS * u64::from(id) + 5 * US);
        parts
    };
    let flow = run_one(&script(&[&[whole(1, 10)], &parts(1, 10)]));
    assert_eq!(flow.upload.data.packets, 1);
    let copies = flow.upload.copies.unwrap();
    assert_eq!((copies.packets, copies.copies), (1, 1));
    // Before offloading merges them, and behind.
    let flow = run_one(&script(&[&parts(1, 10), &[whole(1, 10)]]));
    assert_eq!(flow.upload.data.packets, 3);
    assert_eq!(flow.upload.data.retransmissions, 0);
    // The same bytes once more, as a retransmission.
    let flow = run_one(&script(&[&[whole(1, 10)], &parts(1, 13)]));
    assert_eq!(flow.upload.data.retransmissions, 3);
    assert_eq!(flow.upload.copies, None);
    // Only its end: retransmissions whose identifications happen to follow.
    let flow = run_one(&script(&[&[whole(1, 10)], &parts(1, 10)[1..]]));
    assert_eq!(flow.upload.data.retransmissions, 2);
    assert_eq!(flow.upload.copies, None);
}

/// With IPv6 and a round trip below a millisecond, retransmissions and duplicate ACKs may be equal to packets before.
#[test]
fn equal_packets_of_ipv6_are_no_copies_by_themselves() {
    let mut packets = handshake(100 * US);
    for number in 0..40u32 {
        let at_ns = MS + u64::from(number) * 200 * US;
        packets.push(client(at_ns, 1 + number * 1_000, 1).data(1_000));
        let acks = if number % 3 == 0 { 3 } else { 1 };
        packets.extend((0..acks).map(|n| server(at_ns + 100 * US + n * US, 1, 1 + number * 1_000)));
        if number % 4 == 0 {
            packets.push(client(at_ns + 150 * US, 1 + number * 1_000, 1).data(1_000));
        }
    }
    let (unknown_ttl, packets) = (run_one(&packets), sent(&packets, true));
    assert_eq!(unknown_ttl.upload.data.retransmissions, 10);
    assert!(run_one(&packets) == unknown_ttl);
}

/// macOS sends some ACKs several times, at once. Its data comes once, so these are no copies.
#[test]
fn repeated_acks_beside_data_are_no_copies() {
    let mut packets = handshake(100 * US);
    for number in 0..30u32 {
        let at_ns = MS + u64::from(number) * MS;
        let (seq, ack) = (1 + number * 100, 1 + number * 200);
        packets.push(client(at_ns, seq, ack).data(100));
        for half in 1..3 {
            let at_ns = at_ns + u64::from(half) * 100 * US;
            packets.push(server(at_ns, ack + (half - 1) * 100, seq + 100).data(100));
            let repeated = |n: u64| client(at_ns + n * 8 * US, seq + 100, ack + half * 100);
            packets.extend((1..4_u64).map(repeated));
        }
    }
    let flow = run_one(&sent(&packets, true));
    assert_eq!(flow.upload.copies, None);
    assert_eq!(flow.download.acks.pure, 1 + 30 * 2 * 3);
}

/// Equal SYNs come a second later at the earliest. One that comes at once was captured twice.
#[test]
fn retransmitted_syn_is_no_copy() {
    let syn = |at_ns| client(at_ns, 0, 0).syn(1_000, 7).without_ack().ip(0, 64);
    let flow = run_one(&[syn(0), syn(MS), syn(1_000 * MS), syn(1_001 * MS)]);
    assert_eq!(flow.handshake.syn_retransmissions, 1);
    assert_eq!(flow.upload.copies.unwrap().copies, 2);
}

/// Some senders have one identification for all packets.
#[test]
fn constant_identification_identifies_nothing() {
    let data = |at_ns, seq| client(at_ns, seq, 1).data(1_000).ip(7, 64);
    let flow = run_one(&[
        data(0, 1),
        data(MS, 1_001),
        data(2 * MS, 2_001),
        data(3 * MS, 1_001),
    ]);
    assert_eq!(flow.upload.data.retransmissions, 1);
    assert_eq!(flow.upload.copies, None);
}

/// Eight packets show that a capture of IPv6 without the SYN has copies.
#[test]
fn learns_from_data_that_ipv6_has_copies() {
    let packets: Vec<_> = (0..40)
        .map(|n| {
            client(u64::from(n) * MS, 1 + n * 1_000, 1)
                .data(1_000)
                .ip(0, 64)
        })
        .collect();
    let flow = run_one(&with_copies(&packets, &[(10 * US, 63)]));
    assert_eq!(flow.upload.data.retransmissions, 8);
    assert_eq!(flow.upload.copies.unwrap().copies, 32);
}
