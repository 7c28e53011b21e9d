// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whatever comes for a connection, it neither panics nor says more than it may, and what was not sent is acknowledged to
//! nobody.

use crate::testbed::{assert_bytes, bytes_up_to, config, native, open};
use longhaul_udt::{
    Seq,
    packet::{Ack, Body, Data, LossReport, Message, Packet, Rates},
};
use longhaul_units::Time;
use proptest::{collection::vec, prelude::*};

const FIRST: u32 = 0x7fff_fff0;

/// A number near the window, or anywhere.
fn seq() -> impl Strategy<Value = Seq> {
    prop_oneof![
        (0_u32..100).prop_map(|n| Seq::new(FIRST).plus(n)),
        (0_u32..100).prop_map(|n| Seq::new(FIRST).minus(n)),
        any::<u32>().prop_map(Seq::new),
    ]
}

#[derive(Debug, Clone)]
enum Said {
    Data(Seq, Vec<u8>),
    Ack(Seq, u32, u32),
    Light(Seq),
    Nak(Vec<(Seq, Seq)>),
    Ack2(u32),
    Drop(Seq, Seq),
    Raw(Vec<u8>),
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        (seq(), vec(any::<u8>(), 0..2000)).prop_map(|(seq, bytes)| Said::Data(seq, bytes)),
        (seq(), any::<u32>(), any::<u32>())
            .prop_map(|(next, rtt, room)| Said::Ack(next, rtt, room)),
        seq().prop_map(Said::Light),
        vec((seq(), seq()), 0..5).prop_map(Said::Nak),
        any::<u32>().prop_map(Said::Ack2),
        (seq(), seq()).prop_map(|(first, last)| Said::Drop(first, last)),
        vec(any::<u8>(), 0..80).prop_map(Said::Raw),
    ]
}

fn datagram(said: &Said) -> Vec<u8> {
    let mut encoded = Vec::new();
    let body = match said {
        Said::Raw(bytes) => {
            let mut raw = bytes.clone();
            if raw.len() >= 16 {
                raw[12..16].copy_from_slice(&11_u32.to_be_bytes());
            }
            return raw;
        }
        Said::Data(seq, payload) => Body::Data(Data {
            seq: *seq,
            message: Message {
                number: longhaul_udt::MessageNumber::new(seq.get() % 5),
                is_first: payload.len() % 3 == 0,
                is_last: payload.len() % 5 == 0,
                in_order: payload.len() % 7 == 0,
            },
            payload,
        }),
        Said::Ack(next, rtt_us, room) => Body::Ack(Ack {
            number: 7,
            next: *next,
            rtt_us: *rtt_us,
            rtt_var_us: *room,
            available_buffer: *room,
            rates: Some(Rates {
                arrival_rate: *rtt_us,
                capacity: *room,
            }),
        }),
        Said::Light(next) => Body::LightAck(*next),
        Said::Nak(runs) => {
            LossReport::encode(runs.iter().copied(), 1000, &mut encoded);
            Body::Nak(LossReport::from_encoded(&encoded))
        }
        Said::Ack2(number) => Body::Ack2(*number),
        Said::Drop(first, last) => Body::Drop {
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

const PIECE: usize = 8;

/// The packet of a stream at a place, whole.
fn piece(number: u32) -> Vec<u8> {
    let begin = number as usize * PIECE;
    let mut payload = vec![0; PIECE];
    bytes_up_to(u64::MAX)(begin as u64, &mut payload);
    datagram(&Said::Data(Seq::new(FIRST).plus(number), payload))
}

/// Packets of a stream and what is said to be given up of it.
fn drops() -> impl Strategy<Value = Vec<(Vec<u32>, Seq, Seq)>> {
    vec((vec(0_u32..100, 0..40), seq(), seq()), 1..20)
}

proptest! {
    #[test]
    fn nothing_of_a_stream_can_be_given_up(all in drops()) {
        let small = longhaul_udt::Config { send_packets: 64, receive_packets: 64, ..config() };
        let [mut end, _] = open(small, Seq::new(FIRST), &native);
        let (mut read, mut to) = (0, [0; 4096]);
        let mut hear = |datagram: &[u8]| {
            end.handle(&Packet::read(datagram).unwrap(), Time::ZERO);
            let length = end.read(&mut to);
            assert_bytes(read, &to[..length]);
            read += length as u64;
            read
        };
        for (numbers, first, last) in all {
            for number in numbers {
                hear(&piece(number));
            }
            hear(&datagram(&Said::Drop(first, last)));
        }
        let read = (0..100).map(|number| hear(&piece(number))).last();
        prop_assert_eq!(read, Some(100 * PIECE as u64));
    }

    #[test]
    fn anything_may_come(all in vec((said(), 0_u64..400), 0..60)) {
        let small = longhaul_udt::Config { send_packets: 64, receive_packets: 64, ..config() };
        let [mut end, _] = open(small, Seq::new(FIRST), &native);
        let mut now = Time::ZERO;
        let mut buffer = vec![0; 4096];
        for (said, millis) in all {
            bytes_up_to(u64::MAX)(0, &mut buffer);
            end.write(&buffer);
            let datagram = datagram(&said);
            if let Some(packet) = Packet::read(&datagram) {
                end.handle(&packet, now);
            }
            // No more than a window, its repetitions and a few words at a time.
            let mut sent = 0;
            let mut to = Vec::new();
            while end.transmit(now, &mut to) {
                prop_assert!(to.len() <= 1472);
                to.clear();
                sent += 1;
                prop_assert!(sent < 300);
            }
            // Who drives it would come back at once, again and again.
            prop_assert!(end.deadline().is_none_or(|deadline| deadline > now), "{end:?}");
            end.read(&mut buffer);
            now += Time::from_millis(millis);
        }
    }

    #[test]
    fn what_was_not_sent_is_not_acknowledged_or_lost(ahead in 1_u32..1 << 30) {
        let [mut end, _] = open(config(), Seq::new(FIRST), &native);
        end.write(&[1; 100]);
        let now = Time::from_millis(1);
        prop_assert!(end.transmit(now, &mut Vec::new()));
        let beyond = Seq::new(FIRST).plus(ahead);
        for said in [Said::Ack(beyond.plus(1), 1000, 100), Said::Light(beyond.plus(1)), Said::Nak(vec![(Seq::new(FIRST), beyond)])] {
            let datagram = datagram(&said);
            end.handle(&Packet::read(&datagram).unwrap(), now);
        }
        prop_assert!(!end.is_flushed() && end.close_reason().is_none());
        prop_assert_eq!(end.counts().lost, 0);
    }
}
