// SPDX-License-Identifier: MIT OR Apache-2.0
//! Room for a window of packets, each where its number says: nothing is allocated for one, moved or
//! searched.

use crate::packet::number::Seq;

/// A ring of packets. The system gives the memory as it is used.
#[derive(Debug)]
pub(crate) struct PacketRing {
    bytes: Box<[u8]>,
    payload_max: usize,
    lengths: Box<[u16]>,
}

impl PacketRing {
    /// For `window` packets, rounded up to a power of two, of at most `payload_max` bytes each.
    pub(crate) fn new(window: u32, payload_max: usize) -> Self {
        let count = window.next_power_of_two() as usize;
        Self {
            bytes: vec![0; count * payload_max].into(),
            payload_max,
            lengths: vec![0; count].into(),
        }
    }

    /// How many packets there is room for.
    pub(crate) fn capacity(&self) -> u32 {
        self.lengths.len() as u32
    }

    /// Puts a packet in its place. What is longer than it may be is cut.
    pub(crate) fn put(&mut self, seq: Seq, payload: &[u8]) {
        let length = payload.len().min(self.payload_max);
        let at = self.index(seq);
        self.lengths[at] = length as u16;
        let begin = at * self.payload_max;
        self.bytes[begin..begin + length].copy_from_slice(&payload[..length]);
    }

    /// Adds to a packet, which has no more than `most` then; how many bytes found room.
    pub(crate) fn append(&mut self, seq: Seq, more: &[u8], most: usize) -> usize {
        let at = self.index(seq);
        let length = usize::from(self.lengths[at]);
        let taken = more
            .len()
            .min(most.min(self.payload_max).saturating_sub(length));
        let begin = at * self.payload_max + length;
        self.bytes[begin..begin + taken].copy_from_slice(&more[..taken]);
        self.lengths[at] += taken as u16;
        taken
    }

    /// What was put there.
    pub(crate) fn payload(&self, seq: Seq) -> &[u8] {
        let at = self.index(seq);
        let begin = at * self.payload_max;
        &self.bytes[begin..begin + usize::from(self.lengths[at])]
    }

    fn index(&self, seq: Seq) -> usize {
        seq.get() as usize & (self.lengths.len() - 1)
    }
}
