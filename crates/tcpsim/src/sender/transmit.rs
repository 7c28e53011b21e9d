// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transmission of packets and their spacing: `tcp_write_xmit` and pacing.

use super::{
    Sender,
    segmentation::{TsoDeferral, autosize},
};
use crate::congestion_control::State;
use longhaul_units::Time;

/// Packets sent before pacing starts, as in `tcp_update_skb_after_send`.
const UNPACED_PACKETS: u64 = 10;

impl Sender {
    /// Sends all packets that may be sent now. `emit` gets the first packet of each super-packet and the number
    /// of packets.
    #[inline]
    pub fn transmit(&mut self, now: Time, mut emit: impl FnMut(u64, u32)) {
        if self.scoreboard.lost_packets() > 0 {
            self.retransmit(now, &mut emit);
        }
        self.send_new(now, &mut emit);
        match self.scoreboard.packets_out() {
            0 => self.retransmit_at = Time::MAX,
            _ if self.retransmit_at == Time::MAX => self.arm_retransmit_timer(now),
            _ => {}
        }
    }

    /// Retransmits lost packets (`tcp_xmit_retransmit_queue`).
    fn retransmit(&mut self, now: Time, emit: &mut impl FnMut(u64, u32)) {
        let super_packet_max = u64::from(self.super_packet_max());
        while self.paced_until <= now {
            let room = u64::from(self.window.cwnd).saturating_sub(self.scoreboard.in_flight());
            if room == 0 {
                break;
            }
            let Some((first, count)) = self.scoreboard.retransmit(now, room.min(super_packet_max))
            else {
                break;
            };
            if first == self.scoreboard.una() {
                self.arm_retransmit_timer(now);
            }
            self.counters.retransmitted += u64::from(count);
            self.record_sent(now, count);
            emit(first, count);
        }
    }

    /// Sends new packets (`tcp_write_xmit`).
    #[inline]
    fn send_new(&mut self, now: Time, emit: &mut impl FnMut(u64, u32)) {
        let super_packet_max = u64::from(self.super_packet_max());
        let (mut limited, first) = (false, self.scoreboard.next());
        while self.paced_until <= now {
            let (free, quota) = (self.free_cwnd(), self.quota().min(super_packet_max));
            let sendable = self.sendable_packets();
            if quota == 0 || sendable == 0 {
                break;
            }
            if self.should_defer(now, free, sendable, super_packet_max) {
                limited |= free < sendable;
                break;
            }
            let count = quota.min(sendable) as u32;
            let packet = self.scoreboard.next();
            self.scoreboard.send(count);
            self.take_from_queue(u64::from(count));
            let in_flight = self.scoreboard.in_flight() as u32;
            self.send_log.push(self.scoreboard.next(), now, in_flight);
            self.last_sent_at = now;
            self.record_sent(now, count);
            emit(packet, count);
        }
        limited |= self.free_cwnd() == 0;
        if limited || self.scoreboard.next() > first {
            self.usage
                .validate(self.scoreboard.una(), self.scoreboard.next(), limited);
        }
    }

    /// Returns the number of packets for which the congestion window has room.
    fn free_cwnd(&self) -> u64 {
        u64::from(self.window.cwnd).saturating_sub(self.scoreboard.in_flight())
    }

    /// Returns the number of packets that may be sent at once, half of the window at most (`tcp_cwnd_test`).
    #[inline]
    fn quota(&self) -> u64 {
        u64::from(self.window.cwnd / 2).max(1).min(self.free_cwnd())
    }

    /// Returns the number of new packets that the receive window, the send buffer and the data allow.
    #[inline]
    fn sendable_packets(&self) -> u64 {
        let most = self.limits.receive_window.min(self.limits.send_buffer);
        let edge = (self.scoreboard.una() + most).min(self.limits.total_packets);
        edge.saturating_sub(self.scoreboard.next())
    }

    /// Returns whether to wait for the next ACK, which may allow a larger super-packet (`tcp_tso_should_defer`).
    #[inline]
    fn should_defer(&self, now: Time, free: u64, sendable: u64, super_packet_max: u64) -> bool {
        let cwnd = u64::from(self.window.cwnd);
        self.state < State::Recovery
            && self.scoreboard.next() + sendable < self.limits.total_packets
            && TsoDeferral {
                allowed: free.min(sendable),
                full: super_packet_max,
                head: self.head_packets,
                window: self.limits.receive_window.min(cwnd),
                since_last_sent: now.since(self.last_sent_at),
                since_oldest: self.send_log.oldest().map(|oldest| now.since(oldest.at)),
                srtt: self.rtt.smoothed(),
            }
            .should_defer()
    }

    /// Takes `count` packets from the write queue. It consists of full super-packets, of which the first may have
    /// been sent in part.
    fn take_from_queue(&mut self, count: u64) {
        self.head_packets = if count < self.head_packets {
            self.head_packets - count
        } else {
            self.limits.packets_per_super_packet
                - (count - self.head_packets) % self.limits.packets_per_super_packet
        };
    }

    /// Returns the packets of the largest super-packet at the present pacing rate.
    #[inline]
    fn super_packet_max(&self) -> u32 {
        autosize(self.pacing_rate, self.rtt.min(), self.settings.mss).max(1)
    }

    /// Counts packets that are sent now, and paces the next ones.
    #[inline]
    fn record_sent(&mut self, now: Time, count: u32) {
        self.counters.sent += u64::from(count);
        if matches!(self.state, State::Recovery | State::Cwr) {
            self.reduction.on_sent(count);
        }
        if self.is_pacing && self.counters.sent > UNPACED_PACKETS {
            self.pace_next(now, count);
        }
    }

    /// Sets the pacing rate: the congestion control's own, or else the default rate.
    pub(super) fn update_pacing_rate(&mut self) {
        let srtt = self.rtt.smoothed();
        let own_rate = self.control.pacing_rate(&self.window, srtt);
        self.is_pacing |= own_rate.is_some();
        let rate = own_rate.map_or_else(|| self.default_rate(srtt), |rate| rate.bits() / 8);
        let max = self.settings.pacing_rate_max;
        self.pacing_rate = rate.min(max.map_or(u64::MAX, |max| max.bits() / 8)).max(1);
    }

    /// Returns the default pacing rate, bytes a second (`tcp_update_pacing_rate`): 200 % of a window in each round
    /// trip if the window is below half of ssthresh, otherwise 120 %.
    fn default_rate(&self, srtt: Time) -> u64 {
        let ratio = if self.window.cwnd < self.window.ssthresh / 2 {
            2.0
        } else {
            1.2
        };
        let packets = u64::from(self.window.cwnd).max(self.scoreboard.packets_out());
        let bytes = packets as f64 * f64::from(self.settings.mss);
        (ratio * bytes * 1e9 / srtt.as_nanos() as f64) as u64
    }

    /// Delays the next packet by the pacing gap (`tcp_update_skb_after_send`). If this packet was late, the gap is
    /// shorter by that time, but at least half.
    fn pace_next(&mut self, now: Time, count: u32) {
        let bytes = u64::from(count) * u64::from(self.settings.mss);
        let gap = (bytes as f64 * 1e9 / self.pacing_rate as f64) as u64;
        let late = now.since(self.paced_until).as_nanos();
        self.paced_until = now + Time::from_nanos(gap - late.min(gap / 2));
    }
}
