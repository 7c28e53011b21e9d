// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has arrived and was not read.

use crate::{halves::slots::Slots, packet::number::Seq};

/// Packets from the first that was not read on, some of which are missing.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    slots: Slots,
    /// A bit a packet: it is there.
    there: Box<[u64]>,
    /// The first that was not read, and how much of it was.
    base: Seq,
    offset: usize,
    /// The first that is missing.
    next: Seq,
}

/// What a packet is to the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was missing.
    New,
    /// It is there, or was read already.
    Again,
    /// There is no room for it yet.
    Beyond,
}

impl ReceiveBuffer {
    /// An empty one, for so many packets from `first` on.
    pub(crate) fn new(first: Seq, packets: u32, payload_max: usize) -> Self {
        let slots = Slots::new(packets.max(64), payload_max);
        let words = slots.capacity() as usize / 64;
        Self {
            there: vec![0; words].into(),
            slots,
            base: first,
            offset: 0,
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
    pub(crate) fn room(&self) -> u32 {
        self.slots.capacity() - self.next.since(self.base) as u32
    }

    /// Takes a packet.
    pub(crate) fn take(&mut self, seq: Seq, payload: &[u8]) -> Taken {
        let offset = seq.since(self.base);
        if offset < 0 {
            return Taken::Again;
        }
        if offset as u32 >= self.slots.capacity() {
            return Taken::Beyond;
        }
        if self.is_there(seq) {
            return Taken::Again;
        }
        self.slots.put(seq, payload);
        set(&mut self.there, seq);
        self.move_on();
        Taken::New
    }

    /// Reads what is there, up to the first packet that is missing; how many bytes.
    pub(crate) fn read(&mut self, to: &mut [u8]) -> usize {
        let mut read = 0;
        while read < to.len() && self.base != self.next {
            let payload = &self.slots.payload(self.base)[self.offset..];
            let length = payload.len().min(to.len() - read);
            to[read..read + length].copy_from_slice(&payload[..length]);
            let rest = payload.len() - length;
            read += length;
            match rest {
                0 => self.leave(),
                _ => self.offset += length,
            }
        }
        read
    }

    /// Whether bytes can be read.
    pub(crate) fn can_read(&self) -> bool {
        self.base != self.next
    }

    fn leave(&mut self) {
        clear(&mut self.there, self.base);
        self.base = self.base.plus(1);
        self.offset = 0;
        // A full window is one round of the ring: its first slot looked as if its last were there.
        self.move_on();
    }

    fn move_on(&mut self) {
        let mut left = self.slots.capacity() as i32 - self.next.since(self.base);
        while left > 0 && self.is_there(self.next) {
            self.next = self.next.plus(1);
            left -= 1;
        }
    }

    /// Of those in the window.
    fn is_there(&self, seq: Seq) -> bool {
        is_set(&self.there, seq)
    }
}

fn place(bits: &[u64], seq: Seq) -> (usize, u64) {
    let at = seq.get() as usize & (bits.len() * 64 - 1);
    (at / 64, 1 << (at % 64))
}

fn is_set(bits: &[u64], seq: Seq) -> bool {
    let (word, bit) = place(bits, seq);
    bits[word] & bit != 0
}

fn set(bits: &mut [u64], seq: Seq) {
    let (word, bit) = place(bits, seq);
    bits[word] |= bit;
}

fn clear(bits: &mut [u64], seq: Seq) {
    let (word, bit) = place(bits, seq);
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
        assert_eq!(buffer.take(FIRST.plus(1), b"efgh"), Taken::New);
        assert_eq!((buffer.next(), buffer.read(&mut to)), (FIRST, 0));
        assert_eq!(buffer.take(FIRST, b"abcd"), Taken::New);
        assert_eq!(buffer.take(FIRST, b"abcd"), Taken::Again);
        assert_eq!(buffer.next(), FIRST.plus(2));
        assert_eq!(buffer.read(&mut to[..3]), 3);
        assert_eq!(buffer.read(&mut to[3..]), 5);
        assert_eq!(&to[..8], b"abcdefgh");
        assert_eq!(buffer.take(FIRST, b"abcd"), Taken::Again);
    }

    #[test]
    fn a_full_window_takes_no_more_until_it_is_read() {
        let mut buffer = ReceiveBuffer::new(FIRST, 64, 4);
        for n in (0..64).rev() {
            assert_eq!(buffer.take(FIRST.plus(n), &[n as u8]), Taken::New);
        }
        assert_eq!((buffer.room(), buffer.next()), (0, FIRST.plus(64)));
        assert_eq!(buffer.take(FIRST.plus(64), b"x"), Taken::Beyond);
        let mut to = [0; 10];
        assert_eq!(buffer.read(&mut to), 10);
        assert_eq!((buffer.room(), buffer.next()), (10, FIRST.plus(64)));
        assert_eq!(buffer.take(FIRST.plus(64), b"x"), Taken::New);
    }

    proptest! {
        #[test]
        fn any_order_gives_the_same_stream(order in Just((0..200_u32).collect::<Vec<_>>()).prop_shuffle()) {
            let mut buffer = ReceiveBuffer::new(FIRST, 256, 4);
            let mut read = Vec::new();
            for n in order {
                buffer.take(FIRST.plus(n), &n.to_be_bytes());
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
