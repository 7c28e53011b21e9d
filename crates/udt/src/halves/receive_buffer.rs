// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has arrived and was not read.

use crate::{halves::packet_ring::PacketRing, packet::number::Seq};

/// Packets from the first that was not read on, some of which are missing.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    slots: PacketRing,
    /// A bit a packet: it is there.
    present: Box<[u64]>,
    /// The first that was not read, and how much of it was.
    base: Seq,
    read_offset: usize,
    /// The first that is missing.
    next: Seq,
}

/// What a packet is to the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InsertOutcome {
    /// It was missing.
    New,
    /// It is there, or was read already.
    Duplicate,
    /// There is no room for it yet.
    OutOfWindow,
}

impl ReceiveBuffer {
    /// An empty one, for so many packets from `first` on.
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

    /// All before this one are there.
    pub(crate) fn next(&self) -> Seq {
        self.next
    }

    /// Packets that there is room for in all.
    pub(crate) fn capacity(&self) -> u32 {
        self.slots.capacity()
    }

    /// Packets that may come, from [`Self::next`] on.
    pub(crate) fn free_packets(&self) -> u32 {
        self.slots.capacity() - self.next.since(self.base) as u32
    }

    /// Takes a packet.
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

    /// Reads what is there, up to the first packet that is missing; how many bytes.
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

    /// Whether bytes can be read.
    pub(crate) fn can_read(&self) -> bool {
        self.base != self.next
    }

    fn pop_first(&mut self) {
        clear(&mut self.present, self.base);
        self.base = self.base.plus(1);
        self.read_offset = 0;
        // A full window is one round of the ring: its first slot looked as if its last were there.
        self.advance_next();
    }

    fn advance_next(&mut self) {
        let mut left = self.slots.capacity() as i32 - self.next.since(self.base);
        while left > 0 && self.is_present(self.next) {
            self.next = self.next.plus(1);
            left -= 1;
        }
    }

    /// Of those in the window.
    fn is_present(&self, seq: Seq) -> bool {
        is_set(&self.present, seq)
    }
}

fn bit_position(bits: &[u64], seq: Seq) -> (usize, u64) {
    let at = seq.get() as usize & (bits.len() * 64 - 1);
    (at / 64, 1 << (at % 64))
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
    fn a_stream_is_read_up_to_what_is_missing() {
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
    fn a_full_window_takes_no_more_until_it_is_read() {
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
        fn any_order_gives_the_same_stream(order in Just((0..200_u32).collect::<Vec<_>>()).prop_shuffle()) {
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
