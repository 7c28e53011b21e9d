// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heartbeats of the threads that serve intercepted connections. Leases are renewed only while all of these threads
//! send heartbeats.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::time::{MissedTickBehavior, interval};

/// Time between two heartbeats of a thread.
const PERIOD: Duration = Duration::from_millis(100);

/// Time without a heartbeat after which a thread counts as stalled.
pub const STALLED_AFTER: Duration = Duration::from_millis(600);

/// The latest heartbeat of each thread.
#[derive(Debug)]
pub struct Heartbeats {
    start: Instant,
    /// Milliseconds after `start`; 0 if the thread has sent none.
    latest: Vec<AtomicU64>,
    /// Whether interception works at all listeners that should intercept.
    pub intercepts: AtomicBool,
}

impl Heartbeats {
    /// Heartbeats of `threads` threads, none of which has sent one yet.
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

    /// Returns whether all threads have sent a heartbeat within [`STALLED_AFTER`].
    pub fn are_all_alive(&self, now: Instant) -> bool {
        let now = self.milliseconds(now);
        let limit = STALLED_AFTER.as_millis() as u64;
        self.latest.iter().all(|latest| match latest.load(Relaxed) {
            0 => false,
            latest => now.saturating_sub(latest) <= limit,
        })
    }

    /// Sends heartbeats of `thread`, which runs an event loop, until the future is dropped.
    pub async fn send(self: Arc<Self>, thread: usize) {
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
    fn are_alive_while_every_thread_sends() {
        let heartbeats = Heartbeats::new(2);
        let start = heartbeats.start;
        let at = |ms| start + Duration::from_millis(ms);
        heartbeats.record(0, at(10));
        assert!(
            !heartbeats.are_all_alive(at(10)),
            "the second has sent none"
        );
        heartbeats.record(1, at(500));
        assert!(heartbeats.are_all_alive(at(610)));
        assert!(!heartbeats.are_all_alive(at(611)), "the first has stalled");
        heartbeats.record(0, at(611));
        assert!(heartbeats.are_all_alive(at(611)), "the first sends again");
    }
}
