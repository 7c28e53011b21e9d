// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packets that a direction holds: a ring of bytes, filled by reads and emptied in order.
//!
//! A packet is written once by the kernel into its place and read once from there; nothing is
//! copied in between. A packet takes its own length, not a slot for the longest one.

use longhaul_linux::tun;
use longhaul_packet::{super_packet::SuperPacket, vnet};
use std::collections::VecDeque;

/// The most that one read can put into the ring.
const READ_MAX: usize = vnet::LEN + tun::PACKET_MAX;

/// A packet in the ring.
#[derive(Debug)]
pub(super) struct Packet {
    offset: usize,
    len: usize,
    /// How it is cut.
    pub(super) layout: SuperPacket,
    /// Segments of it that are still to be delivered or dropped.
    segments_left: u32,
}

/// A bounded ring of packets, named by consecutive numbers.
#[derive(Debug)]
pub(super) struct PacketRing {
    ring: Box<[u8]>,
    packets: VecDeque<Packet>,
    /// The number of `packets[0]`.
    first: u64,
    /// Where the next packet goes.
    head: usize,
}

impl PacketRing {
    /// A ring of `bytes`, at least four of the longest packets. Memory is taken as it is used.
    pub(super) fn new(bytes: usize) -> Self {
        let ring = vec![0; bytes.max(4 * READ_MAX)].into_boxed_slice();
        Self {
            ring,
            packets: VecDeque::new(),
            first: 0,
            head: 0,
        }
    }

    /// Makes the ring at least `bytes` long; what it holds moves.
    pub(super) fn grow(&mut self, bytes: usize) {
        if bytes <= self.ring.len() {
            return;
        }
        let old = std::mem::replace(&mut self.ring, vec![0; bytes].into_boxed_slice());
        self.head = 0;
        for packet in &mut self.packets {
            let kept = &old[packet.offset..packet.offset + packet.len];
            self.ring[self.head..self.head + packet.len].copy_from_slice(kept);
            packet.offset = self.head;
            self.head += packet.len;
        }
    }

    /// Space for one read, if there is any. A ring that ran empty begins again at its start, where
    /// the cache is warm.
    pub(super) fn free_space(&mut self) -> Option<&mut [u8]> {
        let Some(oldest) = self.packets.front().map(|packet| packet.offset) else {
            self.head = 0;
            return Some(&mut self.ring[..READ_MAX]);
        };
        if self.head > oldest && self.head + READ_MAX > self.ring.len() {
            self.head = 0;
        }
        // A head at the oldest packet means full: an empty ring was dealt with above.
        let end = if self.head > oldest {
            self.ring.len()
        } else {
            oldest
        };
        let free = self.head + READ_MAX <= end && self.packets.len() < self.packets_max();
        free.then(|| &mut self.ring[self.head..self.head + READ_MAX])
    }

    /// Small packets are bounded by number, so that bookkeeping never takes more than the ring.
    fn packets_max(&self) -> usize {
        self.ring.len() / size_of::<Packet>()
    }

    /// Keeps the `len` bytes just read into [`vacant`](Self::vacant); returns the packet's number.
    pub(super) fn commit(&mut self, len: usize, layout: SuperPacket) -> u64 {
        let left = u32::from(layout.segments());
        self.packets.push_back(Packet {
            offset: self.head,
            len,
            layout,
            segments_left: left,
        });
        self.head += len;
        self.first + self.packets.len() as u64 - 1
    }

    /// A packet and its bytes: vnet header, then IP.
    pub(super) fn get(&self, number: u64) -> (&Packet, &[u8]) {
        let packet = &self.packets[(number - self.first) as usize];
        (
            packet,
            &self.ring[packet.offset..packet.offset + packet.len],
        )
    }

    /// One more segment of the packet will be released than it has.
    pub(super) fn retain(&mut self, number: u64) {
        self.packets[(number - self.first) as usize].segments_left += 1;
    }

    /// `segments` of the packet are done with. Space is free again once all older packets are.
    pub(super) fn release(&mut self, number: u64, segments: u32) {
        self.packets[(number - self.first) as usize].segments_left -= segments;
        while self
            .packets
            .front()
            .is_some_and(|packet| packet.segments_left == 0)
        {
            self.packets.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(len: usize) -> SuperPacket {
        let mut packet = vec![0; len];
        packet[0] = 0x45;
        SuperPacket::parse(&[0; vnet::LEN], &packet).unwrap()
    }

    fn push(store: &mut PacketRing, len: usize, fill: u8) -> Option<u64> {
        let space = store.free_space()?;
        space[..len].fill(fill);
        Some(store.commit(len, plain(len)))
    }

    #[test]
    fn wraps_many_times_without_mixing_packets() {
        let mut store = PacketRing::new(0);
        let mut held = VecDeque::new();
        for round in 0..10_000_u32 {
            let len = 20 + (round as usize * 7919) % 60_000;
            match push(&mut store, len, round as u8) {
                Some(number) => held.push_back((number, len, round as u8)),
                None => {
                    let (number, len, fill) = held.pop_front().unwrap();
                    let (_, bytes) = store.get(number);
                    assert_eq!(bytes.len(), len);
                    assert!(bytes.iter().all(|byte| *byte == fill), "packet {number}");
                    store.release(number, 1);
                }
            }
        }
        assert!(held.len() < 100);
    }

    #[test]
    fn a_held_packet_holds_the_space_behind_it() {
        let mut store = PacketRing::new(0);
        let first = push(&mut store, 60_000, 1).unwrap();
        while push(&mut store, 60_000, 2).is_some() {}
        store.release(first + 1, 1);
        assert_eq!(
            push(&mut store, 60_000, 3),
            None,
            "released behind the oldest"
        );
        store.release(first, 1);
        assert!(push(&mut store, 60_000, 3).is_some());
        assert!(store.get(first + 2).1.iter().all(|byte| *byte == 2));
    }

    #[test]
    fn growing_keeps_what_is_held() {
        let mut store = PacketRing::new(0);
        let numbers: Vec<_> = (0..4)
            .filter_map(|fill| push(&mut store, 50_000, fill))
            .collect();
        store.release(numbers[0], 1);
        store.grow(1 << 20);
        let more: Vec<_> = (4..14)
            .filter_map(|fill| push(&mut store, 50_000, fill))
            .collect();
        assert_eq!(more.len(), 10);
        for (fill, number) in (1..).zip(numbers[1..].iter().chain(&more)) {
            assert!(store.get(*number).1.iter().all(|byte| *byte == fill));
        }
    }

    #[test]
    fn a_copy_is_released_twice() {
        let mut store = PacketRing::new(0);
        let number = push(&mut store, 100, 1).unwrap();
        store.retain(number);
        store.release(number, 1);
        assert_eq!(store.get(number).1.len(), 100);
        store.release(number, 1);
        assert!(store.packets.is_empty());
    }
}
