// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary packets sent to a connection. The connection does not panic, sends no more than it may, and accepts no
//! acknowledgement of unsent packets.

use crate::testbed::{assert_bytes, bytes_up_to, config, native, open};
use longhaul_udt::{
    Seq,
    packet::{Ack, Body, Data, LossReport, Message, Packet, Rates},
};
use longhaul_units::Time;
use proptest::{collection::vec, prelude::*};

/// First sequence number of the connection, shortly before the wrap.
const FIRST: u32 = 0x7fff_fff0;

/// Generates a sequence number near the first one, or any other.
fn seq() -> impl Strategy<Value = Seq> {
    prop_oneof![
        (0_u32..100).prop_map(|n| Seq::new(FIRST).plus(n)),
        (0_u32..100).prop_map(|n| Seq::new(FIRST).minus(n)),
        any::<u32>().prop_map(Seq::new),
    ]
}

/// Packet that the peer sends.
#[derive(Debug, Clone)]
enum PeerPacket {
    Data(Seq, Vec<u8>),
    /// Next expected packet, RTT in microseconds, and free space of the receive buffer in packets.
    Ack(Seq, u32, u32),
    LightAck(Seq),
    /// First and last packet of each run of lost packets.
    Nak(Vec<(Seq, Seq)>),
    Ack2(u32),
    Drop(Seq, Seq),
    /// Datagram of arbitrary bytes, with the connection's ID if it is long enough.
    Raw(Vec<u8>),
}

fn peer_packet() -> impl Strategy<Value = PeerPacket> {
    prop_oneof![
        (seq(), vec(any::<u8>(), 0..2000)).prop_map(|(seq, bytes)| PeerPacket::Data(seq, bytes)),
        (seq(), any::<u32>(), any::<u32>())
            .prop_map(|(next, rtt_us, free_packets)| PeerPacket::Ack(next, rtt_us, free_packets)),
        seq().prop_map(PeerPacket::LightAck),
        vec((seq(), seq()), 0..5).prop_map(PeerPacket::Nak),
        any::<u32>().prop_map(PeerPacket::Ack2),
        (seq(), seq()).prop_map(|(first, last)| PeerPacket::Drop(first, last)),
        vec(any::<u8>(), 0..80).prop_map(PeerPacket::Raw),
    ]
}

/// Encodes a packet as a datagram.
fn encode(packet: &PeerPacket) -> Vec<u8> {
    let mut loss_report = Vec::new();
    let body = match packet {
        PeerPacket::Raw(bytes) => {
            let mut raw = bytes.clone();
            if raw.len() >= 16 {
                raw[12..16].copy_from_slice(&11_u32.to_be_bytes());
            }
            return raw;
        }
        PeerPacket::Data(seq, payload) => Body::Data(Data {
            seq: *seq,
            message: Message {
                number: longhaul_udt::MessageNumber::new(seq.get() % 5),
                is_first: payload.len() % 3 == 0,
                is_last: payload.len() % 5 == 0,
                in_order: payload.len() % 7 == 0,
            },
            payload,
        }),
        // The other fields need arbitrary numbers, too.
        PeerPacket::Ack(next, rtt_us, free_packets) => Body::Ack(Ack {
            number: 7,
            next: *next,
            rtt_us: *rtt_us,
            rtt_var_us: *free_packets,
            available_buffer: *free_packets,
            rates: Some(Rates {
                arrival_rate: *rtt_us,
                capacity: *free_packets,
            }),
            out_of_order: Some(*rtt_us),
        }),
        PeerPacket::LightAck(next) => Body::LightAck(*next),
        PeerPacket::Nak(runs) => {
            LossReport::encode(runs.iter().copied(), 1000, &mut loss_report);
            Body::Nak(LossReport::from_encoded(&loss_report))
        }
        PeerPacket::Ack2(number) => Body::Ack2(*number),
        PeerPacket::Drop(first, last) => Body::Drop {
            message: longhaul_udt::MessageNumber::new(1),
            first: *first,
            last: *last,
        },
    };
    let packet = Packet {
        timestamp_us: 0,
        destination: 11,
        body,
    };
    let mut bytes = Vec::new();
    packet.write(&mut bytes);
    bytes
}

/// Payload of a packet of the test stream, in bytes.
const PAYLOAD_LEN: usize = 8;

/// Returns packet `number` of the test stream as a datagram.
fn stream_datagram(number: u32) -> Vec<u8> {
    let begin = number as usize * PAYLOAD_LEN;
    let mut payload = vec![0; PAYLOAD_LEN];
    bytes_up_to(u64::MAX)(begin as u64, &mut payload);
    encode(&PeerPacket::Data(Seq::new(FIRST).plus(number), payload))
}

/// Generates rounds. Each has numbers of stream packets, then the first and last packet of a drop request.
fn rounds_with_drops() -> impl Strategy<Value = Vec<(Vec<u32>, Seq, Seq)>> {
    vec((vec(0_u32..100, 0..40), seq(), seq()), 1..20)
}

proptest! {
    #[test]
    fn ignores_drop_requests_for_a_stream(rounds in rounds_with_drops()) {
        let small = longhaul_udt::Config { send_packets: 64, receive_packets: 64, ..config() };
        let [mut end, _] = open(small, Seq::new(FIRST), &native);
        let (mut read, mut to) = (0, [0; 4096]);
        let mut receive = |datagram: &[u8]| {
            end.handle(&Packet::read(datagram).unwrap(), Time::ZERO);
            let length = end.read(&mut to);
            assert_bytes(read, &to[..length]);
            read += length as u64;
            read
        };
        for (numbers, first, last) in rounds {
            for number in numbers {
                receive(&stream_datagram(number));
            }
            receive(&encode(&PeerPacket::Drop(first, last)));
        }
        let read = (0..100).map(|number| receive(&stream_datagram(number))).last();
        prop_assert_eq!(read, Some(100 * PAYLOAD_LEN as u64));
    }

    #[test]
    fn handles_arbitrary_packets(packets in vec((peer_packet(), 0_u64..400), 0..60)) {
        let small = longhaul_udt::Config { send_packets: 64, receive_packets: 64, ..config() };
        let [mut end, _] = open(small, Seq::new(FIRST), &native);
        let mut now = Time::ZERO;
        let mut buffer = vec![0; 4096];
        for (packet, millis) in packets {
            bytes_up_to(u64::MAX)(0, &mut buffer);
            end.write(&buffer);
            let datagram = encode(&packet);
            if let Some(packet) = Packet::read(&datagram) {
                end.handle(&packet, now);
            }
            // The limit is a window, its retransmissions and a few control packets.
            let mut sent = 0;
            let mut to = Vec::new();
            while end.transmit(now, &mut to) {
                prop_assert!(to.len() <= 1472);
                to.clear();
                sent += 1;
                prop_assert!(sent < 300);
            }
            // A deadline that is not in the future would make the driver loop.
            prop_assert!(end.deadline().is_none_or(|deadline| deadline > now), "{end:?}");
            end.read(&mut buffer);
            now += Time::from_millis(millis);
        }
    }

    #[test]
    fn ignores_acks_and_naks_of_unsent_packets(ahead in 1_u32..1 << 30) {
        let [mut end, _] = open(config(), Seq::new(FIRST), &native);
        end.write(&[1; 100]);
        let now = Time::from_millis(1);
        prop_assert!(end.transmit(now, &mut Vec::new()));
        let beyond = Seq::new(FIRST).plus(ahead);
        let next = beyond.plus(1);
        let losses = vec![(Seq::new(FIRST), beyond)];
        for packet in [PeerPacket::Ack(next, 1000, 100), PeerPacket::LightAck(next), PeerPacket::Nak(losses)] {
            let datagram = encode(&packet);
            end.handle(&Packet::read(&datagram).unwrap(), now);
        }
        prop_assert!(!end.is_flushed() && end.close_reason().is_none());
        prop_assert_eq!(end.counts().lost, 0);
    }
}
