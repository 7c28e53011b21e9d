// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has arrived and was not read.

use crate::{
    halves::slots::Slots,
    packet::{
        Message,
        number::{MessageNumber, Seq},
    },
};
use std::collections::{HashMap, VecDeque};

/// Packets from the first that was not read on, some of which are missing.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    slots: Slots,
    /// A bit a packet: it is there, or its message was given up. A second one: it was read, or given up.
    there: Box<[u64]>,
    done: Box<[u64]>,
    /// The first that was not read, and how much of it was.
    base: Seq,
    offset: usize,
    /// The first that is missing.
    next: Seq,
    /// Messages of which something is there, in message mode.
    partly: HashMap<MessageNumber, Partly>,
    /// Those that are there as a whole, the first first: those that wait for all before them, and the others. Messages do not
    /// overlap, so that none of either may be read before the first.
    in_order: VecDeque<Whole>,
    at_once: VecDeque<Whole>,
}

/// A message of which some packets are there.
#[derive(Debug, Clone, Copy)]
struct Partly {
    packets: u32,
    latest: Seq,
    first: Option<Seq>,
    last: Option<Seq>,
}

/// A message of which all packets are there.
#[derive(Debug, Clone, Copy)]
struct Whole {
    first: Seq,
    last: Seq,
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
            done: vec![0; words].into(),
            slots,
            base: first,
            offset: 0,
            next: first,
            partly: HashMap::new(),
            in_order: VecDeque::new(),
            at_once: VecDeque::new(),
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

    /// Takes a packet, of a stream.
    pub(crate) fn take(&mut self, seq: Seq, message: Message, payload: &[u8]) -> Taken {
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
        self.slots.put(seq, message, payload);
        set(&mut self.there, seq);
        self.move_on();
        Taken::New
    }

    /// Takes a packet of a message.
    pub(crate) fn take_of_message(&mut self, seq: Seq, message: Message, payload: &[u8]) -> Taken {
        let taken = self.take(seq, message, payload);
        if taken == Taken::New {
            self.note(seq, message);
        }
        taken
    }

    fn note(&mut self, seq: Seq, message: Message) {
        self.forget_old();
        let nothing = Partly {
            packets: 0,
            latest: seq,
            first: None,
            last: None,
        };
        let partly = self.partly.entry(message.number).or_insert(nothing);
        partly.packets += 1;
        if partly.latest.is_before(seq) {
            partly.latest = seq;
        }
        if message.is_first {
            partly.first = Some(seq);
        }
        if message.is_last {
            partly.last = Some(seq);
        }
        let (Some(first), Some(last)) = (partly.first, partly.last) else {
            return;
        };
        if i64::from(last.since(first)) + 1 != i64::from(partly.packets) {
            return;
        }
        self.partly.remove(&message.number);
        let whole = match message.in_order {
            true => &mut self.in_order,
            false => &mut self.at_once,
        };
        let at = whole.partition_point(|one| one.first.is_before(first));
        whole.insert(at, Whole { first, last });
    }

    /// What was given up under another name is never whole. A window holds no more messages than packets.
    fn forget_old(&mut self) {
        let capacity = self.slots.capacity();
        if self.partly.len() as u32 >= 2 * capacity {
            let in_window = 0..capacity as i32;
            let base = self.base;
            self.partly
                .retain(|_, one| in_window.contains(&one.latest.since(base)));
        }
    }

    /// The packets of a message that will not come any more.
    pub(crate) fn give_up(&mut self, message: MessageNumber, first: Seq, last: Seq) {
        self.partly.remove(&message);
        let stays = |one: &Whole| one.last.is_before(first) || last.is_before(one.first);
        self.in_order.retain(stays);
        self.at_once.retain(stays);
        let begin = first.since(self.base).max(0);
        let end = last.since(self.base).min(self.slots.capacity() as i32 - 1);
        for offset in begin..=end {
            let seq = self.base.plus(offset as u32);
            set(&mut self.there, seq);
            set(&mut self.done, seq);
        }
        self.move_on();
        self.clear_read();
    }

    /// Reads what is there of a stream, up to the first packet that is missing; how many bytes.
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

    /// Bytes that can be read of a stream, or of the next message.
    pub(crate) fn can_read(&self) -> bool {
        self.base != self.next
    }

    /// Reads the next message that may be read into `to`, which it replaces.
    pub(crate) fn read_message(&mut self, to: &mut Vec<u8>) -> bool {
        let Some(Whole { first, last }) = self.next_message() else {
            return false;
        };
        to.clear();
        for offset in 0..=last.since(first) as u32 {
            let seq = first.plus(offset);
            to.extend_from_slice(self.slots.payload(seq));
            set(&mut self.done, seq);
        }
        self.clear_read();
        true
    }

    /// The first message of those that may be read, which is not kept.
    fn next_message(&mut self) -> Option<Whole> {
        match (self.first_in_order(), self.at_once.front()) {
            (Some(one), Some(other)) if other.first.is_before(one.first) => {
                self.at_once.pop_front()
            }
            (Some(_), _) => self.in_order.pop_front(),
            (None, _) => self.at_once.pop_front(),
        }
    }

    fn first_in_order(&self) -> Option<&Whole> {
        let first = self.in_order.front();
        first.filter(|one| one.last.is_before(self.next))
    }

    /// Whether a message may be read.
    pub(crate) fn has_message(&self) -> bool {
        self.first_in_order().is_some() || !self.at_once.is_empty()
    }

    /// What was read from the beginning on makes room.
    fn clear_read(&mut self) {
        while self.base != self.next && is_set(&self.done, self.base) {
            self.leave();
        }
    }

    fn leave(&mut self) {
        clear(&mut self.there, self.base);
        clear(&mut self.done, self.base);
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

    fn message(number: u32, (is_first, is_last): (bool, bool), in_order: bool) -> Message {
        Message {
            number: MessageNumber::new(number),
            is_first,
            is_last,
            in_order,
        }
    }

    fn solo() -> Message {
        message(1, (true, true), false)
    }

    #[test]
    fn a_stream_is_read_up_to_what_is_missing() {
        let mut buffer = ReceiveBuffer::new(FIRST, 64, 4);
        let mut to = [0; 100];
        assert_eq!(buffer.take(FIRST.plus(1), solo(), b"efgh"), Taken::New);
        assert_eq!((buffer.next(), buffer.read(&mut to)), (FIRST, 0));
        assert_eq!(buffer.take(FIRST, solo(), b"abcd"), Taken::New);
        assert_eq!(buffer.take(FIRST, solo(), b"abcd"), Taken::Again);
        assert_eq!(buffer.next(), FIRST.plus(2));
        assert_eq!(buffer.read(&mut to[..3]), 3);
        assert_eq!(buffer.read(&mut to[3..]), 5);
        assert_eq!(&to[..8], b"abcdefgh");
        assert_eq!(buffer.take(FIRST, solo(), b"abcd"), Taken::Again);
    }

    #[test]
    fn a_full_window_takes_no_more_until_it_is_read() {
        let mut buffer = ReceiveBuffer::new(FIRST, 64, 4);
        for n in (0..64).rev() {
            assert_eq!(buffer.take(FIRST.plus(n), solo(), &[n as u8]), Taken::New);
        }
        assert_eq!((buffer.room(), buffer.next()), (0, FIRST.plus(64)));
        assert_eq!(buffer.take(FIRST.plus(64), solo(), b"x"), Taken::Beyond);
        let mut to = [0; 10];
        assert_eq!(buffer.read(&mut to), 10);
        assert_eq!((buffer.room(), buffer.next()), (10, FIRST.plus(64)));
        assert_eq!(buffer.take(FIRST.plus(64), solo(), b"x"), Taken::New);
    }

    #[test]
    fn messages_are_read_whole_and_in_order_where_that_is_asked_for() {
        let mut buffer = ReceiveBuffer::new(FIRST, 64, 4);
        let mut take = |n: u32, message: Message, payload: &[u8]| {
            buffer.take_of_message(FIRST.plus(n), message, payload)
        };
        take(1, message(1, (false, true), true), b"ef");
        take(2, message(2, (true, true), true), b"ordered");
        take(3, message(3, (true, true), false), b"any");
        let mut to = Vec::new();
        assert!(buffer.read_message(&mut to));
        assert_eq!(to, b"any");
        assert!(!buffer.has_message() && !buffer.read_message(&mut to));
        buffer.take_of_message(FIRST, message(1, (true, false), true), b"abcd");
        assert!(buffer.has_message() && buffer.read_message(&mut to));
        assert_eq!(to, b"abcdef");
        assert!(buffer.read_message(&mut to));
        assert_eq!((to.as_slice(), buffer.room()), (&b"orde"[..], 64));
    }

    #[test]
    fn a_message_that_is_given_up_is_in_nobody_s_way() {
        let mut buffer = ReceiveBuffer::new(FIRST, 64, 4);
        buffer.take_of_message(FIRST.plus(1), message(1, (false, false), true), b"x");
        buffer.take_of_message(FIRST.plus(3), message(2, (true, true), true), b"y");
        buffer.give_up(MessageNumber::new(1), FIRST, FIRST.plus(2));
        assert_eq!(buffer.next(), FIRST.plus(4));
        let mut to = Vec::new();
        assert!(buffer.read_message(&mut to));
        assert_eq!((to.as_slice(), buffer.room()), (&b"y"[..], 64));
        // Of what a peer says only what is in the window counts.
        buffer.give_up(
            MessageNumber::new(9),
            FIRST.minus(1 << 20),
            FIRST.plus(1 << 20),
        );
        assert_eq!(buffer.room(), 64);
    }

    #[test]
    fn what_is_given_up_under_other_names_is_forgotten() {
        let mut buffer = ReceiveBuffer::new(FIRST, 64, 4);
        for n in 0..10_000 {
            let seq = FIRST.plus(n);
            buffer.take_of_message(seq, message(n + 1, (true, false), false), b"x");
            buffer.give_up(MessageNumber::new(0), seq, seq);
            assert!(buffer.partly.len() <= 2 * 64, "{n}");
        }
        assert_eq!(buffer.room(), 64);
    }

    proptest! {
        #[test]
        fn any_order_gives_the_same_stream(order in Just((0..200_u32).collect::<Vec<_>>()).prop_shuffle()) {
            let mut buffer = ReceiveBuffer::new(FIRST, 256, 4);
            let mut read = Vec::new();
            for n in order {
                buffer.take(FIRST.plus(n), solo(), &n.to_be_bytes());
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
