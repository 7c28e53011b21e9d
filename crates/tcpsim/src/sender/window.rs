// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Linux does with the congestion window, whatever the congestion control: how the window goes down in recovery,
//! and whether it may grow.

use crate::congestion_control::Window;

/// One reduction of the window, from a loss to the end of recovery: proportional rate reduction (RFC 6937bis), as
/// `tcp_cwnd_reduction` (net/ipv4/tcp_input.c). In packets.
#[derive(Debug, Default)]
pub(crate) struct Reduction {
    prior_cwnd: u32,
    delivered: u64,
    out: u64,
}

impl Reduction {
    pub(crate) fn begin(&mut self, cwnd: u32) {
        *self = Self {
            prior_cwnd: cwnd,
            delivered: 0,
            out: 0,
        };
    }

    /// Packets were sent meanwhile.
    pub(crate) fn sent(&mut self, count: u32) {
        self.out += u64::from(count);
    }

    /// The window after `delivered` more packets have arrived, with `in_flight` out. `progress`
    /// says that `una` advanced and nothing more was found lost.
    pub(crate) fn window(
        &mut self,
        delivered: u64,
        in_flight: u64,
        ssthresh: u32,
        progress: bool,
    ) -> u32 {
        self.delivered += delivered;
        let (flight, threshold) = (in_flight as i64, i64::from(ssthresh));
        let out = self.out as i64;
        let count = if flight > threshold {
            self.proportional(ssthresh) - out
        } else {
            let catch_up = (self.delivered as i64 - out).max(delivered as i64);
            (catch_up + i64::from(progress)).min(threshold - flight)
        };
        let force = i64::from(out == 0);
        (flight + count.max(force)) as u32
    }

    fn proportional(&self, ssthresh: u32) -> i64 {
        let prior = u64::from(self.prior_cwnd);
        (u64::from(ssthresh) * self.delivered).div_ceil(prior) as i64
    }
}

/// Whether the window is what holds the sender back (RFC 7661's question), as `tcp_cwnd_validate` and
/// `tcp_is_cwnd_limited`.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    limited: bool,
    packets_out_max: u64,
    /// What was seen holds until this packet is acknowledged.
    until: u64,
}

impl Usage {
    /// After sending, or being kept from it by the window (`limited`).
    pub(crate) fn validate(&mut self, una: u64, next: u64, limited: bool) {
        let out = next - una;
        if una >= self.until || limited || (!self.limited && out > self.packets_out_max) {
            self.limited = limited;
            self.packets_out_max = out;
            self.until = next;
        }
    }

    /// In slow start half a window in use is enough: it may double.
    pub(crate) fn is_limited(&self, window: &Window) -> bool {
        self.limited
            || (window.in_slow_start() && u64::from(window.cwnd) < 2 * self.packets_out_max)
    }
}
