// SPDX-License-Identifier: MIT OR Apache-2.0
//! When what is under way counts as lost, and when the other end as gone.

use crate::congestion::SYN;
use longhaul_units::Time;

/// The least time before something counts as expired, for each time that it did (UDT4's code; its comment and the
/// draft: 100 ms). Else it is two long round trips: while a lost packet goes again nothing is heard.
const EXPIRY_MIN: Time = Time::from_millis(300);
/// For so many times at most: as many as UDT4 counts.
const COUNT_MAX: u32 = 16;

/// When what is under way counts as lost.
#[derive(Debug)]
pub(super) struct Expiry {
    count: u32,
    started_at: Time,
    /// Anything was, and an answer to data if there was any to answer.
    last_received: Time,
    last_progress: Time,
    /// How long nothing may be heard.
    idle_timeout: Time,
}

impl Expiry {
    pub(super) fn new(silence: Time, now: Time) -> Self {
        Self {
            count: 1,
            started_at: now,
            last_received: now,
            last_progress: now,
            idle_timeout: silence,
        }
    }

    pub(super) fn on_packet(&mut self, now: Time, answers: bool) {
        self.last_received = now;
        if answers {
            (self.count, self.started_at, self.last_progress) = (1, now, now);
        }
    }

    /// Nothing that is sent arrives, though the other end is there.
    pub(super) fn stalled_at(&self) -> Time {
        self.last_progress + self.idle_timeout
    }

    pub(super) fn idle_expires_at(&self) -> Time {
        self.last_received + self.idle_timeout
    }

    pub(super) fn deadline(&self, long: Time) -> Time {
        let each = (long + long + SYN).max(EXPIRY_MIN).as_nanos();
        let again = self.started_at + Time::from_nanos(each * u64::from(self.count));
        again.min(self.idle_expires_at())
    }

    /// It expired: the next time comes later.
    pub(super) fn on_expired(&mut self, now: Time) {
        self.count = (self.count + 1).min(COUNT_MAX);
        self.started_at = now;
    }
}
