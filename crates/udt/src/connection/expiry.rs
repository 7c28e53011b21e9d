// SPDX-License-Identifier: MIT OR Apache-2.0
//! Expiration timer, after which unacknowledged packets count as lost, and idle timeout of a connection.

use crate::congestion::SYN_INTERVAL;
use longhaul_units::Time;

/// Minimum expiration time, per expiration so far (UDT4's code; its comment and the draft: 100 ms). Otherwise it is
/// two round trips at their upper bound: while a lost packet is retransmitted no ACK comes.
const EXPIRY_MIN: Time = Time::from_millis(300);
/// Maximum factor of the expiration time, as in UDT4.
const COUNT_MAX: u32 = 16;

/// Expiration timer of a connection.
#[derive(Debug)]
pub(super) struct Expiry {
    /// Factor of the expiration time: 1, and one more for each expiration since the last progress.
    count: u32,
    /// Time at which the timer was started.
    started_at: Time,
    /// Time of the last packet.
    last_received: Time,
    /// Time of the last packet that confirmed data, or that came while no data was unacknowledged.
    last_progress: Time,
    /// Time without any packet after which the connection fails.
    idle_timeout: Time,
}

impl Expiry {
    pub(super) fn new(idle_timeout: Time, now: Time) -> Self {
        Self {
            count: 1,
            started_at: now,
            last_received: now,
            last_progress: now,
            idle_timeout,
        }
    }

    pub(super) fn on_packet(&mut self, now: Time, confirms_data: bool) {
        self.last_received = now;
        if confirms_data {
            (self.count, self.started_at, self.last_progress) = (1, now, now);
        }
    }

    /// Returns the time at which the connection fails because no data arrives, though the peer sends packets.
    pub(super) fn stalled_at(&self) -> Time {
        self.last_progress + self.idle_timeout
    }

    pub(super) fn idle_expires_at(&self) -> Time {
        self.last_received + self.idle_timeout
    }

    pub(super) fn deadline(&self, rtt_bound: Time) -> Time {
        let each = (rtt_bound + rtt_bound + SYN_INTERVAL)
            .max(EXPIRY_MIN)
            .as_nanos();
        let expires_at = self.started_at + Time::from_nanos(each * u64::from(self.count));
        expires_at.min(self.idle_expires_at())
    }

    /// Counts an expiration: the next one takes longer.
    pub(super) fn on_expired(&mut self, now: Time) {
        self.count = (self.count + 1).min(COUNT_MAX);
        self.started_at = now;
    }
}
