// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that await their ACK: round trips by pairs of data and ACK.

use crate::memory_budget::{MemoryBudget, capacity_bytes};
use std::collections::VecDeque;
use std::ops::Range;

/// A packet sent for the first time.
#[derive(Debug, Clone, Copy)]
struct Packet {
    at_ns: u64,
    /// First number on the wire.
    start: u32,
    /// Length in sequence numbers.
    length: u32,
}

/// Send times of the packets around an ACK number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AckBoundary {
    /// Send time of the packet with the last byte acknowledged, ns.
    pub(super) last_ns: u64,
    /// Send time of the packet with the first byte not acknowledged, ns. `None` if every byte sent is acknowledged, or
    /// if that packet is not in the table.
    pub(super) next_ns: Option<u64>,
}

/// Packets in order of their numbers, which is the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct UnackedPackets {
    packets: VecDeque<Packet>,
    /// Range from the first to the last retransmitted number. An ACK that covers any of it is not a sample: it may
    /// answer either copy, and the data above may have waited for it (Karn; RFC 6298 §3; Linux:
    /// `FLAG_RETRANS_DATA_ACKED`).
    retransmitted: Range<u64>,
    /// Cumulative ACK number.
    acked: u64,
}

impl UnackedPackets {
    /// Records numbers that were sent for the first time. If there are too many packets, the newest is dropped, and its
    /// ACK has no sample.
    #[inline]
    pub(super) fn record_sent(
        &mut self,
        start: u64,
        length: u32,
        at_ns: u64,
        budget: &mut MemoryBudget,
    ) {
        let most = budget.settings.unacked_max;
        if budget.ensure_room(&mut self.packets, most) {
            self.packets.push_back(Packet {
                at_ns,
                start: start as u32,
                length,
            });
        }
    }

    /// Returns the packets that have waited longest: send time, first number on the wire, and length.
    pub(super) fn oldest(&self) -> impl Iterator<Item = (u64, u32, u32)> {
        (self.packets.iter()).map(|packet| (packet.at_ns, packet.start, packet.length))
    }

    /// Returns the memory of the table, bytes.
    pub(super) fn table_bytes(&self) -> usize {
        capacity_bytes(&self.packets)
    }

    /// Removes all packets, after a break of the sequence numbers.
    pub(super) fn clear(&mut self) {
        self.packets.clear();
        self.retransmitted = 0..0;
    }

    /// Records that these numbers were retransmitted.
    pub(super) fn record_retransmission(&mut self, numbers: Range<u64>) {
        let is_over = self.acked >= self.retransmitted.end;
        self.retransmitted = if is_over {
            numbers
        } else {
            self.retransmitted.start.min(numbers.start)..self.retransmitted.end.max(numbers.end)
        };
    }

    /// Advances the ACK number from `before` to `ack`. Returns the send times of the packets around `ack`, if that is a
    /// round-trip sample: one sample an ACK.
    #[inline]
    pub(super) fn acknowledge(&mut self, before: u64, ack: u64) -> Option<AckBoundary> {
        let mut last = None;
        while let Some(packet) = self.packets.front() {
            // Signed, because both are numbers on the wire, less than half of the number space apart.
            let beyond = (ack as u32).wrapping_sub(packet.start).cast_signed();
            if beyond <= 0 {
                break;
            }
            let over = beyond.cast_unsigned();
            // `over == length` is the end of the packet; beyond it, another packet carried the last byte.
            last = (over <= packet.length).then_some(packet.at_ns);
            if over < packet.length {
                break;
            }
            self.packets.pop_front();
        }
        self.acked = ack;
        let last_ns =
            last.filter(|_| before >= self.retransmitted.end || ack <= self.retransmitted.start)?;
        let next = self.packets.front().filter(|packet| {
            // A later packet is not the next: the table was full when the next one was sent.
            (ack as u32).wrapping_sub(packet.start) < packet.length
        });
        Some(AckBoundary {
            last_ns,
            next_ns: next.map(|packet| packet.at_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn four() -> MemoryBudget {
        MemoryBudget::new(Settings {
            unacked_max: 4,
            ..Settings::default()
        })
    }

    /// Packets of 10 numbers at times 100, 101, … from number 1,000.
    fn sent(count: u32) -> UnackedPackets {
        let mut unacked = UnackedPackets::default();
        for i in 0..u64::from(count) {
            unacked.record_sent(1_000 + i * 10, 10, 100 + i, &mut four());
        }
        unacked
    }

    fn last(covered: Option<AckBoundary>) -> Option<u64> {
        covered.map(|covered| covered.last_ns)
    }

    #[test]
    fn samples_first_byte_not_acknowledged() {
        let mut unacked = sent(4);
        let covered = unacked.acknowledge(1_000, 1_020).unwrap();
        assert_eq!((covered.last_ns, covered.next_ns), (101, Some(102)));
        let covered = unacked.acknowledge(1_020, 1_025).unwrap();
        assert_eq!((covered.last_ns, covered.next_ns), (102, Some(102)));
        let covered = unacked.acknowledge(1_025, 1_040).unwrap();
        assert_eq!((covered.last_ns, covered.next_ns), (103, None));
    }

    #[test]
    fn skips_packet_beyond_full_table() {
        let mut unacked = sent(4);
        unacked.record_sent(1_040, 10, 104, &mut four());
        assert_eq!(last(unacked.acknowledge(1_000, 1_020)), Some(101));
        unacked.record_sent(1_050, 10, 105, &mut four());
        let covered = unacked.acknowledge(1_020, 1_040).unwrap();
        assert_eq!((covered.last_ns, covered.next_ns), (103, None));
    }

    #[test]
    fn samples_last_packet_covered() {
        let mut unacked = sent(4);
        assert_eq!(last(unacked.acknowledge(1_000, 1_020)), Some(101));
        assert_eq!(unacked.acknowledge(1_020, 1_020), None);
        assert_eq!(last(unacked.acknowledge(1_020, 1_040)), Some(103));
    }

    #[test]
    fn samples_part_of_super_packet() {
        let mut unacked = sent(2);
        assert_eq!(last(unacked.acknowledge(1_000, 1_005)), Some(100));
        assert_eq!(last(unacked.acknowledge(1_005, 1_010)), Some(100));
    }

    #[test]
    fn skips_retransmitted_packet() {
        let mut unacked = sent(3);
        unacked.record_retransmission(1_000..1_010);
        assert_eq!(unacked.acknowledge(1_000, 1_020), None);
        assert_eq!(last(unacked.acknowledge(1_020, 1_030)), Some(102));
    }

    /// A tail loss probe repeats the last packet; ACKs of the packets before it are unambiguous.
    #[test]
    fn samples_packets_before_retransmission() {
        let mut unacked = sent(4);
        unacked.record_retransmission(1_030..1_040);
        assert_eq!(last(unacked.acknowledge(1_000, 1_020)), Some(101));
        assert_eq!(last(unacked.acknowledge(1_020, 1_030)), Some(102));
        assert_eq!(unacked.acknowledge(1_030, 1_040), None);
    }

    #[test]
    fn skips_packets_between_retransmissions() {
        let mut unacked = sent(4);
        unacked.record_retransmission(1_000..1_010);
        unacked.record_retransmission(1_030..1_040);
        assert_eq!(unacked.acknowledge(1_000, 1_010), None);
        assert_eq!(unacked.acknowledge(1_010, 1_020), None);
        let mut unacked = sent(4);
        unacked.record_retransmission(1_000..1_010);
        assert_eq!(unacked.acknowledge(1_000, 1_010), None);
        unacked.record_retransmission(1_030..1_040);
        assert_eq!(last(unacked.acknowledge(1_010, 1_020)), Some(101));
    }

    #[test]
    fn skips_packets_beyond_bound() {
        let mut unacked = sent(6);
        assert_eq!(unacked.packets.len(), 4);
        assert_eq!(unacked.acknowledge(1_000, 1_060), None);
        unacked.record_sent(1_060, 10, 200, &mut four());
        assert_eq!(last(unacked.acknowledge(1_060, 1_070)), Some(200));
    }

    #[test]
    fn handles_wrapping_numbers() {
        let mut unacked = UnackedPackets::default();
        let start = (1 << 33) - 5;
        unacked.record_sent(start, 10, 7, &mut four());
        assert_eq!(last(unacked.acknowledge(start, start + 10)), Some(7));
    }
}
