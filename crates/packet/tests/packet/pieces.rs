// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is read does not depend on how much is shown at once, whatever is in the file.

use crate::build::{Pcap, Pcapng};
use crate::reading::read_in_pieces;
use proptest::prelude::*;

/// Both formats, with packets of these lengths.
fn pcap(big: bool, magic: u32, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut pcap = Pcap::new(magic, big, 1);
    for (packet, count) in packets.iter().zip(0..) {
        pcap.record(1_700_000_000 + count / 3, count, packet);
    }
    pcap.bytes().to_vec()
}

fn pcapng(big: bool, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut pcapng = Pcapng::new(big);
    for (packet, count) in packets.iter().zip(0..) {
        if count % 8 == 0 {
            pcapng
                .section(big ^ (count > 8), u64::MAX)
                .interface(1, 0, &[]);
        }
        match count % 5 {
            4 => pcapng.statistics(0, count, &[(5, count)]),
            3 => pcapng.simple_packet(packet, packet.len() as u32),
            2 => pcapng.packet_with(0, count, packet, &[(2989, &[0; 12])]),
            _ => pcapng.packet(0, count, packet),
        };
    }
    pcapng.bytes().to_vec()
}

fn file() -> impl Strategy<Value = Vec<u8>> {
    let packets = || prop::collection::vec(prop::collection::vec(any::<u8>(), 1..90), 0..30);
    let magic = prop_oneof![Just(0xa1b2_c3d4), Just(0xa1b2_3c4d), Just(0xa1b2_cd34)];
    prop_oneof![
        (any::<bool>(), magic, packets()).prop_map(|(big, magic, all)| pcap(big, magic, &all)),
        (any::<bool>(), packets()).prop_map(|(big, all)| pcapng(big, &all)),
        prop::collection::vec(any::<u8>(), 0..200),
    ]
}

/// What may happen to a file: a byte is another, some are missing, some are too many, it is cut.
#[derive(Debug, Clone)]
enum Harm {
    Change(u8),
    Remove(usize),
    Insert(Vec<u8>),
    Zeros(usize),
    Cut,
}

fn harm() -> impl Strategy<Value = (usize, Harm)> {
    let harm = prop_oneof![
        4 => (1..=255_u8).prop_map(Harm::Change),
        2 => (1..40_usize).prop_map(Harm::Remove),
        2 => prop::collection::vec(any::<u8>(), 1..40).prop_map(Harm::Insert),
        1 => (1..300_usize).prop_map(Harm::Zeros),
        1 => Just(Harm::Cut),
    ];
    (any::<usize>(), harm)
}

fn harmed(mut file: Vec<u8>, harms: Vec<(usize, Harm)>) -> Vec<u8> {
    for (at, harm) in harms {
        let at = at % file.len().max(1);
        match harm {
            Harm::Change(bits) => file
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte ^= bits),
            Harm::Remove(count) => drop(file.drain(at..file.len().min(at + count))),
            Harm::Insert(bytes) => drop(file.splice(at..at, bytes)),
            Harm::Zeros(count) => file
                .iter_mut()
                .skip(at)
                .take(count)
                .for_each(|byte| *byte = 0),
            Harm::Cut => file.truncate(at),
        }
    }
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_pieces_say_the_same(
        file in file(),
        harms in prop::collection::vec(harm(), 0..4),
        pieces in prop::collection::vec(1..200_usize, 1..50),
    ) {
        let file = harmed(file, harms);
        let whole = read_in_pieces(&file, std::iter::repeat(file.len()));
        let pieces = read_in_pieces(&file, pieces.into_iter().cycle());
        prop_assert_eq!(whole, pieces);
    }
}
