// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ring buffer for a window of packets, each at the index of its sequence number: packets need no allocation, move or
//! search.

use crate::packet::number::Seq;

/// Ring of packets. The kernel provides the memory as it is used.
#[derive(Debug)]
pub(crate) struct PacketRing {
    bytes: Box<[u8]>,
    payload_max: usize,
    lengths: Box<[u16]>,
}

impl PacketRing {
    /// Creates a ring for `window` packets, rounded up to a power of two, of at most `payload_max` bytes each.
    pub(crate) fn new(window: u32, payload_max: usize) -> Self {
        let count = window.next_power_of_two() as usize;
        Self {
            bytes: vec![0; count * payload_max].into(),
            payload_max,
            lengths: vec![0; count].into(),
        }
    }

    /// Returns the capacity in packets.
    pub(crate) fn capacity(&self) -> u32 {
        self.lengths.len() as u32
    }

    /// Stores a packet. A payload longer than the maximum is truncated.
    pub(crate) fn put(&mut self, seq: Seq, payload: &[u8]) {
        let length = payload.len().min(self.payload_max);
        let index = self.index(seq);
        self.lengths[index] = length as u16;
        let begin = index * self.payload_max;
        self.bytes[begin..begin + length].copy_from_slice(&payload[..length]);
    }

    /// Appends to a packet, up to a length of `len_max` bytes. Returns how many bytes were appended.
    pub(crate) fn append(&mut self, seq: Seq, more: &[u8], len_max: usize) -> usize {
        let index = self.index(seq);
        let length = usize::from(self.lengths[index]);
        let taken = more
            .len()
            .min(len_max.min(self.payload_max).saturating_sub(length));
        let begin = index * self.payload_max + length;
        self.bytes[begin..begin + taken].copy_from_slice(&more[..taken]);
        self.lengths[index] += taken as u16;
        taken
    }

    /// Returns the payload of a packet.
    pub(crate) fn payload(&self, seq: Seq) -> &[u8] {
        let index = self.index(seq);
        let begin = index * self.payload_max;
        &self.bytes[begin..begin + usize::from(self.lengths[index])]
    }

    fn index(&self, seq: Seq) -> usize {
        seq.get() as usize & (self.lengths.len() - 1)
    }
}
