// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the congestion window is what holds the sender back (RFC 7661's question), as
//! `tcp_cwnd_validate` and `tcp_is_cwnd_limited`.

use crate::congestion_control::Window;

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
