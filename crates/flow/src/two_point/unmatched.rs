// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that one point has seen and the other not yet.

use crate::record::MissingPackets;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

/// Largest payload of a packet, as in Linux's BIG TCP (`GSO_MAX_SIZE`, include/linux/netdevice.h).
const LEN_MAX: u64 = 1 << 19;
/// Most candidates that are checked for a match. More have the same timestamp and number only if a packet is
/// retransmitted very often, or if a sender attacks the comparison.
const CANDIDATES_MAX: usize = 64;

/// A packet with payload. Its first sequence number is passed apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    pub(super) end: u64,
    pub(super) at_ns: u64,
    pub(super) tsval: Option<u32>,
    pub(super) segment_bytes: u32,
}

/// Fields that identify a packet without payload, at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EmptySegment {
    pub(super) ack: u64,
    pub(super) tsval: Option<u32>,
    pub(super) window: u16,
    pub(super) flags: u8,
    pub(super) sack: Option<(u32, u32)>,
}

/// Part of a packet that both points have seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MatchedPart {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) at_ns: u64,
    pub(super) serial: u64,
}

/// TSval, first number and packet serial of a part.
type Key = (Option<u32>, u64, u64);

/// Unmatched part of a packet.
#[derive(Debug, Clone, Copy)]
struct Part {
    end: u64,
    at_ns: u64,
    segment_bytes: u32,
}

/// Unmatched packets of one point and direction.
#[derive(Debug, Default)]
pub(super) struct UnmatchedPackets {
    /// Number of packets so far: the serial of the latest.
    packets_seen: u64,
    /// Unmatched parts; matched ones are cut out.
    data: BTreeMap<Key, Part>,
    /// Serial and first number of parts that begin after their packet's first number.
    split_parts: BTreeSet<(u64, u64)>,
    /// Times of packets without payload, the first of equal ones first.
    empty_segments: BTreeMap<(EmptySegment, u64), u64>,
    /// Latest packets, matched or not, in order of arrival.
    queue: VecDeque<QueuedPacket>,
    /// Lowest and highest serial of a matched packet.
    first_matched: Option<u64>,
    last_matched: Option<u64>,
    missing: MissingPackets,
    outside_overlap: MissingPackets,
}

/// Packet that waits for expiry, matched or not.
#[derive(Debug, Clone, Copy)]
enum QueuedPacket {
    Data { start: u64, tsval: Option<u32> },
    Empty(EmptySegment),
}

impl UnmatchedPackets {
    pub(super) fn next_serial(&mut self) -> u64 {
        self.packets_seen += 1;
        self.packets_seen
    }

    pub(super) fn unmatched_parts(&self) -> usize {
        self.data.len() + self.empty_segments.len()
    }

    /// Cuts out and returns the first unmatched part of `from..packet.end` with the same TSval. If several begin there,
    /// it takes the one whose time is nearest to `expected_ns`, or the earliest if that is `None`.
    pub(super) fn take_match(
        &mut self,
        from: u64,
        packet: &Packet,
        expected_ns: Option<u64>,
    ) -> Option<MatchedPart> {
        if from >= packet.end {
            return None;
        }
        let key = self.part_covering(from, packet.tsval, expected_ns);
        let key = key.or_else(|| self.part_after(from, packet, expected_ns))?;
        let (tsval, start, serial) = key;
        let found = self.data.remove(&key)?;
        let is_first = !self.split_parts.remove(&(serial, start));
        let cut = start.max(from)..found.end.min(packet.end);
        if start < cut.start {
            let end = cut.start;
            self.insert_part(key, Part { end, ..found }, is_first);
        }
        if cut.end < found.end {
            self.insert_part((tsval, cut.end, serial), found, false);
        }
        Some(MatchedPart {
            start: cut.start,
            end: cut.end,
            at_ns: found.at_ns,
            serial,
        })
    }

    /// Returns the part that contains number `from`.
    fn part_covering(
        &self,
        from: u64,
        tsval: Option<u32>,
        expected_ns: Option<u64>,
    ) -> Option<Key> {
        let least = (tsval, from.saturating_sub(LEN_MAX), 0);
        let before = self.data.range(least..(tsval, from, 0)).rev();
        let parts = self
            .parts_from(from, tsval)
            .chain(before.take(CANDIDATES_MAX));
        nearest_in_time(parts.filter(|(_, part)| part.end > from), expected_ns)
    }

    /// Returns the first part that begins after `from`, before the end of `packet`.
    fn part_after(&self, from: u64, packet: &Packet, expected_ns: Option<u64>) -> Option<Key> {
        let tsval = packet.tsval;
        let mut parts = self
            .data
            .range((tsval, from, u64::MAX)..(tsval, packet.end, 0));
        let ((_, start, _), _) = parts.next()?;
        nearest_in_time(self.parts_from(*start, tsval), expected_ns)
    }

    /// Returns the parts that begin at `start`.
    fn parts_from(&self, start: u64, tsval: Option<u32>) -> impl Iterator<Item = (&Key, &Part)> {
        let keys: RangeInclusive<Key> = (tsval, start, 0)..=(tsval, start, u64::MAX);
        self.data.range(keys).take(CANDIDATES_MAX)
    }

    pub(super) fn take_empty(&mut self, segment: &EmptySegment) -> Option<MatchedPart> {
        let mut equal = self
            .empty_segments
            .range((*segment, 0)..=(*segment, u64::MAX));
        let (&key, &at_ns) = equal.next()?;
        self.empty_segments.remove(&key);
        Some(MatchedPart {
            start: segment.ack,
            end: segment.ack,
            at_ns,
            serial: key.1,
        })
    }

    /// Inserts the part of packet `serial` from `start` on; the packet begins at `first`.
    pub(super) fn insert(&mut self, first: u64, start: u64, serial: u64, packet: &Packet) {
        let part = Part {
            end: packet.end,
            at_ns: packet.at_ns,
            segment_bytes: packet.segment_bytes,
        };
        self.insert_part((packet.tsval, start, serial), part, start == first);
    }

    fn insert_part(&mut self, key: Key, part: Part, is_first: bool) {
        self.data.insert(key, part);
        if !is_first {
            self.split_parts.insert((key.2, key.1));
        }
    }

    pub(super) fn insert_empty(&mut self, serial: u64, segment: EmptySegment, at_ns: u64) {
        self.empty_segments.insert((segment, serial), at_ns);
    }

    pub(super) fn enqueue(&mut self, start: u64, tsval: Option<u32>) {
        self.queue.push_back(QueuedPacket::Data { start, tsval });
    }

    pub(super) fn enqueue_empty(&mut self, segment: EmptySegment) {
        self.queue.push_back(QueuedPacket::Empty(segment));
    }

    /// Marks packet `serial` as matched; returns whether a later one was matched before.
    pub(super) fn record_match(&mut self, serial: u64) -> bool {
        let reordered = self.last_matched.is_some_and(|last| last > serial);
        self.first_matched = Some(self.first_matched.map_or(serial, |first| first.min(serial)));
        self.last_matched = self.last_matched.max(Some(serial));
        reordered
    }

    /// Expires all but the last `packets` packets, and more while there are more unmatched parts.
    pub(super) fn expire_beyond(&mut self, packets: usize) {
        while self.queue.len() > packets || self.unmatched_parts() > packets {
            let serial = self.packets_seen + 1 - self.queue.len() as u64;
            match self.queue.pop_front() {
                Some(QueuedPacket::Data { start, tsval }) => self.expire(serial, start, tsval),
                Some(QueuedPacket::Empty(segment)) => self.expire_empty(serial, segment),
                None => return,
            }
        }
    }

    fn expire_empty(&mut self, serial: u64, segment: EmptySegment) {
        if self.empty_segments.remove(&(segment, serial)).is_some() {
            self.counter_of(serial).acks += 1;
        }
    }

    fn expire(&mut self, serial: u64, start: u64, tsval: Option<u32>) {
        self.expire_part((tsval, start, serial));
        while let Some(&(_, start)) = self
            .split_parts
            .range((serial, 0)..=(serial, u64::MAX))
            .next()
        {
            self.split_parts.remove(&(serial, start));
            self.expire_part((tsval, start, serial));
        }
    }

    fn expire_part(&mut self, key: Key) {
        if let Some(part) = self.data.remove(&key) {
            let bytes = part.end - key.1;
            let missing = self.counter_of(key.2);
            missing.bytes += bytes;
            missing.segments += bytes.div_ceil(u64::from(part.segment_bytes));
        }
    }

    fn counter_of(&mut self, serial: u64) -> &mut MissingPackets {
        let before = self.first_matched.is_none_or(|first| serial < first);
        let after = self.last_matched.is_none_or(|last| serial > last);
        if before || after {
            &mut self.outside_overlap
        } else {
            &mut self.missing
        }
    }

    pub(super) fn missing_packets(&self) -> MissingPackets {
        self.missing
    }

    pub(super) fn outside_overlap(&self, other: &Self) -> MissingPackets {
        let (one, two) = (self.outside_overlap, other.outside_overlap);
        MissingPackets {
            segments: one.segments + two.segments,
            bytes: one.bytes + two.bytes,
            acks: one.acks + two.acks,
        }
    }
}

/// Returns the part whose time is nearest to `expected_ns`, or the earliest if that is `None`. Among equals it is the
/// one with the least key.
fn nearest_in_time<'a>(
    parts: impl Iterator<Item = (&'a Key, &'a Part)>,
    expected_ns: Option<u64>,
) -> Option<Key> {
    let distance_ns = |at_ns: u64| expected_ns.map_or(at_ns, |expected| at_ns.abs_diff(expected));
    parts
        .min_by_key(|(key, part)| (distance_ns(part.at_ns), **key))
        .map(|(key, _)| *key)
}
