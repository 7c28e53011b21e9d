// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ring of the packets of one direction: filled by reads and emptied in order.
//!
//! The kernel writes a packet into its place in the ring, and reads it from there, without a copy in between. A packet
//! takes its own length, not a slot for the longest one.

use longhaul_linux::tun;
use longhaul_packet::{super_packet::SuperPacket, vnet};
use std::collections::VecDeque;

/// Most bytes that one read can put into the ring.
const READ_MAX: usize = vnet::LEN + tun::PACKET_MAX;

/// A packet in the ring.
#[derive(Debug)]
pub(super) struct Packet {
    offset: usize,
    len: usize,
    /// Division into segments.
    pub(super) layout: SuperPacket,
    /// Number of its segments that are still to be delivered or dropped.
    segments_left: u32,
}

/// Bounded ring of packets, identified by consecutive numbers.
#[derive(Debug)]
pub(super) struct PacketRing {
    ring: Box<[u8]>,
    packets: VecDeque<Packet>,
    /// Number of `packets[0]`.
    first: u64,
    /// Offset for the next packet.
    head: usize,
    /// Segments of all packets, and copies, that are still to be delivered or dropped.
    segments: u64,
}

impl PacketRing {
    /// Creates a ring of `bytes`, at least four of the longest packets. The system allocates the memory when it is
    /// first used.
    pub(super) fn new(bytes: usize) -> Self {
        let ring = vec![0; bytes.max(4 * READ_MAX)].into_boxed_slice();
        Self {
            ring,
            packets: VecDeque::new(),
            first: 0,
            head: 0,
            segments: 0,
        }
    }

    /// Grows the ring to at least `bytes` and moves its packets.
    pub(super) fn grow(&mut self, bytes: usize) {
        if bytes <= self.ring.len() {
            return;
        }
        let old = std::mem::replace(&mut self.ring, vec![0; bytes].into_boxed_slice());
        self.head = 0;
        for packet in &mut self.packets {
            let packet_bytes = &old[packet.offset..packet.offset + packet.len];
            self.ring[self.head..self.head + packet.len].copy_from_slice(packet_bytes);
            packet.offset = self.head;
            self.head += packet.len;
        }
    }

    /// Returns space for one read, if there is any. An empty ring starts again at its beginning, where the cache is
    /// warm.
    pub(super) fn free_space(&mut self) -> Option<&mut [u8]> {
        let Some(oldest) = self.packets.front().map(|packet| packet.offset) else {
            self.head = 0;
            return Some(&mut self.ring[..READ_MAX]);
        };
        if self.head > oldest && self.head + READ_MAX > self.ring.len() {
            self.head = 0;
        }
        // If the head is at the oldest packet, the ring is full. An empty ring was handled above.
        let end = if self.head > oldest {
            self.ring.len()
        } else {
            oldest
        };
        let free = self.head + READ_MAX <= end && self.packets.len() < self.packets_max();
        free.then(|| &mut self.ring[self.head..self.head + READ_MAX])
    }

    /// Returns the most packets that the ring may hold. With this bound, the list of many small packets takes no more
    /// memory than the ring.
    fn packets_max(&self) -> usize {
        self.ring.len() / size_of::<Packet>()
    }

    /// Adds the `len` bytes just read into [`free_space`](Self::free_space) as a packet; returns its number.
    pub(super) fn commit(&mut self, len: usize, layout: SuperPacket) -> u64 {
        let left = u32::from(layout.segments());
        self.packets.push_back(Packet {
            offset: self.head,
            len,
            layout,
            segments_left: left,
        });
        self.head += len;
        self.segments += u64::from(left);
        self.first + self.packets.len() as u64 - 1
    }

    /// Returns a packet and its bytes: vnet header, then IP.
    pub(super) fn get(&self, number: u64) -> (&Packet, &[u8]) {
        let packet = &self.packets[(number - self.first) as usize];
        (
            packet,
            &self.ring[packet.offset..packet.offset + packet.len],
        )
    }

    /// Returns the number of segments, with copies, that are still to be delivered or dropped.
    pub(super) fn segments(&self) -> u64 {
        self.segments
    }

    /// Counts a copy of one segment, which is released on its own.
    pub(super) fn retain(&mut self, number: u64) {
        self.segments += 1;
        self.packets[(number - self.first) as usize].segments_left += 1;
    }

    /// Releases `segments` segments of a packet. Its space becomes free once all older packets are released.
    pub(super) fn release(&mut self, number: u64, segments: u32) {
        self.segments -= u64::from(segments);
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

    fn push(packets: &mut PacketRing, len: usize, fill: u8) -> Option<u64> {
        let space = packets.free_space()?;
        space[..len].fill(fill);
        Some(packets.commit(len, plain(len)))
    }

    #[test]
    fn wraps_many_times_without_mixing_packets() {
        let mut packets = PacketRing::new(0);
        let mut stored = VecDeque::new();
        for round in 0..10_000_u32 {
            let len = 20 + (round as usize * 7919) % 60_000;
            match push(&mut packets, len, round as u8) {
                Some(number) => stored.push_back((number, len, round as u8)),
                None => {
                    let (number, len, fill) = stored.pop_front().unwrap();
                    let (_, bytes) = packets.get(number);
                    assert_eq!(bytes.len(), len);
                    assert!(bytes.iter().all(|byte| *byte == fill), "packet {number}");
                    packets.release(number, 1);
                }
            }
        }
        assert!(stored.len() < 100);
    }

    #[test]
    fn unreleased_packet_blocks_later_space() {
        let mut packets = PacketRing::new(0);
        let first = push(&mut packets, 60_000, 1).unwrap();
        while push(&mut packets, 60_000, 2).is_some() {}
        packets.release(first + 1, 1);
        assert_eq!(
            push(&mut packets, 60_000, 3),
            None,
            "released behind the oldest"
        );
        packets.release(first, 1);
        assert!(push(&mut packets, 60_000, 3).is_some());
        assert!(packets.get(first + 2).1.iter().all(|byte| *byte == 2));
    }

    #[test]
    fn growing_keeps_packets() {
        let mut packets = PacketRing::new(0);
        let numbers: Vec<_> = (0..4)
            .filter_map(|fill| push(&mut packets, 50_000, fill))
            .collect();
        packets.release(numbers[0], 1);
        packets.grow(1 << 20);
        let more: Vec<_> = (4..14)
            .filter_map(|fill| push(&mut packets, 50_000, fill))
            .collect();
        assert_eq!(more.len(), 10);
        for (fill, number) in (1..).zip(numbers[1..].iter().chain(&more)) {
            assert!(packets.get(*number).1.iter().all(|byte| *byte == fill));
        }
    }

    #[test]
    fn copy_is_released_separately() {
        let mut packets = PacketRing::new(0);
        let number = push(&mut packets, 100, 1).unwrap();
        packets.retain(number);
        packets.release(number, 1);
        assert_eq!(packets.get(number).1.len(), 100);
        packets.release(number, 1);
        assert!(packets.packets.is_empty());
    }
}
