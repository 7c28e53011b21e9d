// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiver that behaves like Linux: GRO, delayed ACKs, quick ACKs at the start, SACK blocks.

use super::ranges::Ranges;
use longhaul_netem::Departure;
use longhaul_units::Time;

/// Policy for sending ACKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckPolicy {
    /// Packets in order that get one ACK: 2 (RFC 5681 §4.2), 1 with `quickack`, more with an ACK ratio.
    pub packets: u32,
    /// Packets that arrive within this time of the first form one aggregate. An aggregate of at least
    /// `packets` gets one ACK. Zero means no GRO. The default of `longhaul link`, 100 µs, has about the effect of
    /// interrupt coalescing.
    pub gro_interval: Time,
    /// ACKs sent at once at the start (`TCP_MAX_QUICKACKS`).
    pub quick_acks: u32,
    /// Longest wait of an ACK for more packets (`TCP_DELACK_MIN`).
    pub delay: Time,
}

impl Default for AckPolicy {
    fn default() -> Self {
        Self {
            packets: 2,
            gro_interval: Time::from_micros(100),
            quick_acks: 16,
            delay: Time::from_millis(40),
        }
    }
}

/// Acknowledgement. Packets are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Time at which the receiver sends it. After the reverse path: time at which the sender gets it.
    pub at: Time,
    /// First packet that is missing.
    pub una: u64,
    /// SACK blocks, the most recent first (RFC 2018 §4). An empty block ends the list.
    pub blocks: [SackBlock; SACK_BLOCKS],
}

/// Number of SACK blocks that fit beside a timestamp option.
pub const SACK_BLOCKS: usize = 3;

/// Range of packets that arrived beyond a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlock {
    /// Distance from the ACK's `una` to the first packet of the range.
    pub offset: u32,
    /// Number of packets.
    pub count: u32,
}

/// Receiving end of one connection. The application reads at once, so the window never closes.
#[derive(Debug)]
pub struct Receiver {
    policy: AckPolicy,
    /// First packet that is missing.
    next: u64,
    /// Packets that arrived beyond a gap.
    beyond_gap: Ranges,
    /// One packet of each SACK block that changed recently, the most recent first.
    recent: [u64; SACK_BLOCKS],
    /// Number of packets in order that no ACK covers yet.
    unacked: u32,
    /// Deadline of the delayed ACK; [`Time::MAX`] if none is pending.
    delayed_ack_at: Time,
    /// Quick ACKs left.
    quick_acks: u32,
}

impl Receiver {
    /// Creates a receiver that has no packets.
    #[must_use]
    pub fn new(policy: AckPolicy) -> Self {
        Self {
            policy,
            next: 0,
            beyond_gap: Ranges::default(),
            recent: [u64::MAX; SACK_BLOCKS],
            unacked: 0,
            delayed_ack_at: Time::MAX,
            quick_acks: policy.quick_acks,
        }
    }

    /// Handles the arrival of `train`, whose packets are numbered from `seq` on. Trains come in order of time.
    pub fn on_train(&mut self, seq: u64, train: &Departure, mut emit: impl FnMut(Ack)) {
        let mut index = 0;
        while index < train.count {
            let (count, at) = self.next_aggregate(train, index);
            self.on_time(at, &mut emit);
            self.on_aggregate(at, seq + u64::from(index), count, &mut emit);
            index += count;
        }
    }

    /// Returns the time by which a delayed ACK must be sent.
    #[must_use]
    pub fn next_deadline(&self) -> Time {
        self.delayed_ack_at
    }

    /// Sends the delayed ACK if it is due by `now`.
    pub fn on_time(&mut self, now: Time, emit: &mut impl FnMut(Ack)) {
        if self.delayed_ack_at <= now {
            let at = self.delayed_ack_at;
            self.acknowledge(at, emit);
        }
    }

    /// Returns the number of packets received in order.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.next
    }

    /// Returns how many packets from `index` on GRO merges into one aggregate, and the time when the aggregate is
    /// complete.
    fn next_aggregate(&self, train: &Departure, index: u32) -> (u32, Time) {
        let left = train.count - index;
        let interval = self.policy.gro_interval;
        if interval == Time::ZERO {
            return (1, train.at(index));
        }
        let (last, until) = (train.last_at(), train.at(index) + interval);
        if last <= until {
            (left, last)
        } else {
            (train.segments_out_by(until) - index, until)
        }
    }

    fn on_aggregate(&mut self, at: Time, seq: u64, count: u32, emit: &mut impl FnMut(Ack)) {
        let end = seq + u64::from(count);
        let in_order = seq <= self.next && end > self.next;
        if in_order && self.beyond_gap.is_empty() {
            self.next = end;
            return self.delay_ack(at, count, emit);
        }
        if in_order {
            self.fill_gap(end);
        } else if seq > self.next {
            self.store_beyond_gap(seq, end);
        }
        // A packet out of order, a filled gap or a duplicate is acknowledged at once (RFC 5681 §4.2).
        self.acknowledge(at, emit);
    }

    fn delay_ack(&mut self, at: Time, count: u32, emit: &mut impl FnMut(Ack)) {
        self.unacked += count;
        if self.quick_acks > 0 || self.unacked >= self.policy.packets {
            self.quick_acks = self.quick_acks.saturating_sub(1);
            return self.acknowledge(at, emit);
        }
        self.delayed_ack_at = self.delayed_ack_at.min(at + self.policy.delay);
    }

    fn fill_gap(&mut self, end: u64) {
        self.next = self.beyond_gap.containing(end).map_or(end, |block| block.1);
        self.beyond_gap.remove_below(self.next);
    }

    /// Stores packets beyond a gap, and lists their SACK block as the most recent.
    fn store_beyond_gap(&mut self, seq: u64, end: u64) {
        self.beyond_gap.insert(seq, end);
        let block = self.beyond_gap.containing(seq).unwrap_or((seq, end));
        let mut packet = seq;
        // Entries move down by one, up to the block's former entry, which is overwritten.
        for entry in &mut self.recent {
            let previous = std::mem::replace(entry, packet);
            if (block.0..block.1).contains(&previous) {
                break;
            }
            packet = previous;
        }
    }

    fn acknowledge(&mut self, at: Time, emit: &mut impl FnMut(Ack)) {
        self.unacked = 0;
        self.delayed_ack_at = Time::MAX;
        emit(Ack {
            at,
            una: self.next,
            blocks: self.blocks(),
        });
    }

    fn blocks(&self) -> [SackBlock; SACK_BLOCKS] {
        let mut blocks = [SackBlock::default(); SACK_BLOCKS];
        if self.beyond_gap.is_empty() {
            return blocks;
        }
        let recent = self
            .recent
            .iter()
            .filter_map(|seq| self.beyond_gap.containing(*seq));
        for (block, (start, end)) in blocks.iter_mut().zip(recent) {
            *block = SackBlock {
                offset: (start - self.next) as u32,
                count: (end - start) as u32,
            };
        }
        blocks
    }
}
