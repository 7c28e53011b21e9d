// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long to wait before another conversation, and when to give up.

use crate::protocol::{control::Role, report::Progress};
use std::time::{Duration, Instant};

/// Between two conversations.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// How long it may go on so from the first conversation that broke without having come further than those before it.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a conversation brought that those before it did not.
#[derive(Debug, Default)]
pub(crate) struct Gain {
    /// Bytes and entries that became durable.
    durable: u64,
    /// Entries that came to their end well, whatever for, and the most that did in a conversation before.
    settled: u64,
    furthest: u64,
}

impl Gain {
    pub(crate) fn hear(&mut self, role: Role, progress: &Progress) {
        match role {
            Role::Source => self.settled = progress.same + progress.made + progress.left_out,
            Role::Target => self.durable = progress.durable + progress.made,
        }
    }

    pub(crate) fn so_far(&self) -> u64 {
        self.durable + self.settled.saturating_sub(self.furthest)
    }

    /// Another conversation begins.
    pub(crate) fn again(&mut self) {
        let furthest = self.furthest.max(self.settled);
        *self = Self {
            furthest,
            ..Self::default()
        };
    }
}

/// What is left of it.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// When that one broke. What went well before, however long and with whatever gain, is nobody's loss.
    since: Option<Instant>,
    losses: usize,
}

impl Patience {
    /// A conversation broke, maybe after it had gained something: how long to wait before the next; `None` is never.
    pub(crate) fn lose(&mut self, gained: bool, now: Instant) -> Option<Duration> {
        if gained {
            *self = Self::default();
        }
        let pause = PAUSES[self.losses % PAUSES.len()];
        self.losses += 1;
        let since = *self.since.get_or_insert(now);
        (now.duration_since(since) + pause <= PATIENCE).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_gains_what_none_before_it_came_to() {
        let mut gain = Gain::default();
        let found = |same| Progress {
            same,
            ..Progress::default()
        };
        for (same, further) in [(3, 3), (3, 0), (1, 0), (4, 1)] {
            gain.hear(Role::Source, &found(same));
            assert_eq!(gain.so_far(), further);
            gain.again();
        }
        gain.hear(
            Role::Target,
            &Progress {
                durable: 7,
                ..found(1)
            },
        );
        assert_eq!(gain.so_far(), 7);
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_first_loss_is_made_good_and_five_minutes_of_them_are_not() {
        let mut patience = Patience::default();
        // Hours in which all was there already are no loss.
        let begun = Instant::now() + 10_000 * SECOND;
        assert_eq!(patience.lose(false, begun), Some(PAUSES[0]));
        assert_eq!(patience.lose(false, begun + 200 * SECOND), Some(PAUSES[1]));
        assert_eq!(patience.lose(true, begun + 290 * SECOND), Some(PAUSES[0]));
        assert_eq!(patience.lose(false, begun + 580 * SECOND), Some(PAUSES[1]));
        assert_eq!(patience.lose(false, begun + 589 * SECOND), None);
    }
}
