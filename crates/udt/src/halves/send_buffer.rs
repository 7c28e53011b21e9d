// SPDX-License-Identifier: MIT OR Apache-2.0
//! Send buffer: written data that is not acknowledged, divided into packets.

use crate::{halves::packet_ring::PacketRing, packet::number::Seq};

/// Packets from the first unacknowledged one to the last written one.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    slots: PacketRing,
    /// Maximum payload of the packets written now, in bytes.
    payload_max: usize,
    /// First unacknowledged packet, first unsent packet, and the one after the last.
    acked: Seq,
    unsent: Seq,
    end: Seq,
    /// Maximum number of unsent packets.
    unsent_max: u32,
    acked_bytes: u64,
}

impl SendBuffer {
    /// Creates an empty buffer for `packets` packets from `first` on.
    pub(crate) fn new(first: Seq, packets: u32, payload_max: usize) -> Self {
        Self {
            slots: PacketRing::new(packets, payload_max),
            payload_max,
            acked: first,
            unsent: first,
            end: first,
            unsent_max: u32::MAX,
            acked_bytes: 0,
        }
    }

    /// Returns the first unacknowledged packet.
    pub(crate) fn acked(&self) -> Seq {
        self.acked
    }

    /// Returns the first unsent packet.
    pub(crate) fn unsent(&self) -> Seq {
        self.unsent
    }

    /// Whether there are unsent packets.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent != self.end
    }

    /// Whether all packets are acknowledged.
    pub(crate) fn is_empty(&self) -> bool {
        self.acked == self.end
    }

    /// Returns the number of acknowledged bytes.
    pub(crate) fn acked_bytes(&self) -> u64 {
        self.acked_bytes
    }

    /// Returns the number of unsent packets.
    pub(crate) fn unsent_packets(&self) -> u32 {
        self.end.since(self.unsent) as u32
    }

    /// Returns the number of packets that were sent and are not acknowledged.
    pub(crate) fn unacked_packets(&self) -> u32 {
        self.unsent.since(self.acked) as u32
    }

    /// Limits the number of unsent packets from now on.
    pub(crate) fn limit_unsent(&mut self, packets: u32) {
        self.unsent_max = packets;
    }

    /// Returns the capacity in packets.
    pub(crate) fn capacity(&self) -> u32 {
        self.slots.capacity()
    }

    /// Returns the free space in packets.
    pub(crate) fn free_packets(&self) -> u32 {
        let free = self.slots.capacity() - self.end.since(self.acked) as u32;
        free.min(self.unsent_max.saturating_sub(self.unsent_packets()))
    }

    /// Whether to wake a writer. Each ACK frees some space. While much data is unsent, a writer wakes only for a
    /// sixteenth of the buffer.
    pub(crate) fn is_worth_writing(&self) -> bool {
        let (free, threshold) = (
            self.free_packets(),
            self.capacity().min(self.unsent_max) / 16,
        );
        free > threshold || (free > 0 && self.unsent_packets() <= threshold)
    }

    /// Sets the maximum payload of new packets, in bytes. Unsent packets are repacked if it grew. Sent packets keep
    /// their length.
    pub(crate) fn set_payload_max(&mut self, payload: usize) {
        let longer = std::mem::replace(&mut self.payload_max, payload) < payload;
        if longer {
            self.repack_unsent();
        }
    }

    fn repack_unsent(&mut self) {
        let packets = self.end.since(self.unsent) as u32;
        let unsent = (0..packets).map(|n| self.slots.payload(self.unsent.plus(n)));
        let bytes = unsent.collect::<Vec<_>>().concat();
        self.end = self.unsent;
        // The bytes fit: they take fewer packets than before.
        self.write(&bytes);
    }

    /// Writes as many bytes as there is space for. Returns how many. Bytes first fill up the last unsent packet;
    /// libudt starts a packet with each call.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let mut taken = if self.has_unsent() {
            self.slots
                .append(self.end.minus(1), bytes, self.payload_max)
        } else {
            0
        };
        while taken < bytes.len() && self.free_packets() > 0 {
            let length = (bytes.len() - taken).min(self.payload_max);
            self.slots.put(self.end, &bytes[taken..taken + length]);
            self.end = self.end.plus(1);
            taken += length;
        }
        taken
    }

    /// Removes the first unsent packet from the unsent ones and returns it.
    pub(crate) fn take_unsent(&mut self) -> Option<Seq> {
        let seq = self.has_unsent().then_some(self.unsent)?;
        self.unsent = seq.plus(1);
        Some(seq)
    }

    /// Returns the payload of a packet.
    pub(crate) fn packet(&self, seq: Seq) -> &[u8] {
        self.slots.payload(seq)
    }

    /// Acknowledges all packets before `next`. Returns how many are new, or `None` if the number lies beyond the sent
    /// packets.
    pub(crate) fn acknowledge(&mut self, next: Seq) -> Option<u32> {
        let sent = self.unsent.since(self.acked);
        let new = next.since(self.acked);
        if new > sent {
            return None;
        }
        let new = u32::try_from(new).unwrap_or(0);
        let bytes = |n| self.slots.payload(self.acked.plus(n)).len() as u64;
        self.acked_bytes += (0..new).map(bytes).sum::<u64>();
        self.acked = self.acked.plus(new);
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    const FIRST: Seq = Seq::new(0x7fff_fffd);

    #[test]
    fn small_writes_fill_the_last_unsent_packet() {
        let mut buffer = SendBuffer::new(FIRST, 4, 10);
        assert_eq!(buffer.write(b"abc") + buffer.write(b"defghijkl"), 12);
        assert_eq!(buffer.packet(FIRST), b"abcdefghij");
        assert_eq!(
            (buffer.take_unsent(), buffer.take_unsent()),
            (Some(FIRST), Some(FIRST.plus(1)))
        );
        buffer.write(b"m");
        assert_eq!(buffer.packet(FIRST.plus(1)), b"kl");
        assert_eq!(buffer.packet(FIRST.plus(2)), b"m");
        assert_eq!(buffer.write(&[0; 100]), 9 + 10);
        assert_eq!(buffer.write(b"x"), 0);
        assert_eq!(buffer.acknowledge(FIRST.plus(2)), Some(2));
        assert_eq!(buffer.write(&[0; 100]), 20);
    }

    #[test]
    fn repacks_only_unsent_packets_when_the_payload_grows() {
        let mut buffer = SendBuffer::new(FIRST, 8, 10);
        buffer.set_payload_max(4);
        assert_eq!(buffer.write(b"abcdefghijklmn"), 14);
        buffer.take_unsent();
        buffer.set_payload_max(10);
        let payloads: Vec<_> = std::iter::from_fn(|| buffer.take_unsent()).collect();
        let payloads: Vec<_> = payloads.into_iter().map(|seq| buffer.packet(seq)).collect();
        assert_eq!(payloads, [&b"efghijklmn"[..]]);
        assert_eq!(buffer.packet(FIRST), b"abcd");
        buffer.set_payload_max(3);
        assert_eq!((buffer.write(b"opqr"), buffer.free_packets()), (4, 4));
    }

    #[test]
    fn rejects_acknowledgements_of_unsent_packets() {
        let mut buffer = SendBuffer::new(FIRST, 4, 10);
        buffer.write(&[0; 40]);
        buffer.take_unsent();
        assert_eq!(buffer.acknowledge(FIRST.plus(2)), None);
        assert_eq!(buffer.acknowledge(FIRST.plus(1)), Some(1));
        assert_eq!(buffer.acknowledge(FIRST), Some(0));
        assert_eq!(buffer.acked(), FIRST.plus(1));
    }

    #[test]
    fn wakes_writers_for_a_sixteenth_unless_little_is_unsent() {
        let mut buffer = SendBuffer::new(FIRST, 64, 10);
        buffer.write(&[0; 640]);
        let taken: Vec<_> = std::iter::from_fn(|| buffer.take_unsent())
            .take(50)
            .collect();
        assert!(!buffer.is_worth_writing(), "no space is free");
        buffer.acknowledge(taken[4]);
        assert!(!buffer.is_worth_writing(), "4 packets free, 14 unsent");
        buffer.acknowledge(taken[5]);
        assert!(buffer.is_worth_writing(), "5 packets free");
        buffer.write(&[0; 40]);
        let all: Vec<_> = std::iter::from_fn(|| buffer.take_unsent())
            .take(14)
            .collect();
        assert!(
            buffer.is_worth_writing(),
            "a packet free, 4 unsent: {all:?}"
        );
    }

    #[test]
    fn sending_frees_space_when_unsent_packets_are_limited() {
        let mut buffer = SendBuffer::new(FIRST, 64, 10);
        buffer.limit_unsent(4);
        buffer.write(&[0; 640]);
        assert!(!buffer.is_worth_writing());
        buffer.take_unsent();
        assert!(buffer.is_worth_writing());
    }

    proptest! {
        #[test]
        fn packets_carry_the_written_bytes(writes in vec(vec(any::<u8>(), 0..50), 0..20)) {
            let mut buffer = SendBuffer::new(FIRST, 256, 7);
            let written: Vec<u8> = writes.concat();
            let taken: usize = writes.iter().map(|bytes| buffer.write(bytes)).sum();
            prop_assert_eq!(taken, written.len());
            let mut sent = Vec::new();
            while let Some(seq) = buffer.take_unsent() {
                sent.extend_from_slice(buffer.packet(seq));
            }
            prop_assert_eq!(sent, written);
        }
    }
}
