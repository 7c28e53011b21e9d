// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures that lack packets, or whose clock was set back.

use super::script::{MS, ScriptSegment, client, handshake, run_one, server};

const RTT_NS: u64 = 20 * MS;

/// An upload with 200 segments at the sender, from 1 s on. TSvals are in milliseconds.
fn upload() -> Vec<ScriptSegment> {
    let mut packets = handshake(RTT_NS);
    for number in 0..200 {
        let (sent_ns, seq) = (u64::from(100 + number) * MS, 1 + number * 1_000);
        let (sent, acked) = (100 + number, 120 + number);
        packets.push(client(sent_ns, seq, 1).data(1_000).stamps(sent, sent - 20));
        packets.push(server(sent_ns + RTT_NS, 1, seq + 1_000).stamps(acked, sent));
    }
    packets.sort_by_key(|packet| packet.segment.at_ns);
    for packet in &mut packets {
        packet.segment.at_ns += 1_000 * MS;
    }
    packets
}

/// Sets the clock back from a packet on.
fn set_back(packets: &mut [ScriptSegment], from: usize, by_ns: u64) {
    for packet in &mut packets[from..] {
        packet.segment.at_ns -= by_ns;
    }
}

#[test]
fn round_trips_leave_out_clock_steps() {
    for from in [1, 2, 150, 151] {
        let mut packets = upload();
        set_back(&mut packets, from, 500 * MS);
        let flow = run_one(&packets);
        assert_eq!(flow.clock_steps_back, 1);
        for rtt in [&flow.upload.rtt_by_acks, &flow.upload.rtt_by_timestamps] {
            assert_eq!((rtt.min, rtt.max), (RTT_NS, RTT_NS), "{from}");
            assert!(rtt.count >= 150, "{from}: {rtt:?}");
        }
        assert_eq!(flow.upload.tap_position.to_receiver_ns, Some(RTT_NS));
        assert!(
            flow.upload.verdict.contains("clock was set back"),
            "{}",
            flow.upload.verdict
        );
    }
}

/// The time of a packet is wrong by 15 ms, and known to be an estimate.
#[test]
fn round_trips_leave_out_estimated_times() {
    for at in [0, 1, 2, 3, 150, 151] {
        let mut packets = upload();
        let segment = &mut packets[at].segment;
        segment.at_ns += 15 * MS;
        segment.time_is_estimated = true;
        let flow = run_one(&packets);
        assert_eq!(flow.clock_steps_back, 0);
        let handshake = flow.handshake;
        let halves = [handshake.syn_to_syn_ack_ns, handshake.syn_ack_to_ack_ns];
        let expected = match at {
            0 => [None, Some(0)],
            1 => [None, None],
            2 => [Some(RTT_NS), None],
            _ => [Some(RTT_NS), Some(0)],
        };
        assert_eq!(halves, expected, "{at}");
        for rtt in [&flow.upload.rtt_by_acks, &flow.upload.rtt_by_timestamps] {
            assert_eq!((rtt.min, rtt.max), (RTT_NS, RTT_NS), "{at}");
            assert!(rtt.count >= 150, "{at}: {rtt:?}");
        }
    }
}

#[test]
fn disorder_of_packets_is_no_clock_step() {
    let mut packets = upload();
    packets[150].segment.at_ns -= 90 * MS;
    packets[151].segment.at_ns -= 90 * MS;
    packets[200].segment.at_ns -= 500 * MS;
    let flow = run_one(&packets);
    assert_eq!(flow.clock_steps_back, 0);
    assert!(
        !flow.upload.verdict.contains("clock"),
        "{}",
        flow.upload.verdict
    );
}

#[test]
fn verdict_says_that_capture_lacks_data() {
    let lacks = |every: u32| {
        let is_kept = |packet: &&ScriptSegment| {
            packet.segment.payload == 0 || (packet.segment.seq / 1_000) % every != 5
        };
        let packets: Vec<_> = upload().iter().filter(is_kept).copied().collect();
        let flow = run_one(&packets);
        assert!(flow.upload.data.acked_unseen_bytes > 0);
        flow.upload.verdict
    };
    let verdict = lacks(7);
    assert!(
        verdict.contains("The capture lacks 14 % of the data"),
        "{verdict}"
    );
    let verdict = lacks(200);
    assert!(
        !verdict.is_empty() && !verdict.contains("lacks"),
        "{verdict}"
    );
}

/// The first ACK in the capture is for data before it, and 20 segments after that were in flight. One that was lost
/// before is sent again.
#[test]
fn data_in_flight_when_the_capture_begins_is_not_missing() {
    let mut retransmitted_first = upload().split_off(90);
    let first = retransmitted_first
        .iter()
        .find(|packet| packet.segment.payload == 0);
    let acked = first.unwrap().segment.ack - 1_000;
    let at_ns = retransmitted_first[0].segment.at_ns;
    let begin = client(at_ns, acked, 1).data(1_000).stamps(1_090, 1_070);
    retransmitted_first.insert(0, begin);
    for packets in [
        upload().split_off(90),
        upload().split_off(91),
        retransmitted_first,
    ] {
        let flow = run_one(&packets);
        assert_eq!(flow.upload.data.acked_unseen_bytes, 0);
        assert!(flow.upload.data.unique_bytes > 100_000);
        assert_eq!(flow.upload.in_flight_max_bytes, 20_000);
    }
    let mut lacking = upload().split_off(90);
    let is_missing = |packet: &ScriptSegment| packet.segment.seq == 1 + 150 * 1_000;
    lacking.retain(|packet| packet.segment.payload == 0 || !is_missing(packet));
    assert_eq!(run_one(&lacking).upload.data.acked_unseen_bytes, 1_000);
}
