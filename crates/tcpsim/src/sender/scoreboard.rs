// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a sender knows of the packets that it has out: which were SACKed, which are lost, which were
//! sent again. By ranges, so that a window of a million packets costs what its holes cost.
//!
//! Every packet from `una` to `next` is either SACKed, lost and to be sent again, or in flight.
//! Loss is found as RACK finds it (RFC 8985) where the path keeps its order: what was sent before
//! something that has arrived is lost, first transmissions and retransmissions alike.

use crate::{ranges::Ranges, receiver::Ack};
use longhaul_units::Time;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    una: u64,
    next: u64,
    sacked: Ranges,
    lost: Ranges,
    /// Retransmissions in the order in which they were sent.
    resent: VecDeque<Resent>,
    /// One past the highest packet known to have arrived.
    forward: u64,
    /// Below this each packet's first transmission was judged: it arrived, or it is lost.
    judged: u64,
}

#[derive(Debug)]
struct Resent {
    start: u64,
    end: u64,
    at: Time,
    /// How many of it have not arrived.
    left: u64,
}

/// What an ACK newly says.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Heard {
    /// Packets that `una` advanced.
    pub(crate) acked: u64,
    /// Packets that arrived, by `una` or by SACK.
    pub(crate) delivered: u64,
    /// The newest packet that arrived by its first transmission.
    pub(crate) newest: Option<u64>,
    /// Whether the first packet that `una` passed was sent once only.
    pub(crate) first_sent_once: bool,
    /// Whether a retransmission may have arrived.
    resent: bool,
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

    /// Packets on the wire (`tcp_packets_in_flight`).
    pub(crate) fn in_flight(&self) -> u64 {
        self.packets_out() - self.sacked.total() - self.lost.total()
    }

    pub(crate) fn sacked(&self) -> u64 {
        self.sacked.total()
    }

    /// Lost packets that were not sent again yet.
    pub(crate) fn to_resend(&self) -> u64 {
        self.lost.total()
    }

    /// Sends `count` new packets.
    pub(crate) fn send(&mut self, count: u32) {
        self.next += u64::from(count);
    }

    /// Sends again up to `max` neighbours of what is lost: the first of them and how many.
    pub(crate) fn resend(&mut self, now: Time, max: u64) -> Option<(u64, u32)> {
        let (start, end) = self.lost.first()?;
        let end = end.min(start + max);
        self.lost.remove_below(end);
        self.resent.push_back(Resent {
            start,
            end,
            at: now,
            left: end - start,
        });
        Some((start, (end - start) as u32))
    }

    /// Takes note of what an ACK says.
    pub(crate) fn on_ack(&mut self, ack: &Ack) -> Heard {
        let mut heard = Heard::default();
        if ack.una > self.una {
            self.acknowledge(ack.una, &mut heard);
        }
        for block in ack.blocks.iter().take_while(|block| block.count > 0) {
            let start = ack.una + u64::from(block.offset);
            let end = start + u64::from(block.count);
            if end > self.una {
                self.sack(start.max(self.una), end, &mut heard);
            }
        }
        heard
    }

    fn acknowledge(&mut self, una: u64, heard: &mut Heard) {
        heard.acked = una - self.una;
        heard.first_sent_once = self.judged <= self.una;
        heard.resent = self.una < self.judged && !self.resent.is_empty();
        heard.delivered = heard.acked - self.sacked.remove_below(una);
        self.lost.remove_below(una);
        self.una = una;
        self.reach(una, heard);
    }

    fn sack(&mut self, start: u64, end: u64, heard: &mut Heard) {
        let new = self.sacked.insert(start, end);
        if new == 0 {
            return;
        }
        heard.delivered += new;
        let beyond = end.saturating_sub(self.forward.max(start));
        if new > beyond {
            self.lost.remove(start, end);
            heard.resent |= !self.resent.is_empty();
        }
        self.reach(end, heard);
    }

    fn reach(&mut self, end: u64, heard: &mut Heard) {
        if end > self.forward {
            self.forward = end;
            heard.newest = Some(end - 1);
        }
    }

    /// Whether packets below one that has arrived are missing, and not yet judged to be lost.
    pub(crate) fn has_unjudged_gap(&self) -> bool {
        self.judged.max(self.una) < self.forward && self.sacked.total() > 0
    }

    /// Judges all first transmissions below the newest that has arrived; how many are lost.
    pub(crate) fn judge(&mut self) -> u64 {
        let before = self.lost.total();
        let from = self.judged.max(self.una);
        if from < self.forward {
            let lost = &mut self.lost;
            self.sacked.gaps(from, self.forward, |start, end| {
                lost.insert(start, end);
            });
        }
        self.judged = self.judged.max(self.forward);
        self.lost.total() - before
    }

    /// Judges retransmissions after `heard`, whose newest packet was first sent at `newest_sent`.
    /// How many are lost again.
    pub(crate) fn judge_resent(&mut self, heard: &Heard, newest_sent: Option<Time>) -> u64 {
        let before = self.lost.total();
        if heard.resent {
            self.settle();
        }
        let sent = newest_sent.unwrap_or(Time::ZERO);
        while self.resent.front().is_some_and(|first| first.at <= sent) {
            self.give_up_first();
        }
        self.lost.total() - before
    }

    /// Finds the retransmissions that have arrived; those sent before them that have not are lost.
    fn settle(&mut self) {
        let mut reached = None;
        for index in 0..self.resent.len() {
            let left = self.missing(&self.resent[index]);
            if left < self.resent[index].left {
                self.resent[index].left = left;
                reached = Some(index);
            } else if reached.is_some() {
                break;
            }
        }
        for _ in 0..reached.unwrap_or(0) {
            self.give_up_first();
        }
        if self.resent.front().is_some_and(|first| first.left == 0) {
            self.resent.pop_front();
        }
    }

    fn give_up_first(&mut self) {
        let Some(first) = self.resent.pop_front().filter(|first| first.left > 0) else {
            return;
        };
        let lost = &mut self.lost;
        let start = first.start.max(self.una);
        self.sacked.gaps(start, first.end.max(start), |start, end| {
            lost.insert(start, end);
        });
    }

    fn missing(&self, resent: &Resent) -> u64 {
        let (start, mut missing) = (resent.start.max(self.una), 0);
        if start < resent.end {
            self.sacked
                .gaps(start, resent.end, |low, high| missing += high - low);
        }
        missing
    }

    /// After a time-out everything that was not SACKed is lost (`tcp_timeout_mark_lost`).
    pub(crate) fn lose_all(&mut self) {
        self.resent.clear();
        self.lost = Ranges::default();
        let lost = &mut self.lost;
        self.sacked.gaps(self.una, self.next, |start, end| {
            lost.insert(start, end);
        });
        self.judged = self.next;
        self.forward = self.forward.max(self.next);
    }
}
