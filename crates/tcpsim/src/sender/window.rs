// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of the congestion window that Linux makes whatever the congestion control: the reduction in
//! recovery, and the check whether it may grow.

use crate::congestion_control::Window;

/// Proportional rate reduction of the window (RFC 6937bis) from a loss to the end of recovery, as
/// `tcp_cwnd_reduction` (net/ipv4/tcp_input.c). Counts are packets.
#[derive(Debug, Default)]
pub(crate) struct ProportionalRateReduction {
    /// Window before the reduction (`prior_cwnd`).
    prior_cwnd: u32,
    /// Packets delivered since the reduction began (`prr_delivered`).
    delivered: u64,
    /// Packets sent since the reduction began (`prr_out`).
    sent: u64,
}

impl ProportionalRateReduction {
    /// Starts a reduction from `cwnd`.
    pub(crate) fn begin(&mut self, cwnd: u32) {
        *self = Self {
            prior_cwnd: cwnd,
            delivered: 0,
            sent: 0,
        };
    }

    /// Counts packets sent during the reduction.
    pub(crate) fn on_sent(&mut self, count: u32) {
        self.sent += u64::from(count);
    }

    /// Returns the window after `delivered` more packets have arrived, with `in_flight` packets in flight.
    /// `progress` says that `una` advanced and nothing more was found lost.
    pub(crate) fn window(
        &mut self,
        delivered: u64,
        in_flight: u64,
        ssthresh: u32,
        progress: bool,
    ) -> u32 {
        self.delivered += delivered;
        let (flight, threshold) = (in_flight as i64, i64::from(ssthresh));
        let sent = self.sent as i64;
        let count = if flight > threshold {
            self.proportional(ssthresh) - sent
        } else {
            let catch_up = (self.delivered as i64 - sent).max(delivered as i64);
            (catch_up + i64::from(progress)).min(threshold - flight)
        };
        // The first packet of a recovery is always sent: the fast retransmit.
        let least = i64::from(sent == 0);
        (flight + count.max(least)) as u32
    }

    /// Returns how many packets may have been sent for those delivered: in proportion to the reduction.
    fn proportional(&self, ssthresh: u32) -> i64 {
        let prior = u64::from(self.prior_cwnd);
        (u64::from(ssthresh) * self.delivered).div_ceil(prior) as i64
    }
}

/// Use of the congestion window: whether it limits the sender (RFC 7661), as `tcp_cwnd_validate` and
/// `tcp_is_cwnd_limited`.
#[derive(Debug, Default)]
pub(crate) struct CwndUsage {
    /// Whether the window prevented sending (`is_cwnd_limited`).
    limited: bool,
    /// Most packets in flight (`max_packets_out`).
    packets_out_max: u64,
    /// Packet whose acknowledgement ends the validity of the other fields (`cwnd_usage_seq`).
    valid_until: u64,
}

impl CwndUsage {
    /// Records the use of the window after sending, or after the window prevented sending (`limited`).
    pub(crate) fn validate(&mut self, una: u64, next: u64, limited: bool) {
        let packets_out = next - una;
        if una >= self.valid_until
            || limited
            || (!self.limited && packets_out > self.packets_out_max)
        {
            self.limited = limited;
            self.packets_out_max = packets_out;
            self.valid_until = next;
        }
    }

    /// Returns whether the window limits the sender. In slow start half a window in use is enough: it may double.
    pub(crate) fn is_limited(&self, window: &Window) -> bool {
        self.limited
            || (window.in_slow_start() && u64::from(window.cwnd) < 2 * self.packets_out_max)
    }
}
