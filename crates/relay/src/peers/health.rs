// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a peer can be used, judged by connections to it and by checks. A peer that failed is left
//! alone until a check, made after a pause that doubles each time, finds that it serves this relay.

use parking_lot::{Mutex, MutexGuard};
use std::{
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

/// The first pause; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause, before jitter.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A peer that fails again within this time after its return waits on from its last pause.
const CALM: Duration = Duration::from_secs(60);

/// A peer that nothing was heard of for so long is looked after, where its health is shown. Costs a
/// connection.
const QUIET: Duration = Duration::from_secs(30);

/// What is known of a peer. Any thread tells, any asks.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u64,
    down: Option<Down>,
    /// When it was last asked for anything, or would have been.
    asked: Option<Instant>,
    /// The last return, and the pause before it.
    back: Option<(Instant, Duration)>,
}

#[derive(Debug, Clone, Copy)]
struct Down {
    since: Instant,
    pause: Duration,
    check_at: Instant,
}

/// A peer's health at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    /// Since when it has been down; `None` is up.
    pub(crate) down_since: Option<Instant>,
    /// Connections to it that failed, checks included, since the start.
    pub(crate) failures: u64,
}

impl Health {
    pub(crate) fn report(&self) -> Report {
        let state = self.state();
        Report {
            down_since: state.down.map(|down| down.since),
            failures: state.failures,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state().down.is_none()
    }

    /// It served this relay. Returns whether that is news.
    pub(crate) fn reached(&self, now: Instant) -> bool {
        let mut state = self.state();
        state.asked = Some(now);
        let down = state.down.take();
        state.back = down.map(|down| (now, down.pause)).or(state.back);
        down.is_some()
    }

    /// A connection failed. Returns whether that is news. `jitter` is between 0 and 1.
    pub(crate) fn missed(&self, now: Instant, jitter: f64) -> bool {
        let mut state = self.state();
        state.failures += 1;
        state.asked = Some(now);
        let news = state.down.is_none();
        if news {
            state.down = Some(Down::new(now, state.first_pause(now), jitter));
        }
        news
    }

    /// Whether it is time for a check; then nobody else is told so before the next pause is over.
    pub(crate) fn claim_check(&self, now: Instant, jitter: f64) -> bool {
        match &mut self.state().down {
            Some(down) if down.check_at <= now => {
                down.wait_longer(now, jitter);
                true
            }
            _ => false,
        }
    }

    /// Whether it is time to look after one that is up and that nothing was heard of for a while; then
    /// nobody else is told so.
    pub(crate) fn claim_look(&self, now: Instant) -> bool {
        let mut state = self.state();
        let quiet = |at: Instant| now.duration_since(at) >= QUIET;
        let due = state.down.is_none() && state.asked.is_none_or(quiet);
        if due {
            state.asked = Some(now);
        }
        due
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl State {
    fn first_pause(&self, now: Instant) -> Duration {
        match self.back {
            Some((back, pause)) if now.duration_since(back) < CALM => doubled(pause),
            _ => PAUSE_MIN,
        }
    }
}

impl Down {
    fn new(now: Instant, pause: Duration, jitter: f64) -> Self {
        Self {
            since: now,
            pause,
            check_at: now + jittered(pause, jitter),
        }
    }

    fn wait_longer(&mut self, now: Instant, jitter: f64) {
        self.pause = doubled(self.pause);
        self.check_at = now + jittered(self.pause, jitter);
    }
}

/// The pause after `pause`.
pub(crate) fn doubled(pause: Duration) -> Duration {
    (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// A quarter less to a quarter more, so that relays that lost a peer together don't ask for it
/// together.
pub(crate) fn jittered(pause: Duration, jitter: f64) -> Duration {
    pause.mul_f64(0.75 + jitter.clamp(0.0, 1.0) / 2.0)
}

/// Between 0 and 1. Where chance decides about waiting only, the seeds of hash tables are enough.
pub(crate) fn jitter() -> f64 {
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_failure_is_news_once() {
        let (health, now) = (Health::default(), Instant::now());
        assert!(health.is_up());
        assert!(health.missed(now, 0.5));
        assert!(!health.missed(now + MS, 0.5));
        let report = Report {
            down_since: Some(now),
            failures: 2,
        };
        assert_eq!(health.report(), report);
        assert!(health.reached(now));
        assert!(!health.reached(now));
        assert!(health.is_up());
    }

    #[test]
    fn a_peer_that_fails_again_soon_waits_longer() {
        let (health, mut now) = (Health::default(), Instant::now());
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let pause = Duration::from_secs(seconds);
            assert!(health.missed(now, 0.5));
            assert!(!health.claim_check(now + pause - MS, 0.5), "{seconds}");
            health.reached(now + pause);
            now += pause + CALM - MS;
        }
        health.reached(now);
        now += CALM;
        health.missed(now, 0.5);
        assert!(health.claim_check(now + PAUSE_MIN, 0.5));
    }

    #[test]
    fn a_check_is_due_after_the_pause_and_belongs_to_one() {
        let (health, now) = (Health::default(), Instant::now());
        assert!(!health.claim_check(now, 0.5), "up");
        health.missed(now, 0.5);
        assert!(!health.claim_check(now + PAUSE_MIN - MS, 0.5));
        assert!(health.claim_check(now + PAUSE_MIN, 0.5));
        assert!(!health.claim_check(now + PAUSE_MIN, 0.5));
    }

    #[test]
    fn a_peer_that_nothing_was_heard_of_is_looked_after() {
        let (health, now) = (Health::default(), Instant::now());
        assert!(health.claim_look(now));
        assert!(!health.claim_look(now + QUIET - MS));
        health.reached(now + QUIET - MS);
        assert!(!health.claim_look(now + QUIET));
        assert!(health.claim_look(now + QUIET * 2));
        health.missed(now + QUIET * 3, 0.5);
        assert!(
            !health.claim_look(now + QUIET * 5),
            "checks are for those that are down"
        );
    }

    #[test]
    fn pauses_double_to_their_bound() {
        let (health, mut now) = (Health::default(), Instant::now());
        health.missed(now, 0.5);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let pause = Duration::from_secs(seconds);
            assert!(!health.claim_check(now + pause - MS, 0.5), "{seconds}");
            now += pause;
            assert!(health.claim_check(now, 0.5), "{seconds}");
        }
    }

    #[test]
    fn jitter_is_a_quarter_each_way() {
        let second = Duration::from_secs(1);
        assert_eq!(jittered(second, 0.0), 750 * MS);
        assert_eq!(jittered(second, 1.0), 1250 * MS);
    }
}
