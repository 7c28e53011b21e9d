// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receive buffer: packets that arrived and were not read yet.

use crate::{halves::packet_ring::PacketRing, packet::number::Seq};

/// Window of packets from the first unread one on, some of which may be missing.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    slots: PacketRing,
    /// One bit per packet: set if it arrived.
    present: Box<[u64]>,
    /// First unread packet, and how many of its bytes were read.
    base: Seq,
    read_offset: usize,
    /// First missing packet.
    next: Seq,
}

/// Result of inserting a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InsertOutcome {
    /// The packet was missing.
    New,
    /// The packet had arrived before.
    Duplicate,
    /// The packet lies beyond the free space.
    OutOfWindow,
}

impl ReceiveBuffer {
    /// Creates an empty buffer for `packets` packets from `first` on, but at least 64.
    pub(crate) fn new(first: Seq, packets: u32, payload_max: usize) -> Self {
        let slots = PacketRing::new(packets.max(64), payload_max);
        let words = slots.capacity() as usize / 64;
        Self {
            present: vec![0; words].into(),
            slots,
            base: first,
            read_offset: 0,
            next: first,
        }
    }

    /// Returns the first missing packet: all before it arrived.
    pub(crate) fn next(&self) -> Seq {
        self.next
    }

    /// Returns the capacity in packets.
    pub(crate) fn capacity(&self) -> u32 {
        self.slots.capacity()
    }

    /// Returns the free space in packets, from [`Self::next`] on.
    pub(crate) fn free_packets(&self) -> u32 {
        self.slots.capacity() - self.next.since(self.base) as u32
    }

    /// Inserts a packet.
    pub(crate) fn insert(&mut self, seq: Seq, payload: &[u8]) -> InsertOutcome {
        let offset = seq.since(self.base);
        if offset < 0 {
            return InsertOutcome::Duplicate;
        }
        if offset as u32 >= self.slots.capacity() {
            return InsertOutcome::OutOfWindow;
        }
        if self.is_present(seq) {
            return InsertOutcome::Duplicate;
        }
        self.slots.put(seq, payload);
        set(&mut self.present, seq);
        self.advance_next();
        InsertOutcome::New
    }

    /// Reads up to the first missing packet. Returns the number of bytes.
    pub(crate) fn read(&mut self, to: &mut [u8]) -> usize {
        let mut read = 0;
        while read < to.len() && self.base != self.next {
            let payload = &self.slots.payload(self.base)[self.read_offset..];
            let length = payload.len().min(to.len() - read);
            to[read..read + length].copy_from_slice(&payload[..length]);
            let rest = payload.len() - length;
            read += length;
            match rest {
                0 => self.pop_first(),
                _ => self.read_offset += length,
            }
        }
        read
    }

    /// Whether there are bytes to read.
    pub(crate) fn can_read(&self) -> bool {
        self.base != self.next
    }

    fn pop_first(&mut self) {
        clear(&mut self.present, self.base);
        self.base = self.base.plus(1);
        self.read_offset = 0;
        // If the window was full, the slot of the next missing packet was the one of the packet just read. Now that
        // its bit is clear, continue.
        self.advance_next();
    }

    fn advance_next(&mut self) {
        let mut left = self.slots.capacity() as i32 - self.next.since(self.base);
        while left > 0 && self.is_present(self.next) {
            self.next = self.next.plus(1);
            left -= 1;
        }
    }

    /// Whether a packet of the window has arrived.
    fn is_present(&self, seq: Seq) -> bool {
        is_set(&self.present, seq)
    }
}

fn bit_position(bits: &[u64], seq: Seq) -> (usize, u64) {
    let index = seq.get() as usize & (bits.len() * 64 - 1);
    (index / 64, 1 << (index % 64))
}

fn is_set(bits: &[u64], seq: Seq) -> bool {
    let (word, bit) = bit_position(bits, seq);
    bits[word] & bit != 0
}

fn set(bits: &mut [u64], seq: Seq) {
    let (word, bit) = bit_position(bits, seq);
    bits[word] |= bit;
}

fn clear(bits: &mut [u64], seq: Seq) {
    let (word, bit) = bit_position(bits, seq);
    bits[word] &= !bit;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FIRST: Seq = Seq::new(0x7fff_fff0);

    #[test]
    fn reads_up_to_the_first_missing_packet() {
        let mut buffer = ReceiveBuffer::new(FIRST, 64, 4);
        let mut to = [0; 100];
        assert_eq!(buffer.insert(FIRST.plus(1), b"efgh"), InsertOutcome::New);
        assert_eq!((buffer.next(), buffer.read(&mut to)), (FIRST, 0));
        assert_eq!(buffer.insert(FIRST, b"abcd"), InsertOutcome::New);
        assert_eq!(buffer.insert(FIRST, b"abcd"), InsertOutcome::Duplicate);
        assert_eq!(buffer.next(), FIRST.plus(2));
        assert_eq!(buffer.read(&mut to[..3]), 3);
        assert_eq!(buffer.read(&mut to[3..]), 5);
        assert_eq!(&to[..8], b"abcdefgh");
        assert_eq!(buffer.insert(FIRST, b"abcd"), InsertOutcome::Duplicate);
    }

    #[test]
    fn rejects_packets_beyond_a_full_window() {
        let mut buffer = ReceiveBuffer::new(FIRST, 64, 4);
        for n in (0..64).rev() {
            assert_eq!(buffer.insert(FIRST.plus(n), &[n as u8]), InsertOutcome::New);
        }
        assert_eq!((buffer.free_packets(), buffer.next()), (0, FIRST.plus(64)));
        assert_eq!(
            buffer.insert(FIRST.plus(64), b"x"),
            InsertOutcome::OutOfWindow
        );
        let mut to = [0; 10];
        assert_eq!(buffer.read(&mut to), 10);
        assert_eq!((buffer.free_packets(), buffer.next()), (10, FIRST.plus(64)));
        assert_eq!(buffer.insert(FIRST.plus(64), b"x"), InsertOutcome::New);
    }

    proptest! {
        #[test]
        fn reassembles_packets_in_any_order(order in Just((0..200_u32).collect::<Vec<_>>()).prop_shuffle()) {
            let mut buffer = ReceiveBuffer::new(FIRST, 256, 4);
            let mut read = Vec::new();
            for n in order {
                buffer.insert(FIRST.plus(n), &n.to_be_bytes());
                let mut to = [0; 64];
                let length = buffer.read(&mut to);
                read.extend_from_slice(&to[..length]);
            }
            let mut to = [0; 800];
            let length = buffer.read(&mut to);
            read.extend_from_slice(&to[..length]);
            let expected: Vec<u8> = (0..200_u32).flat_map(u32::to_be_bytes).collect();
            prop_assert_eq!(read, expected);
        }
    }
}
