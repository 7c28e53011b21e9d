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
    since: Time,
    /// Anything was, and an answer to data if there was any to answer.
    heard: Time,
    answered: Time,
    /// How long nothing may be heard.
    silence: Time,
}

impl Expiry {
    pub(super) fn new(silence: Time, now: Time) -> Self {
        Self {
            count: 1,
            since: now,
            heard: now,
            answered: now,
            silence,
        }
    }

    pub(super) fn heard(&mut self, now: Time, answers: bool) {
        self.heard = now;
        if answers {
            (self.count, self.since, self.answered) = (1, now, now);
        }
    }

    /// Nothing that is sent arrives, though the other end is there.
    pub(super) fn stalled_until(&self) -> Time {
        self.answered + self.silence
    }

    pub(super) fn broken_at(&self) -> Time {
        self.heard + self.silence
    }

    pub(super) fn due(&self, long: Time) -> Time {
        let each = (long + long + SYN).max(EXPIRY_MIN).as_nanos();
        let again = self.since + Time::from_nanos(each * u64::from(self.count));
        again.min(self.broken_at())
    }

    /// It expired: the next time comes later.
    pub(super) fn expired(&mut self, now: Time) {
        self.count = (self.count + 1).min(COUNT_MAX);
        self.since = now;
    }
}
