// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies: packets of one direction that were captured more than once.
//!
//! A capture of all interfaces of a router or a bridge has each packet once for each interface, and so has one of a
//! mirror port. A copy would count as a retransmission or a duplicate ACK. But TCP's fields are those of the packet, and
//! so is the IPv4 identification, which a retransmission has anew. Without one (IPv6, RFC 6864 §4.1) a retransmission
//! may be equal to a copy. Then a packet counts as a copy only where most packets before it have copies, too.

use crate::memory_budget::{MemoryBudget, capacity_bytes};
use crate::record::Copies;
use crate::segment::Segment;
use longhaul_packet::tcp::{ACK, CWR, FIN, PSH, SYN};
use std::collections::VecDeque;

/// Packets of a direction that a copy is looked for among, while none has a copy. Where data waits in the queue of a
/// router, the copies of its ACKs still come at once.
const SEEN_MAX: usize = 4;
/// The same where packets are equal that may be copies.
const SEEN_MAX_DOUBTFUL: usize = 16;
/// Packets that a copy is looked for among, as soon as one has a copy: the queue of a router lies between both.
const SEEN_MAX_COPIED: usize = 1 << 10;
/// Packets of a connection after which copies are no longer looked for, if none has come until then.
const TRIAL_PACKETS: u8 = 64;
/// Longest time from a packet to its copy, ns.
const DELAY_MAX_NS: u64 = 1_000_000_000;
/// The same for packets without an identification: less than the least retransmission timeout of Linux.
const UNNUMBERED_DELAY_MAX_NS: u64 = 100_000_000;
/// Most packets whose copies show how many copies the next one has.
const WITNESSES_MAX: usize = 32;
/// Fewest such packets, unless they begin with the SYN.
const WITNESSES_MIN: usize = 8;

/// Fewest of them with data that say whether data has copies: macOS sends some ACKs several times.
const DATA_WITNESSES_MIN: usize = 4;

/// Packet whose copies may follow.
#[derive(Debug, Clone, Copy)]
struct SeenPacket {
    at_ns: u64,
    seq: u32,
    payload: u32,
    ack: u32,
    tsval: u32,
    tsecr: u32,
    sack: (u32, u32),
    window: u16,
    ip_id: u16,
    flags: u8,
    ttl: u8,
    /// Number of copies so far.
    copies: u8,
    /// Whether a copy of its beginning has come.
    has_copied_beginning: bool,
    /// By how much the TTL of these copies was less: bit 0 for equal, bit 7 for 7 and more.
    ttl_drops: u8,
}

impl SeenPacket {
    fn new(segment: &Segment) -> Self {
        Self {
            at_ns: segment.at_ns,
            seq: segment.seq,
            payload: segment.payload,
            ack: segment.ack,
            tsval: segment.tsval,
            tsecr: segment.tsecr,
            sack: segment.sack[0],
            window: segment.window,
            ip_id: segment.ip_id,
            flags: segment.flags,
            ttl: segment.ttl,
            copies: 0,
            has_copied_beginning: false,
            ttl_drops: 0,
        }
    }

    /// Returns whether TCP's fields in `segment` are those of this packet. Either may be a super-packet, and the other
    /// a segment of it.
    fn has_fields_of(&self, segment: &Segment) -> bool {
        let is_whole = (segment.seq, segment.payload) == (self.seq, self.payload);
        let flags = if is_whole {
            u8::MAX
        } else {
            !(PSH | FIN | CWR)
        };
        (is_whole || self.overlaps(segment))
            && (segment.ack, segment.window) == (self.ack, self.window)
            && (segment.tsval, segment.tsecr) == (self.tsval, self.tsecr)
            && (segment.flags ^ self.flags) & flags == 0
            && segment.sack[0] == self.sack
    }

    /// Returns whether `segment` is a part of this packet, or this packet is its beginning.
    fn overlaps(&self, segment: &Segment) -> bool {
        segment.payload > 0
            && self.offset_of(segment) < self.payload
            && (segment.seq == self.seq || self.ends_after(segment))
    }

    fn offset_of(&self, segment: &Segment) -> u32 {
        segment.seq.wrapping_sub(self.seq)
    }

    /// Returns whether the packet has bytes behind those of `segment`, or as many.
    fn ends_after(&self, segment: &Segment) -> bool {
        u64::from(self.offset_of(segment)) + u64::from(segment.payload) <= u64::from(self.payload)
    }

    /// Returns whether the identification of `segment` is that of this packet. The segments of a super-packet have
    /// consecutive ones, and the first comes first: without it, they are retransmissions whose identifications happen to
    /// follow.
    fn has_id_of(&self, segment: &Segment) -> bool {
        let offset = self.offset_of(segment);
        match u32::from(segment.ip_id.wrapping_sub(self.ip_id)) {
            0 => offset == 0,
            step => {
                self.has_copied_beginning
                    && offset > 0
                    && offset.is_multiple_of(step)
                    && offset / step >= segment.payload
            }
        }
    }

    fn end(&self) -> u32 {
        self.seq.wrapping_add(self.payload)
    }

    fn add_copy(&mut self, segment: &Segment) {
        self.copies = self.copies.saturating_add(1);
        self.ttl_drops |= self.ttl_drop_of(segment);
    }

    fn ttl_drop_of(&self, segment: &Segment) -> u8 {
        let drop = self.ttl.checked_sub(segment.ttl);
        drop.map_or(0, |drop| 1 << drop.min(7))
    }
}

/// Filter that finds the copies in both directions of a connection. Nothing is looked for in a connection that begins without
/// copies, because that would take a third as long as all else.
#[derive(Debug, Default)]
pub(super) struct CopyFilter {
    directions: [DirectionFilter; 2],
    /// Packets that were looked at, up to [`TRIAL_PACKETS`].
    packets: u8,
    has_copies: bool,
    /// Whether [`TRIAL_PACKETS`] had no copies.
    is_over: bool,
}

impl CopyFilter {
    /// Returns whether `segment` of the end `end` is a copy of a packet before it, and counts it in that case.
    #[inline]
    pub(super) fn is_copy(
        &mut self,
        segment: &Segment,
        end: usize,
        budget: &mut MemoryBudget,
    ) -> bool {
        !self.is_over && self.process(segment, end, budget)
    }

    #[cold]
    fn process(&mut self, segment: &Segment, end: usize, budget: &mut MemoryBudget) -> bool {
        if segment.ttl == 0 {
            return false;
        }
        self.packets = (self.packets + 1).min(TRIAL_PACKETS);
        let direction = &mut self.directions[end];
        let seen_max = match (self.has_copies, direction.is_doubtful) {
            (true, _) => SEEN_MAX_COPIED,
            (false, true) => SEEN_MAX_DOUBTFUL,
            (false, false) => SEEN_MAX,
        };
        let is_copy = direction.process(segment, seen_max, budget);
        self.has_copies |= is_copy;
        self.is_over = self.packets == TRIAL_PACKETS && !self.has_copies;
        if self.is_over {
            let tables = self.directions.iter_mut().map(|filter| &mut filter.seen);
            tables.for_each(|table| budget.free(table));
        }
        is_copy
    }

    /// Returns the memory of the tables, bytes.
    pub(super) fn table_bytes(&self) -> usize {
        let tables = self.directions.iter().map(|filter| &filter.seen);
        tables.map(capacity_bytes).sum()
    }

    /// Returns the record of each direction; `None` without copies.
    pub(super) fn finish(&self) -> [Option<Copies>; 2] {
        self.directions.each_ref().map(DirectionFilter::finish)
    }
}

/// Filter of one direction.
#[derive(Debug, Default)]
struct DirectionFilter {
    seen: VecDeque<SeenPacket>,
    /// Highest numbers so far: end of the data, and ACK. A packet that exceeds one of them is no copy.
    end: Option<u32>,
    ack: Option<u32>,
    /// Whether different packets had the same identification, so that it identifies none.
    has_constant_id: bool,
    /// Whether packets without an identification were equal.
    is_doubtful: bool,
    /// Record whose mean delay is the sum of all delays so far.
    record: Copies,
}

impl DirectionFilter {
    /// Processes a packet, and returns whether it is a copy. At most `seen_max` packets are kept.
    fn process(&mut self, segment: &Segment, seen_max: usize, budget: &mut MemoryBudget) -> bool {
        let end = end_of(segment);
        let advances_end = exceeds(end, self.end);
        let advances_ack = segment.flags & ACK != 0 && exceeds(segment.ack, self.ack);
        if advances_end {
            self.end = Some(end);
        }
        if advances_ack {
            self.ack = Some(segment.ack);
        }
        if advances_end || advances_ack {
            self.add(segment, seen_max, budget);
            return false;
        }
        self.process_repeated(segment, seen_max, budget)
    }

    /// Processes a segment whose numbers were seen before.
    fn process_repeated(
        &mut self,
        segment: &Segment,
        seen_max: usize,
        budget: &mut MemoryBudget,
    ) -> bool {
        if let Some(at) = self.find(segment) {
            self.count(at, segment);
            return true;
        }
        match self.find_doubtful(segment) {
            Some(at) => {
                self.seen[at].add_copy(segment);
                self.is_doubtful = true;
            }
            None => self.add(segment, seen_max, budget),
        }
        false
    }

    /// Adds a packet that is no copy. The oldest makes room for it.
    fn add(&mut self, segment: &Segment, seen_max: usize, budget: &mut MemoryBudget) {
        let last_id = self.seen.back().map(|last| last.ip_id);
        self.has_constant_id |= segment.ip_id != 0 && last_id == Some(segment.ip_id);
        if !budget.ensure_room(&mut self.seen, seen_max) {
            self.seen.pop_front();
        }
        if self.seen.len() < self.seen.capacity() {
            self.seen.push_back(SeenPacket::new(segment));
        }
    }

    /// Returns the packet that `segment` is a copy of. A SYN is never repeated so soon, even without an identification.
    fn find(&self, segment: &Segment) -> Option<usize> {
        if self.is_numbered(segment) {
            let mut equal = self.equal_before(segment, DELAY_MAX_NS);
            return equal.find(|&at| self.seen[at].has_id_of(segment));
        }
        let equal = self.equal_before(segment, UNNUMBERED_DELAY_MAX_NS);
        equal
            .filter(|&at| segment.flags & SYN != 0 || self.is_expected(segment, at))
            .last()
    }

    fn is_numbered(&self, segment: &Segment) -> bool {
        segment.ip_id != 0 && !self.has_constant_id
    }

    /// Returns the packets with the same fields that came at most `delay_max_ns` before, the last one first.
    fn equal_before(&self, segment: &Segment, delay_max_ns: u64) -> impl Iterator<Item = usize> {
        let from_ns = segment.at_ns.saturating_sub(delay_max_ns);
        let recent = (self.seen.iter().enumerate().rev())
            .take_while(move |(_, packet)| packet.at_ns >= from_ns);
        recent
            .filter(|(_, packet)| packet.has_fields_of(segment))
            .map(|(at, _)| at)
    }

    /// Returns whether `segment` is a copy of the packet `at` as those before it have them: as many, and with a TTL that
    /// is less by as much.
    fn is_expected(&self, segment: &Segment, at: usize) -> bool {
        let packet = &self.seen[at];
        let drop = packet.ttl_drop_of(segment);
        packet.copies < self.usual_copies(at)
            && self
                .witnesses(at)
                .any(|before| before.ttl_drops & drop != 0)
    }

    /// Returns how many copies at least half of the packets before `at` have, and half of those with data. Few packets
    /// say nothing, unless they begin with the SYN.
    fn usual_copies(&self, at: usize) -> u8 {
        let first = self.seen.front();
        let begins = first.is_some_and(|first| first.flags & SYN != 0);
        if at == 0 || at < WITNESSES_MIN && !begins {
            return 0;
        }
        let of_all = self.median_copies(at, 1, |_| true);
        let of_data = self.median_copies(at, DATA_WITNESSES_MIN, |packet| packet.payload > 0);
        of_all.min(of_data)
    }

    /// Returns how many copies at least half of the chosen packets before `at` have; the greatest number if they are
    /// fewer than `min`.
    fn median_copies(&self, at: usize, min: usize, is_chosen: fn(&SeenPacket) -> bool) -> u8 {
        let mut copies = [u8::MAX; WITNESSES_MAX];
        let chosen = self.witnesses(at).filter(|packet| is_chosen(packet));
        let count = copies
            .iter_mut()
            .zip(chosen)
            .map(|(into, packet)| *into = packet.copies)
            .count();
        copies.sort_unstable();
        if count < min {
            u8::MAX
        } else {
            copies[(count - 1) / 2]
        }
    }

    fn witnesses(&self, at: usize) -> impl Iterator<Item = &SeenPacket> {
        self.seen.range(at.saturating_sub(WITNESSES_MAX)..at)
    }

    /// Returns the packet that `segment` equals, while it is unknown whether packets without an identification have copies.
    fn find_doubtful(&self, segment: &Segment) -> Option<usize> {
        let mut equal = self.equal_before(segment, UNNUMBERED_DELAY_MAX_NS);
        let last = equal.next().filter(|_| !self.is_numbered(segment));
        last.filter(|&at| self.usual_copies(at) == 0)
    }

    /// Counts a copy of the packet `at`. Of the segments of a super-packet, the last counts.
    fn count(&mut self, at: usize, segment: &Segment) {
        let packet = &mut self.seen[at];
        packet.has_copied_beginning |= segment.seq == packet.seq;
        if packet.ends_after(segment) && end_of(segment) != packet.end() {
            return;
        }
        packet.add_copy(segment);
        let record = &mut self.record;
        let ttl_difference = packet.ttl.abs_diff(segment.ttl);
        record.packets += u64::from(packet.copies == 1);
        record.copies += 1;
        record.ttl_difference_max = record.ttl_difference_max.max(ttl_difference);
        let delay_ns = segment.at_ns.saturating_sub(packet.at_ns);
        record.delay_mean_ns = record.delay_mean_ns.saturating_add(delay_ns);
    }

    fn finish(&self) -> Option<Copies> {
        let delay_mean_ns = (self.record.delay_mean_ns).checked_div(self.record.copies)?;
        Some(Copies {
            delay_mean_ns,
            ..self.record
        })
    }
}

fn end_of(segment: &Segment) -> u32 {
    segment.seq.wrapping_add(segment.payload)
}

/// Returns whether a number is above the highest one so far (RFC 9293 §3.4).
fn exceeds(number: u32, highest: Option<u32>) -> bool {
    highest.is_none_or(|highest| number.wrapping_sub(highest).cast_signed() > 0)
}
