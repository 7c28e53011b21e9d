// SPDX-License-Identifier: MIT OR Apache-2.0
//! End of a connection whose peer's host says that no socket is bound to the peer's port (ICMP port unreachable).
//!
//! TCP survives such a message in an open connection (RFC 1122 §4.2.3.9), because a firewall may send it for a moment,
//! and third parties may forge it. The one here quotes the peer's connection ID, which third parties do not know. The
//! peer still gets the time to show that it is there: the connection sends it an ACK, which any UDT answers.

use longhaul_units::Time;

/// Minimum time for an answer of the peer.
const ANSWER_TIMEOUT_MIN: Time = Time::from_millis(300);

#[derive(Debug, Default)]
pub(super) struct Refusal {
    /// Time at which the connection ends; `None` while nothing says that the peer is gone.
    deadline: Option<Time>,
}

impl Refusal {
    /// Handles a port unreachable. An answer takes at most `rtt_bound`. Returns whether to ask the peer for one.
    pub(super) fn on_unreachable(&mut self, rtt_bound: Time, now: Time) -> bool {
        let is_first = self.deadline.is_none();
        let timeout = (rtt_bound + rtt_bound).max(ANSWER_TIMEOUT_MIN);
        self.deadline.get_or_insert(now + timeout);
        is_first
    }

    /// Handles any packet of the peer: it is there.
    pub(super) fn on_packet(&mut self) {
        self.deadline = None;
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.deadline
    }
}
