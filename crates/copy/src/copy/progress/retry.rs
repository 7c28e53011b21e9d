// SPDX-License-Identifier: MIT OR Apache-2.0
//! Retry policy: the delay before the next session, and the limit after which a copy gives up.

use crate::protocol::{control::Role, report::Progress};
use std::time::{Duration, Instant};

/// Delays between two sessions.
const DELAYS: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// Time after which a copy gives up, from the first of a series of sessions that broke without progress.
const GIVE_UP_AFTER: Duration = Duration::from_secs(300);

/// Progress of a session beyond that of earlier sessions.
#[derive(Debug, Default)]
pub(crate) struct SessionGain {
    /// Bytes and entries that became durable.
    durable: u64,
    /// Entries finished without a failure in this session, and the maximum of earlier sessions.
    settled: u64,
    settled_max: u64,
}

impl SessionGain {
    /// Adds a report.
    pub(crate) fn receive(&mut self, role: Role, progress: &Progress) {
        match role {
            Role::Source => self.settled = progress.unchanged + progress.copied + progress.skipped,
            Role::Target => self.durable = progress.durable + progress.copied,
        }
    }

    /// Returns the bytes and entries gained so far.
    pub(crate) fn value(&self) -> u64 {
        self.durable + self.settled.saturating_sub(self.settled_max)
    }

    /// Starts a new session.
    pub(crate) fn start_session(&mut self) {
        let settled_max = self.settled_max.max(self.settled);
        *self = Self {
            settled_max,
            ..Self::default()
        };
    }
}

/// State of the retries of one copy.
#[derive(Debug, Default)]
pub(crate) struct RetryPolicy {
    /// Time of the first failure in the current series. Time before it does not count.
    first_failure: Option<Instant>,
    failures: usize,
}

impl RetryPolicy {
    /// Returns the delay before the next session, after one broke; `None` to give up. If that session `gained` something, a
    /// new series of failures starts.
    pub(crate) fn next_delay(&mut self, gained: bool, now: Instant) -> Option<Duration> {
        if gained {
            *self = Self::default();
        }
        let delay = DELAYS[self.failures % DELAYS.len()];
        self.failures += 1;
        let series_start = *self.first_failure.get_or_insert(now);
        (now.duration_since(series_start) + delay <= GIVE_UP_AFTER).then_some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gain_counts_only_progress_beyond_earlier_sessions() {
        let mut gain = SessionGain::default();
        let found = |same| Progress {
            unchanged: same,
            ..Progress::default()
        };
        for (same, further) in [(3, 3), (3, 0), (1, 0), (4, 1)] {
            gain.receive(Role::Source, &found(same));
            assert_eq!(gain.value(), further);
            gain.start_session();
        }
        gain.receive(
            Role::Target,
            &Progress {
                durable: 7,
                ..found(1)
            },
        );
        assert_eq!(gain.value(), 7);
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn gives_up_after_five_minutes_without_progress() {
        let mut policy = RetryPolicy::default();
        // Hours without new data do not count before the first failure.
        let start = Instant::now() + 10_000 * SECOND;
        assert_eq!(policy.next_delay(false, start), Some(DELAYS[0]));
        assert_eq!(
            policy.next_delay(false, start + 200 * SECOND),
            Some(DELAYS[1])
        );
        assert_eq!(
            policy.next_delay(true, start + 290 * SECOND),
            Some(DELAYS[0])
        );
        assert_eq!(
            policy.next_delay(false, start + 580 * SECOND),
            Some(DELAYS[1])
        );
        assert_eq!(policy.next_delay(false, start + 589 * SECOND), None);
    }
}
