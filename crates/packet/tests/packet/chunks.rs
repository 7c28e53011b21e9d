// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reader's results do not depend on the sizes of the chunks that it gets, for valid and damaged files.

use crate::build::{Pcap, Pcapng};
use crate::reading::read_in_chunks;
use proptest::prelude::*;

/// Type of a pcapng option with binary data of a vendor.
const CUSTOM_OPTION: u16 = 2989;

/// A pcap file with these packets.
fn pcap(big_endian: bool, magic: u32, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut pcap = Pcap::new(magic, big_endian, 1);
    for (packet, count) in packets.iter().zip(0..) {
        pcap.record(1_700_000_000 + count / 3, count, packet);
    }
    pcap.bytes().to_vec()
}

/// A pcapng file with these packets, in blocks of several types and in several sections.
fn pcapng(big_endian: bool, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut pcapng = Pcapng::new(big_endian);
    for (packet, count) in packets.iter().zip(0..) {
        if count % 8 == 0 {
            pcapng
                .section(big_endian ^ (count > 8), u64::MAX)
                .interface(1, 0, &[]);
        }
        match count % 5 {
            4 => pcapng.statistics(0, count, &[(5, count)]),
            3 => pcapng.simple_packet(packet, packet.len() as u32),
            2 => pcapng.packet_with(0, count, packet, &[(CUSTOM_OPTION, &[0; 12])]),
            _ => pcapng.packet(0, count, packet),
        };
    }
    pcapng.bytes().to_vec()
}

/// A file of either format, or one of random bytes.
fn file() -> impl Strategy<Value = Vec<u8>> {
    let packets = || prop::collection::vec(prop::collection::vec(any::<u8>(), 1..90), 0..30);
    let magic = prop_oneof![Just(0xa1b2_c3d4), Just(0xa1b2_3c4d), Just(0xa1b2_cd34)];
    prop_oneof![
        (any::<bool>(), magic, packets())
            .prop_map(|(big_endian, magic, all)| pcap(big_endian, magic, &all)),
        (any::<bool>(), packets()).prop_map(|(big_endian, all)| pcapng(big_endian, &all)),
        prop::collection::vec(any::<u8>(), 0..200),
    ]
}

/// Damage of a file: a changed byte, removed bytes, inserted bytes, zeros, or the end cut off.
#[derive(Debug, Clone)]
enum Mutation {
    Change(u8),
    Remove(usize),
    Insert(Vec<u8>),
    Zeros(usize),
    Truncate,
}

/// A mutation and its offset, modulo the length of the file.
fn mutation() -> impl Strategy<Value = (usize, Mutation)> {
    let mutation = prop_oneof![
        4 => (1..=255_u8).prop_map(Mutation::Change),
        2 => (1..40_usize).prop_map(Mutation::Remove),
        2 => prop::collection::vec(any::<u8>(), 1..40).prop_map(Mutation::Insert),
        1 => (1..300_usize).prop_map(Mutation::Zeros),
        1 => Just(Mutation::Truncate),
    ];
    (any::<usize>(), mutation)
}

fn mutate(mut file: Vec<u8>, mutations: Vec<(usize, Mutation)>) -> Vec<u8> {
    for (at, mutation) in mutations {
        let at = at % file.len().max(1);
        match mutation {
            Mutation::Change(bits) => file
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte ^= bits),
            Mutation::Remove(count) => drop(file.drain(at..file.len().min(at + count))),
            Mutation::Insert(bytes) => drop(file.splice(at..at, bytes)),
            Mutation::Zeros(count) => file
                .iter_mut()
                .skip(at)
                .take(count)
                .for_each(|byte| *byte = 0),
            Mutation::Truncate => file.truncate(at),
        }
    }
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn chunk_sizes_do_not_change_results(
        file in file(),
        mutations in prop::collection::vec(mutation(), 0..4),
        chunks in prop::collection::vec(1..200_usize, 1..50),
    ) {
        let file = mutate(file, mutations);
        let whole = read_in_chunks(&file, std::iter::repeat(file.len()));
        let chunked = read_in_chunks(&file, chunks.into_iter().cycle());
        prop_assert_eq!(whole, chunked);
    }
}
