// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long to wait before another conversation, and when to give up.

use crate::protocol::{control::Role, report::Progress};
use std::time::{Duration, Instant};

/// Between two conversations.
const DELAYS: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// How long it may go on so from the first conversation that broke without having come further than those before it.
const GIVE_UP_AFTER: Duration = Duration::from_secs(300);

/// What a conversation brought that those before it did not.
#[derive(Debug, Default)]
pub(crate) struct SessionGain {
    /// Bytes and entries that became durable.
    durable: u64,
    /// Entries that came to their end well, whatever for, and the most that did in a conversation before.
    settled: u64,
    settled_max: u64,
}

impl SessionGain {
    pub(crate) fn receive(&mut self, role: Role, progress: &Progress) {
        match role {
            Role::Source => self.settled = progress.same + progress.made + progress.left_out,
            Role::Target => self.durable = progress.durable + progress.made,
        }
    }

    pub(crate) fn value(&self) -> u64 {
        self.durable + self.settled.saturating_sub(self.settled_max)
    }

    /// Another conversation begins.
    pub(crate) fn start_session(&mut self) {
        let furthest = self.settled_max.max(self.settled);
        *self = Self {
            settled_max: furthest,
            ..Self::default()
        };
    }
}

/// What is left of it.
#[derive(Debug, Default)]
pub(crate) struct RetryPolicy {
    /// When that one broke. What went well before, however long and with whatever gain, is nobody's loss.
    first_failure: Option<Instant>,
    failures: usize,
}

impl RetryPolicy {
    /// A conversation broke, maybe after it had gained something: how long to wait before the next; `None` is never.
    pub(crate) fn next_delay(&mut self, gained: bool, now: Instant) -> Option<Duration> {
        if gained {
            *self = Self::default();
        }
        let pause = DELAYS[self.failures % DELAYS.len()];
        self.failures += 1;
        let since = *self.first_failure.get_or_insert(now);
        (now.duration_since(since) + pause <= GIVE_UP_AFTER).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_gains_what_none_before_it_came_to() {
        let mut gain = SessionGain::default();
        let found = |same| Progress {
            same,
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
    fn the_first_loss_is_made_good_and_five_minutes_of_them_are_not() {
        let mut patience = RetryPolicy::default();
        // Hours in which all was there already are no loss.
        let begun = Instant::now() + 10_000 * SECOND;
        assert_eq!(patience.next_delay(false, begun), Some(DELAYS[0]));
        assert_eq!(
            patience.next_delay(false, begun + 200 * SECOND),
            Some(DELAYS[1])
        );
        assert_eq!(
            patience.next_delay(true, begun + 290 * SECOND),
            Some(DELAYS[0])
        );
        assert_eq!(
            patience.next_delay(false, begun + 580 * SECOND),
            Some(DELAYS[1])
        );
        assert_eq!(patience.next_delay(false, begun + 589 * SECOND), None);
    }
}
