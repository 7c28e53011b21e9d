// SPDX-License-Identifier: MIT OR Apache-2.0
//! Room for a window of packets, each where its number says: nothing is allocated for one, moved or
//! searched.

use crate::packet::{
    Message,
    number::{MessageNumber, Seq},
};

/// What is said of a packet that is not there.
const NO_MESSAGE: Message = Message {
    number: MessageNumber::new(0),
    is_first: false,
    is_last: false,
    in_order: false,
};

/// A ring of packets. The system gives the memory as it is used.
#[derive(Debug)]
pub(crate) struct Slots {
    bytes: Box<[u8]>,
    payload_max: usize,
    about: Box<[About]>,
}

#[derive(Debug, Clone, Copy)]
struct About {
    length: u16,
    message: Message,
}

impl Slots {
    /// For `window` packets, rounded up to a power of two, of at most `payload_max` bytes each.
    pub(crate) fn new(window: u32, payload_max: usize) -> Self {
        let count = window.next_power_of_two() as usize;
        let nothing = About {
            length: 0,
            message: NO_MESSAGE,
        };
        Self {
            bytes: vec![0; count * payload_max].into(),
            payload_max,
            about: vec![nothing; count].into(),
        }
    }

    /// How many packets there is room for.
    pub(crate) fn capacity(&self) -> u32 {
        self.about.len() as u32
    }

    /// Puts a packet in its place. What is longer than it may be is cut.
    pub(crate) fn put(&mut self, seq: Seq, message: Message, payload: &[u8]) {
        let length = payload.len().min(self.payload_max);
        let at = self.at(seq);
        self.about[at] = About {
            length: length as u16,
            message,
        };
        let begin = at * self.payload_max;
        self.bytes[begin..begin + length].copy_from_slice(&payload[..length]);
    }

    /// Adds to a packet, which has no more than `most` then; how many bytes found room.
    pub(crate) fn append(&mut self, seq: Seq, more: &[u8], most: usize) -> usize {
        let at = self.at(seq);
        let length = usize::from(self.about[at].length);
        let taken = more
            .len()
            .min(most.min(self.payload_max).saturating_sub(length));
        let begin = at * self.payload_max + length;
        self.bytes[begin..begin + taken].copy_from_slice(&more[..taken]);
        self.about[at].length += taken as u16;
        taken
    }

    /// What was put there.
    pub(crate) fn payload(&self, seq: Seq) -> &[u8] {
        let at = self.at(seq);
        let begin = at * self.payload_max;
        &self.bytes[begin..begin + usize::from(self.about[at].length)]
    }

    /// Which message it is of.
    pub(crate) fn message(&self, seq: Seq) -> Message {
        self.about[self.at(seq)].message
    }

    fn at(&self, seq: Seq) -> usize {
        seq.get() as usize & (self.about.len() - 1)
    }
}
