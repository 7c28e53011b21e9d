// SPDX-License-Identifier: MIT OR Apache-2.0
//! Health of a peer, judged by connections to it and by checks. A peer that failed is not used
//! until a check succeeds. Checks are made after a backoff that doubles each time.

use parking_lot::{Mutex, MutexGuard};
use std::{
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

/// First backoff; each further one is twice as long.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Longest backoff, before jitter.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Uptime after which the backoff starts again at its minimum. A peer that fails earlier continues
/// from its last backoff.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(60);

/// Time without a connection after which a peer that is up is checked, if its health is shown. Costs one
/// connection.
const QUIET_MAX: Duration = Duration::from_secs(30);

/// Health of a peer, updated and read by any thread.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<HealthState>);

#[derive(Debug, Default)]
struct HealthState {
    failures: u64,
    down: Option<Down>,
    /// Time of the last connection, failure or claimed check.
    last_contact: Option<Instant>,
    /// Time of the last recovery, and the backoff before it.
    last_recovery: Option<(Instant, Duration)>,
}

#[derive(Debug, Clone, Copy)]
struct Down {
    since: Instant,
    backoff: Duration,
    check_at: Instant,
}

/// Snapshot of a peer's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HealthReport {
    /// Start of the outage; `None` is up.
    pub(crate) down_since: Option<Instant>,
    /// Failed connections to the peer since the start, checks included.
    pub(crate) failures: u64,
}

impl Health {
    pub(crate) fn report(&self) -> HealthReport {
        let state = self.state();
        HealthReport {
            down_since: state.down.map(|down| down.since),
            failures: state.failures,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state().down.is_none()
    }

    /// Records that the peer served this relay. Returns whether it was down.
    pub(crate) fn record_success(&self, now: Instant) -> bool {
        let mut state = self.state();
        state.last_contact = Some(now);
        let down = state.down.take();
        state.last_recovery = down.map(|down| (now, down.backoff)).or(state.last_recovery);
        down.is_some()
    }

    /// Records a failed connection. Returns whether the peer was up. `jitter` is between 0 and 1.
    pub(crate) fn record_failure(&self, now: Instant, jitter: f64) -> bool {
        let mut state = self.state();
        state.failures += 1;
        state.last_contact = Some(now);
        let was_up = state.down.is_none();
        if was_up {
            state.down = Some(Down::new(now, state.first_backoff(now), jitter));
        }
        was_up
    }

    /// Returns whether a check is due. If so, no other caller gets `true` before the next backoff
    /// is over.
    pub(crate) fn claim_check(&self, now: Instant, jitter: f64) -> bool {
        match &mut self.state().down {
            Some(down) if down.check_at <= now => {
                down.back_off(now, jitter);
                true
            }
            _ => false,
        }
    }

    /// Returns whether a peer that is up has been quiet for long enough to be checked. If so, no
    /// other caller gets `true` for the same period.
    pub(crate) fn claim_quiet_check(&self, now: Instant) -> bool {
        let mut state = self.state();
        let quiet = |at: Instant| now.duration_since(at) >= QUIET_MAX;
        let due = state.down.is_none() && state.last_contact.is_none_or(quiet);
        if due {
            state.last_contact = Some(now);
        }
        due
    }

    fn state(&self) -> MutexGuard<'_, HealthState> {
        self.0.lock()
    }
}

impl HealthState {
    fn first_backoff(&self, now: Instant) -> Duration {
        match self.last_recovery {
            Some((recovered_at, backoff))
                if now.duration_since(recovered_at) < BACKOFF_RESET_AFTER =>
            {
                double_backoff(backoff)
            }
            _ => BACKOFF_MIN,
        }
    }
}

impl Down {
    fn new(now: Instant, backoff: Duration, jitter: f64) -> Self {
        Self {
            since: now,
            backoff,
            check_at: now + jittered(backoff, jitter),
        }
    }

    fn back_off(&mut self, now: Instant, jitter: f64) {
        self.backoff = double_backoff(self.backoff);
        self.check_at = now + jittered(self.backoff, jitter);
    }
}

/// Returns the backoff after `backoff`.
pub(crate) fn double_backoff(backoff: Duration) -> Duration {
    (backoff * 2).clamp(BACKOFF_MIN, BACKOFF_MAX)
}

/// Changes the backoff by up to a quarter in both directions, so that relays that lost a peer
/// together don't check it together.
pub(crate) fn jittered(backoff: Duration, jitter: f64) -> Duration {
    backoff.mul_f64(0.75 + jitter.clamp(0.0, 1.0) / 2.0)
}

/// Returns a random number between 0 and 1. It only spreads waiting times, so the seeds of hash
/// tables are random enough.
pub(crate) fn jitter() -> f64 {
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn reports_state_change_once() {
        let (health, now) = (Health::default(), Instant::now());
        assert!(health.is_up());
        assert!(health.record_failure(now, 0.5));
        assert!(!health.record_failure(now + MS, 0.5));
        let report = HealthReport {
            down_since: Some(now),
            failures: 2,
        };
        assert_eq!(health.report(), report);
        assert!(health.record_success(now));
        assert!(!health.record_success(now));
        assert!(health.is_up());
    }

    #[test]
    fn backoff_continues_after_early_failure() {
        let (health, mut now) = (Health::default(), Instant::now());
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let backoff = Duration::from_secs(seconds);
            assert!(health.record_failure(now, 0.5));
            assert!(!health.claim_check(now + backoff - MS, 0.5), "{seconds}");
            health.record_success(now + backoff);
            now += backoff + BACKOFF_RESET_AFTER - MS;
        }
        health.record_success(now);
        now += BACKOFF_RESET_AFTER;
        health.record_failure(now, 0.5);
        assert!(health.claim_check(now + BACKOFF_MIN, 0.5));
    }

    #[test]
    fn one_caller_claims_check_after_backoff() {
        let (health, now) = (Health::default(), Instant::now());
        assert!(!health.claim_check(now, 0.5), "up");
        health.record_failure(now, 0.5);
        assert!(!health.claim_check(now + BACKOFF_MIN - MS, 0.5));
        assert!(health.claim_check(now + BACKOFF_MIN, 0.5));
        assert!(!health.claim_check(now + BACKOFF_MIN, 0.5));
    }

    #[test]
    fn claims_check_of_quiet_peer() {
        let (health, now) = (Health::default(), Instant::now());
        assert!(health.claim_quiet_check(now));
        assert!(!health.claim_quiet_check(now + QUIET_MAX - MS));
        health.record_success(now + QUIET_MAX - MS);
        assert!(!health.claim_quiet_check(now + QUIET_MAX));
        assert!(health.claim_quiet_check(now + QUIET_MAX * 2));
        health.record_failure(now + QUIET_MAX * 3, 0.5);
        assert!(
            !health.claim_quiet_check(now + QUIET_MAX * 5),
            "a peer that is down has its own checks"
        );
    }

    #[test]
    fn backoff_doubles_up_to_maximum() {
        let (health, mut now) = (Health::default(), Instant::now());
        health.record_failure(now, 0.5);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let backoff = Duration::from_secs(seconds);
            assert!(!health.claim_check(now + backoff - MS, 0.5), "{seconds}");
            now += backoff;
            assert!(health.claim_check(now, 0.5), "{seconds}");
        }
    }

    #[test]
    fn jitter_is_at_most_one_quarter() {
        let second = Duration::from_secs(1);
        assert_eq!(jittered(second, 0.0), 750 * MS);
        assert_eq!(jittered(second, 1.0), 1250 * MS);
    }
}
