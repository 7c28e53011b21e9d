// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a sender sends, and how far apart: `tcp_write_xmit` and pacing.

use super::{
    Sender,
    segmentation::{Occasion, autosize},
};
use crate::congestion_control::State;
use longhaul_units::Time;

/// `tcp_update_skb_after_send` does not pace before.
const UNPACED_PACKETS: u64 = 10;

impl Sender {
    /// Sends what may be sent now: `emit` gets the first packet of each super-packet and how many.
    #[inline]
    pub fn transmit(&mut self, now: Time, mut emit: impl FnMut(u64, u32)) {
        if self.board.to_resend() > 0 {
            self.retransmit(now, &mut emit);
        }
        self.send_new(now, &mut emit);
        match self.board.packets_out() {
            0 => self.time_out_at = Time::MAX,
            _ if self.time_out_at == Time::MAX => self.arm_time_out(now),
            _ => {}
        }
    }

    /// `tcp_xmit_retransmit_queue`.
    fn retransmit(&mut self, now: Time, emit: &mut impl FnMut(u64, u32)) {
        let largest = u64::from(self.largest());
        while self.paced_until <= now {
            let room = u64::from(self.window.cwnd).saturating_sub(self.board.in_flight());
            if room == 0 {
                break;
            }
            let Some((first, count)) = self.board.resend(now, room.min(largest)) else {
                break;
            };
            if first == self.board.una() {
                self.arm_time_out(now);
            }
            self.counters.retransmitted += u64::from(count);
            self.note_sent(now, count);
            emit(first, count);
        }
    }

    /// `tcp_write_xmit`.
    #[inline]
    fn send_new(&mut self, now: Time, emit: &mut impl FnMut(u64, u32)) {
        let largest = u64::from(self.largest());
        let (mut limited, first) = (false, self.board.next());
        while self.paced_until <= now {
            let (free, quota) = (self.free_window(), self.quota().min(largest));
            let open = self.open_window();
            if quota == 0 || open == 0 {
                break;
            }
            if self.is_worth_waiting(now, free, open, largest) {
                limited |= free < open;
                break;
            }
            let count = quota.min(open) as u32;
            let packet = self.board.next();
            self.board.send(count);
            self.take_from_queue(u64::from(count));
            let in_flight = self.board.in_flight() as u32;
            self.sent.push(self.board.next(), now, in_flight);
            self.wrote_at = now;
            self.note_sent(now, count);
            emit(packet, count);
        }
        limited |= self.free_window() == 0;
        if limited || self.board.next() > first {
            self.usage
                .validate(self.board.una(), self.board.next(), limited);
        }
    }

    /// What the congestion window leaves.
    fn free_window(&self) -> u64 {
        u64::from(self.window.cwnd).saturating_sub(self.board.in_flight())
    }

    /// At most half of the window leaves at once (`tcp_cwnd_test`).
    #[inline]
    fn quota(&self) -> u64 {
        u64::from(self.window.cwnd / 2)
            .max(1)
            .min(self.free_window())
    }

    /// What the receiver's window, the send buffer and the data leave.
    #[inline]
    fn open_window(&self) -> u64 {
        let most = self.limits.receive_window.min(self.limits.send_buffer);
        let edge = (self.board.una() + most).min(self.limits.end);
        edge.saturating_sub(self.board.next())
    }

    #[inline]
    fn is_worth_waiting(&self, now: Time, free: u64, open: u64, largest: u64) -> bool {
        let cwnd = u64::from(self.window.cwnd);
        self.state < State::Recovery
            && self.board.next() + open < self.limits.end
            && Occasion {
                allowed: free.min(open),
                full: largest,
                head: self.head,
                window: self.limits.receive_window.min(cwnd),
                since_write: now.since(self.wrote_at),
                since_oldest: self.sent.oldest().map(|oldest| now.since(oldest.at)),
                srtt: self.rtt.smoothed(),
            }
            .is_worth_waiting()
    }

    /// The write queue holds full super-packets; what one lacks is taken from the next.
    fn take_from_queue(&mut self, count: u64) {
        self.head = match count < self.head {
            true => self.head - count,
            false => self.limits.full - (count - self.head) % self.limits.full,
        };
    }

    #[inline]
    fn largest(&self) -> u32 {
        autosize(self.pacing_rate, self.rtt.min(), self.settings.mss).max(1)
    }

    #[inline]
    fn note_sent(&mut self, now: Time, count: u32) {
        self.counters.sent += u64::from(count);
        if matches!(self.state, State::Recovery | State::Cwr) {
            self.reduction.sent(count);
        }
        if self.paces && self.counters.sent > UNPACED_PACKETS {
            self.space(now, count);
        }
    }

    /// `tcp_update_pacing_rate`, with 200 % below half of ssthresh and 120 % above.
    pub(super) fn update_pacing_rate(&mut self) {
        let srtt = self.rtt.smoothed();
        let own = self.control.pacing_rate(&self.window, srtt);
        self.paces |= own.is_some();
        let rate = own.map_or_else(|| self.default_rate(srtt), |rate| rate.bits() / 8);
        let max = self.settings.pacing_rate_max;
        self.pacing_rate = rate.min(max.map_or(u64::MAX, |max| max.bits() / 8)).max(1);
    }

    fn default_rate(&self, srtt: Time) -> u64 {
        let ratio = match self.window.cwnd < self.window.ssthresh / 2 {
            true => 2.0,
            false => 1.2,
        };
        let packets = u64::from(self.window.cwnd).max(self.board.packets_out());
        let bytes = packets as f64 * f64::from(self.settings.mss);
        (ratio * bytes * 1e9 / srtt.as_nanos() as f64) as u64
    }

    /// `tcp_update_skb_after_send`: lateness is made up for, by half a gap at most.
    fn space(&mut self, now: Time, count: u32) {
        let bytes = u64::from(count) * u64::from(self.settings.mss);
        let gap = (bytes as f64 * 1e9 / self.pacing_rate as f64) as u64;
        let late = now.since(self.paced_until).as_nanos();
        self.paced_until = now + Time::from_nanos(gap - late.min(gap / 2));
    }
}
