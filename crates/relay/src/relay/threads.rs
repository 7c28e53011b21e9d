// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the threads that serve are there and alive: a relay that has lost one must not go on as if nothing had happened.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

/// Raised as soon as a thread that serves has ended, by an error, a panic or in its time.
#[derive(Debug)]
pub(crate) struct Alarm(watch::Sender<bool>);

impl Alarm {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Does `work`, after which the alarm is raised, however it ends.
    pub(crate) fn over<T>(&self, work: impl FnOnce() -> T) -> T {
        let _raised = Raise(&self.0);
        work()
    }

    pub(crate) fn is_raised(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once it is raised.
    pub(crate) async fn raised(&self) {
        // An error would mean that the sender is gone, but `self` is the sender.
        let _ = self.0.subscribe().wait_for(|raised| *raised).await;
    }
}

struct Raise<'a>(&'a watch::Sender<bool>);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// How often a thread says that it is alive.
const PERIOD: Duration = Duration::from_millis(100);

/// Silence after which it counts as stalled.
pub(crate) const STALLED_AFTER: Duration = Duration::from_millis(600);

/// The latest sign of life of each thread.
#[derive(Debug)]
pub(crate) struct Pulse {
    start: Instant,
    /// Milliseconds after `start`; 0 is never.
    latest: Vec<AtomicU64>,
}

impl Pulse {
    /// Of `threads` threads, none of which has been heard yet.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            start: Instant::now(),
            latest: (0..threads).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn sign(&self, thread: usize, now: Instant) {
        if let Some(latest) = self.latest.get(thread) {
            latest.store(self.milliseconds(now).max(1), Relaxed);
        }
    }

    /// Whether all have been heard of late.
    pub(crate) fn is_steady(&self, now: Instant) -> bool {
        let now = self.milliseconds(now);
        let limit = STALLED_AFTER.as_millis() as u64;
        self.latest.iter().all(|latest| match latest.load(Relaxed) {
            0 => false,
            latest => now.saturating_sub(latest) <= limit,
        })
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_millis() as u64
    }
}

/// Signs for `thread`, one of the relay's event loops, as long as that loop runs.
pub(crate) async fn beat(pulse: Arc<Pulse>, thread: usize) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        pulse.sign(thread, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn an_end_is_heard_of_whatever_it_was() {
        let failed = Alarm::new();
        assert!(!failed.is_raised());
        assert_eq!(
            failed.over(|| Err::<(), _>("no descriptors")),
            Err("no descriptors")
        );
        assert!(failed.is_raised());
        let panicked = Alarm::new();
        let work = || panicked.over(|| panic!("a bug"));
        assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
        assert!(panicked.is_raised());
    }

    #[test]
    fn steady_means_every_one_and_of_late() {
        let pulse = Pulse::new(2);
        let start = pulse.start;
        let at = |ms| start + Duration::from_millis(ms);
        pulse.sign(0, at(10));
        assert!(!pulse.is_steady(at(10)), "one was never heard");
        pulse.sign(1, at(500));
        assert!(pulse.is_steady(at(610)));
        assert!(!pulse.is_steady(at(611)), "the first is silent");
        pulse.sign(0, at(611));
        assert!(pulse.is_steady(at(611)), "it came back");
    }
}
