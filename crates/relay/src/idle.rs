// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tunnels that have carried nothing for too long: both ends may be alive and the tunnel forgotten.
//! One task looks at all of them, so that a tunnel needs no timer of its own.

use crate::{Relay, session::WhyCut};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// How long one tunnel has carried nothing.
#[derive(Debug, Default)]
pub(crate) struct Idleness(
    /// `None` before it is a tunnel.
    Mutex<Option<Seen>>,
);

#[derive(Debug, Clone, Copy)]
struct Seen {
    bytes: u64,
    since: Instant,
}

impl Idleness {
    /// From now on it is a tunnel.
    pub(crate) fn begin(&self, now: Instant) {
        let seen = Seen {
            bytes: 0,
            since: now,
        };
        *self.seen() = Some(seen);
    }

    /// Whether it has carried nothing for `limit`, with `bytes` in all so far.
    pub(crate) fn exceeds(&self, limit: Duration, bytes: u64, now: Instant) -> bool {
        let mut seen = self.seen();
        let Some(seen) = seen.as_mut() else {
            return false;
        };
        if seen.bytes != bytes {
            *seen = Seen { bytes, since: now };
        }
        now.saturating_duration_since(seen.since) >= limit
    }

    fn seen(&self) -> MutexGuard<'_, Option<Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks in the time that a tunnel has: one is found idle at most a quarter of that later, and no
/// more than a minute.
const LOOKS: u32 = 4;
const PERIOD_MIN: Duration = Duration::from_millis(50);
const PERIOD_MAX: Duration = Duration::from_secs(60);

/// Ends idle tunnels for ever.
pub(crate) async fn watch(relay: &Relay) {
    loop {
        let limit = relay.config().limits.tunnel_idle_timeout;
        let period = limit.map_or(PERIOD_MAX, |limit| limit / LOOKS);
        sleep(period.clamp(PERIOD_MIN, PERIOD_MAX)).await;
        let now = Instant::now();
        for session in relay.sessions.all() {
            if session.is_idle(now) {
                session.cut(WhyCut::Idle);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn time_without_a_byte_counts() {
        let (idleness, start) = (Idleness::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(!idleness.exceeds(LIMIT, 0, after(100)), "it is no tunnel");
        idleness.begin(after(100));
        assert!(!idleness.exceeds(LIMIT, 0, after(109)));
        assert!(!idleness.exceeds(LIMIT, 1, after(115)), "a byte has passed");
        assert!(!idleness.exceeds(LIMIT, 1, after(124)));
        assert!(idleness.exceeds(LIMIT, 1, after(125)));
    }
}
