// SPDX-License-Identifier: MIT OR Apache-2.0
//! A receiver as Linux has it: GRO, delayed ACKs, quick ACKs at the start, SACK blocks.

use super::ranges::Ranges;
use longhaul_netem::Departure;
use longhaul_units::Time;

/// When a receiver acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckPolicy {
    /// Packets for each ACK where nothing hurries: 2 (RFC 5681 §4.2), 1 with `quickack`, more with
    /// an ACK ratio.
    pub packets: u32,
    /// GRO: neighbours that come within this of the first make one aggregate, and one ACK serves an
    /// aggregate of at least `packets`. Zero is no GRO. 100 µs is what `longhaul link` does by
    /// default, and about what interrupt coalescing does.
    pub aggregate: Time,
    /// ACKs that are sent at once at the start (`TCP_MAX_QUICKACKS`).
    pub quick: u32,
    /// The longest that an ACK waits for more packets (`TCP_DELACK_MIN`).
    pub delay: Time,
}

impl Default for AckPolicy {
    fn default() -> Self {
        Self {
            packets: 2,
            aggregate: Time::from_micros(100),
            quick: 16,
            delay: Time::from_millis(40),
        }
    }
}

/// An acknowledgement; packets are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// When it is sent, and after the way back when it arrives.
    pub at: Time,
    /// The first packet that is missing.
    pub una: u64,
    /// Most recent first, as RFC 2018 §4 asks; an empty block ends the list.
    pub blocks: [SackBlock; SACK_BLOCKS],
}

/// Blocks that fit beside a time stamp option.
pub const SACK_BLOCKS: usize = 3;

/// Packets beyond a gap that have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlock {
    /// From the ACK's `una` to the first of them.
    pub offset: u32,
    /// How many.
    pub count: u32,
}

/// One connection's receiving end. It reads at once: its window never closes.
#[derive(Debug)]
pub struct Receiver {
    policy: AckPolicy,
    next: u64,
    beyond: Ranges,
    /// A packet of each of the blocks that changed last, most recent first.
    recent: [u64; SACK_BLOCKS],
    waiting: u32,
    waits_until: Time,
    quick: u32,
}

impl Receiver {
    /// A receiver that has nothing yet.
    #[must_use]
    pub fn new(policy: AckPolicy) -> Self {
        Self {
            policy,
            next: 0,
            beyond: Ranges::default(),
            recent: [u64::MAX; SACK_BLOCKS],
            waiting: 0,
            waits_until: Time::MAX,
            quick: policy.quick,
        }
    }

    /// Packets from `seq` on come as `train` says, none before those that came earlier.
    pub fn on_train(&mut self, seq: u64, train: &Departure, mut emit: impl FnMut(Ack)) {
        let mut index = 0;
        while index < train.count {
            let (count, at) = self.aggregate(train, index);
            self.on_time(at, &mut emit);
            self.on_aggregate(at, seq + u64::from(index), count, &mut emit);
            index += count;
        }
    }

    /// An ACK that waits may not wait longer than until this.
    #[must_use]
    pub fn next_deadline(&self) -> Time {
        self.waits_until
    }

    /// Sends the ACK that has waited long enough by `now`.
    pub fn on_time(&mut self, now: Time, emit: &mut impl FnMut(Ack)) {
        if self.waits_until <= now {
            let at = self.waits_until;
            self.acknowledge(at, emit);
        }
    }

    /// Packets in order so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.next
    }

    /// How many packets from `index` on the stack sees as one, and when.
    fn aggregate(&self, train: &Departure, index: u32) -> (u32, Time) {
        let rest = train.count - index;
        let quantum = self.policy.aggregate;
        if quantum == Time::ZERO {
            return (1, train.at(index));
        }
        let (last, until) = (train.last_at(), train.at(index) + quantum);
        match last <= until {
            true => (rest, last),
            false => (train.out_by(until) - index, until),
        }
    }

    fn on_aggregate(&mut self, at: Time, seq: u64, count: u32, emit: &mut impl FnMut(Ack)) {
        let end = seq + u64::from(count);
        let in_order = seq <= self.next && end > self.next;
        if in_order && self.beyond.is_empty() {
            self.next = end;
            return self.delay_ack(at, count, emit);
        }
        if in_order {
            self.fill(end);
        } else if seq > self.next {
            self.keep(seq, end);
        }
        // RFC 5681 §4.2: out of order, a filled gap, or a duplicate.
        self.acknowledge(at, emit);
    }

    fn delay_ack(&mut self, at: Time, count: u32, emit: &mut impl FnMut(Ack)) {
        self.waiting += count;
        if self.quick > 0 || self.waiting >= self.policy.packets {
            self.quick = self.quick.saturating_sub(1);
            return self.acknowledge(at, emit);
        }
        self.waits_until = self.waits_until.min(at + self.policy.delay);
    }

    fn fill(&mut self, end: u64) {
        self.next = self.beyond.around(end).map_or(end, |block| block.1);
        self.beyond.remove_below(self.next);
    }

    fn keep(&mut self, seq: u64, end: u64) {
        self.beyond.insert(seq, end);
        let block = self.beyond.around(seq).unwrap_or((seq, end));
        let mut last = seq;
        // What is moved down ends where the block was named before.
        for place in &mut self.recent {
            let named = std::mem::replace(place, last);
            if (block.0..block.1).contains(&named) {
                break;
            }
            last = named;
        }
    }

    fn acknowledge(&mut self, at: Time, emit: &mut impl FnMut(Ack)) {
        self.waiting = 0;
        self.waits_until = Time::MAX;
        emit(Ack {
            at,
            una: self.next,
            blocks: self.blocks(),
        });
    }

    fn blocks(&self) -> [SackBlock; SACK_BLOCKS] {
        let mut blocks = [SackBlock::default(); SACK_BLOCKS];
        if self.beyond.is_empty() {
            return blocks;
        }
        let known = self
            .recent
            .iter()
            .filter_map(|seq| self.beyond.around(*seq));
        for (block, (start, end)) in blocks.iter_mut().zip(known) {
            *block = SackBlock {
                offset: (start - self.next) as u32,
                count: (end - start) as u32,
            };
        }
        blocks
    }
}
