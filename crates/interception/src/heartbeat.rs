// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heartbeats of the threads that serve what is intercepted: a thread that hangs must not keep the lease alive.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::time::{MissedTickBehavior, interval};

/// How often a thread beats.
const PERIOD: Duration = Duration::from_millis(100);

/// Silence after which it counts as stalled.
pub const STALLED_AFTER: Duration = Duration::from_millis(600);

/// The latest heartbeat of each thread.
#[derive(Debug)]
pub struct Heartbeats {
    start: Instant,
    /// Milliseconds after `start`; 0 is never.
    latest: Vec<AtomicU64>,
    /// Whether what is to be intercepted is.
    pub intercepts: AtomicBool,
}

impl Heartbeats {
    /// Of `threads` threads, none of which has beaten yet.
    pub fn new(threads: usize) -> Self {
        Self {
            start: Instant::now(),
            latest: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            intercepts: true.into(),
        }
    }

    fn record(&self, thread: usize, now: Instant) {
        if let Some(latest) = self.latest.get(thread) {
            latest.store(self.milliseconds(now).max(1), Relaxed);
        }
    }

    /// Whether all have beaten within [`STALLED_AFTER`].
    pub fn is_steady(&self, now: Instant) -> bool {
        let now = self.milliseconds(now);
        let limit = STALLED_AFTER.as_millis() as u64;
        self.latest.iter().all(|latest| match latest.load(Relaxed) {
            0 => false,
            latest => now.saturating_sub(latest) <= limit,
        })
    }

    /// Beats for `thread`, one of the event loops, as long as that loop runs.
    pub async fn beat(self: Arc<Self>, thread: usize) {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.record(thread, Instant::now());
        }
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_means_every_one_and_of_late() {
        let heartbeats = Heartbeats::new(2);
        let start = heartbeats.start;
        let at = |ms| start + Duration::from_millis(ms);
        heartbeats.record(0, at(10));
        assert!(!heartbeats.is_steady(at(10)), "one was never heard");
        heartbeats.record(1, at(500));
        assert!(heartbeats.is_steady(at(610)));
        assert!(!heartbeats.is_steady(at(611)), "the first is silent");
        heartbeats.record(0, at(611));
        assert!(heartbeats.is_steady(at(611)), "it came back");
    }
}
