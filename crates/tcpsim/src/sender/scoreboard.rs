// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scoreboard of unacknowledged packets: those SACKed, those lost, those retransmitted. It holds ranges, so its cost
//! depends on the number of gaps, not on the number of packets in the window.
//!
//! Every packet from `una` to `next` is SACKed, or lost and not yet retransmitted, or in flight. Losses are found as
//! RACK finds them (RFC 8985) on a path that keeps its order. A packet sent before one that has arrived is lost. This
//! holds for first transmissions and for retransmissions.

use crate::{ranges::Ranges, receiver::Ack};
use longhaul_units::Time;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    una: u64,
    next: u64,
    sacked: Ranges,
    lost: Ranges,
    /// Retransmissions, in the order in which they were sent.
    retransmissions: VecDeque<Retransmission>,
    /// End of the packets known to have arrived: one past the highest.
    arrived_end: u64,
    /// End of the packets whose first transmission is decided: known to have arrived, or counted as lost.
    decided_end: u64,
}

#[derive(Debug)]
struct Retransmission {
    start: u64,
    end: u64,
    at: Time,
    /// Number of packets of the range that have not arrived.
    left: u64,
}

/// New information in an ACK.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AckUpdate {
    /// Number of packets by which `una` advanced.
    pub(crate) acked: u64,
    /// Number of packets newly known to have arrived, by `una` or by SACK.
    pub(crate) delivered: u64,
    /// Highest packet newly known to have arrived, if it is higher than all before.
    pub(crate) newest: Option<u64>,
    /// Whether the first packet that `una` passed was sent only once.
    pub(crate) first_sent_once: bool,
    /// Whether a retransmission may have arrived.
    may_cover_retransmission: bool,
}

impl Scoreboard {
    pub(crate) fn una(&self) -> u64 {
        self.una
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn packets_out(&self) -> u64 {
        self.next - self.una
    }

    /// Returns the number of packets in flight (`tcp_packets_in_flight`).
    pub(crate) fn in_flight(&self) -> u64 {
        self.packets_out() - self.sacked.total() - self.lost.total()
    }

    pub(crate) fn sacked(&self) -> u64 {
        self.sacked.total()
    }

    /// Returns the number of lost packets that were not retransmitted yet.
    pub(crate) fn lost_packets(&self) -> u64 {
        self.lost.total()
    }

    /// Adds `count` new packets that are sent now.
    pub(crate) fn send(&mut self, count: u32) {
        self.next += u64::from(count);
    }

    /// Takes up to `max` adjacent lost packets for retransmission. Returns the first of them and their number.
    pub(crate) fn retransmit(&mut self, now: Time, max: u64) -> Option<(u64, u32)> {
        let (start, end) = self.lost.first()?;
        let end = end.min(start + max);
        self.lost.remove_below(end);
        self.retransmissions.push_back(Retransmission {
            start,
            end,
            at: now,
            left: end - start,
        });
        Some((start, (end - start) as u32))
    }

    /// Updates the scoreboard from an ACK, and returns the new information in it.
    pub(crate) fn on_ack(&mut self, ack: &Ack) -> AckUpdate {
        let mut update = AckUpdate::default();
        if ack.una > self.una {
            self.acknowledge(ack.una, &mut update);
        }
        for block in ack.blocks.iter().take_while(|block| block.count > 0) {
            let start = ack.una + u64::from(block.offset);
            let end = start + u64::from(block.count);
            if end > self.una {
                self.sack(start.max(self.una), end, &mut update);
            }
        }
        update
    }

    fn acknowledge(&mut self, una: u64, update: &mut AckUpdate) {
        update.acked = una - self.una;
        update.first_sent_once = self.decided_end <= self.una;
        update.may_cover_retransmission =
            self.una < self.decided_end && !self.retransmissions.is_empty();
        update.delivered = update.acked - self.sacked.remove_below(una);
        self.lost.remove_below(una);
        self.una = una;
        self.advance_arrived_end(una, update);
    }

    fn sack(&mut self, start: u64, end: u64, update: &mut AckUpdate) {
        let new = self.sacked.insert(start, end);
        if new == 0 {
            return;
        }
        update.delivered += new;
        let beyond = end.saturating_sub(self.arrived_end.max(start));
        if new > beyond {
            self.lost.remove(start, end);
            update.may_cover_retransmission |= !self.retransmissions.is_empty();
        }
        self.advance_arrived_end(end, update);
    }

    /// Records that packets up to `end` have arrived.
    fn advance_arrived_end(&mut self, end: u64, update: &mut AckUpdate) {
        if end > self.arrived_end {
            self.arrived_end = end;
            update.newest = Some(end - 1);
        }
    }

    /// Returns whether there may be missing packets, below one that has arrived, that are not yet counted as lost.
    pub(crate) fn has_undecided_gap(&self) -> bool {
        self.decided_end.max(self.una) < self.arrived_end && self.sacked.total() > 0
    }

    /// Marks all missing packets below the highest that has arrived as lost. Returns the number of newly lost packets.
    pub(crate) fn detect_losses(&mut self) -> u64 {
        let before = self.lost.total();
        let from = self.decided_end.max(self.una);
        if from < self.arrived_end {
            let lost = &mut self.lost;
            self.sacked
                .for_each_gap(from, self.arrived_end, |start, end| {
                    lost.insert(start, end);
                });
        }
        self.decided_end = self.decided_end.max(self.arrived_end);
        self.lost.total() - before
    }

    /// Marks retransmissions as lost after an ACK whose newest packet was first sent at `newest_sent`. Returns the
    /// number of packets that were lost again.
    pub(crate) fn detect_lost_retransmissions(
        &mut self,
        update: &AckUpdate,
        newest_sent: Option<Time>,
    ) -> u64 {
        let before = self.lost.total();
        if update.may_cover_retransmission {
            self.update_retransmissions();
        }
        let sent = newest_sent.unwrap_or(Time::ZERO);
        while self
            .retransmissions
            .front()
            .is_some_and(|first| first.at <= sent)
        {
            self.drop_oldest_retransmission();
        }
        self.lost.total() - before
    }

    /// Finds the retransmissions that have arrived. Earlier ones that have not arrived are lost.
    fn update_retransmissions(&mut self) {
        let mut last = None;
        for index in 0..self.retransmissions.len() {
            let left = self.missing(&self.retransmissions[index]);
            if left < self.retransmissions[index].left {
                self.retransmissions[index].left = left;
                last = Some(index);
            } else if last.is_some() {
                break;
            }
        }
        for _ in 0..last.unwrap_or(0) {
            self.drop_oldest_retransmission();
        }
        if self
            .retransmissions
            .front()
            .is_some_and(|first| first.left == 0)
        {
            self.retransmissions.pop_front();
        }
    }

    /// Removes the oldest retransmission and marks its missing packets as lost.
    fn drop_oldest_retransmission(&mut self) {
        let Some(first) = self
            .retransmissions
            .pop_front()
            .filter(|first| first.left > 0)
        else {
            return;
        };
        let lost = &mut self.lost;
        let start = first.start.max(self.una);
        self.sacked
            .for_each_gap(start, first.end.max(start), |start, end| {
                lost.insert(start, end);
            });
    }

    /// Returns the number of packets of a retransmission that have not arrived.
    fn missing(&self, sent: &Retransmission) -> u64 {
        let (start, mut missing) = (sent.start.max(self.una), 0);
        if start < sent.end {
            self.sacked
                .for_each_gap(start, sent.end, |low, high| missing += high - low);
        }
        missing
    }

    /// Marks every packet that was not SACKed as lost, after a timeout (`tcp_timeout_mark_lost`).
    pub(crate) fn mark_all_lost(&mut self) {
        self.retransmissions.clear();
        self.lost = Ranges::default();
        let lost = &mut self.lost;
        self.sacked.for_each_gap(self.una, self.next, |start, end| {
            lost.insert(start, end);
        });
        self.decided_end = self.next;
        self.arrived_end = self.arrived_end.max(self.next);
    }
}
