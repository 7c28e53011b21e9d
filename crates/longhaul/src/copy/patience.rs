// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long to wait before another conversation, and when to give up.

use std::time::{Duration, Instant};

/// Between two conversations.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// How long nothing may become durable before it is given up.
const PATIENCE: Duration = Duration::from_secs(300);

/// What is left of it.
#[derive(Debug)]
pub(super) struct Patience {
    last_gain: Instant,
    losses: usize,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self {
            last_gain: Instant::now(),
            losses: 0,
        }
    }

    /// A conversation broke, maybe after it had gained something: how long to wait before the next; `None` is never.
    pub(super) fn lose(&mut self, gained: bool) -> Option<Duration> {
        if gained {
            *self = Self::new();
        }
        let pause = PAUSES[self.losses % PAUSES.len()];
        self.losses += 1;
        (self.last_gain.elapsed() + pause <= PATIENCE).then_some(pause)
    }
}
