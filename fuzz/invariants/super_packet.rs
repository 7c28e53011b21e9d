// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks super-packets that are segmented, lose segments and are coalesced again: no other segment is lost or added.
//! Segmenting a batch gives the same segments as segmenting the whole.
//!
//! The input is a vnet header, a byte whose bits select the lost segments of each eight, and a packet.

use longhaul_netem::{Batch, Coalescer, Delivery, Segment};
use longhaul_packet::{checksum, ip, super_packet::SuperPacket, vnet};
use longhaul_units::Time;
use std::ops::Range;

pub(crate) fn check(input: &[u8]) {
    let Some((head, [lost, packet @ ..])) = input.split_first_chunk::<{ vnet::LEN }>() else {
        return;
    };
    let Some(whole) = SuperPacket::parse(head, packet) else {
        return;
    };
    check_lengths(&whole, packet);
    let survivors: Vec<u16> = (0..whole.segments())
        .filter(|index| lost >> (index % 8) & 1 == 0)
        .collect();
    let runs = coalesce(&whole, &survivors);
    assert!(runs.iter().flat_map(Clone::clone).eq(survivors));
    for run in runs {
        check_batch(&whole, packet, run);
    }
    check_corruption(&whole, packet, u32::from(*lost));
}

fn check_lengths(whole: &SuperPacket, packet: &[u8]) {
    let lens = (0..whole.segments()).map(|index| u64::from(whole.segment_len(index)));
    assert_eq!(lens.sum::<u64>(), whole.wire_len());
    assert!(whole.segments() >= 1 && whole.wire_len() >= packet.len() as u64);
}

/// Coalesces the survivors, which are 40 µs apart: at most three fit into a quantum of 100 µs.
fn coalesce(whole: &SuperPacket, survivors: &[u16]) -> Vec<Range<u16>> {
    let mut coalescer = Coalescer::new(Delivery::default());
    let mut runs = Vec::new();
    let mut emit = |run: Batch| runs.push(run.segments);
    for &index in survivors {
        let segment = Segment {
            packet: 0,
            index,
            last: index + 1 == whole.segments(),
            len: whole.segment_len(index),
        };
        let due = Time::from_micros(40) * u64::from(index);
        coalescer.push(due, segment, None, &mut emit);
    }
    coalescer.flush(Time::MAX).map(&mut emit);
    assert!(runs.iter().all(|run| (1..=3).contains(&run.len())));
    runs
}

fn check_batch(whole: &SuperPacket, packet: &[u8], run: Range<u16>) {
    let bytes = segment_bytes(whole, packet, run.clone());
    let (head, part) = bytes.split_first_chunk().unwrap();
    if run.len() < usize::from(whole.segments()) {
        check_ip_header(part);
    }
    let layout = SuperPacket::parse(head, part).unwrap();
    assert_eq!(usize::from(layout.segments()), run.len());
    for (inner, outer) in (0..layout.segments()).zip(run) {
        let alone = segment_bytes(whole, packet, outer..outer + 1);
        assert_eq!(segment_bytes(&layout, part, inner..inner + 1), alone);
    }
}

fn segment_bytes(layout: &SuperPacket, packet: &[u8], run: Range<u16>) -> Vec<u8> {
    let run = layout.run(packet, run);
    [run.head(), &packet[run.payload.clone()]].concat()
}

/// Checks the length in the IP header, and the checksum of an IPv4 header.
fn check_ip_header(packet: &[u8]) {
    let word = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    match ip::version(packet).unwrap() {
        ip::Version::V4 => {
            let header = usize::from(packet[0] & 0xf) * 4;
            assert_eq!(word(2), packet.len());
            assert!(header < 20 || checksum::checksum(&packet[..header]) == 0);
        }
        ip::Version::V6 => assert_eq!(word(4) + 40, packet.len()),
    }
}

/// Checks that two corruptions of one segment differ in the two wrong bits.
fn check_corruption(whole: &SuperPacket, packet: &[u8], entropy: u32) {
    let [mut one, mut other] = [Vec::new(), Vec::new()];
    let index = (entropy % u32::from(whole.segments())) as u16;
    whole.corrupt_into(packet, index, entropy, &mut one);
    whole.corrupt_into(packet, index, entropy + 1, &mut other);
    assert_eq!(one.len(), vnet::LEN + whole.segment_len(index) as usize);
    let differ = |(a, b): (&u8, &u8)| (a ^ b).count_ones();
    assert_eq!(one.iter().zip(&other).map(differ).sum::<u32>(), 2);
}
