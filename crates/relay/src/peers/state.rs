// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of a peer beside its address.

use crate::peers::health::Health;
use parking_lot::{Mutex, MutexGuard};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};
use tokio::sync::Mutex as AsyncMutex;

/// State of a peer, updated and read by any thread.
#[derive(Debug, Default)]
pub(crate) struct PeerState {
    pub(crate) health: Health,
    /// End of the last check after a failed connection; locked during such a check.
    pub(crate) last_recheck: AsyncMutex<Option<Instant>>,
    /// Whether it was logged that clients connect directly while the peer is down.
    pub(crate) bypass_logged: AtomicBool,
    pub(crate) pool: PoolCounters,
    pub(crate) striping: Striping,
}

/// Counters of the idle connections of all workers.
#[derive(Debug, Default)]
pub(crate) struct PoolCounters {
    /// Idle connections now.
    pub(crate) idle: AtomicU64,
    /// Requests that found an idle connection.
    pub(crate) hits: AtomicU64,
    /// Requests that found no idle connection although the pool is enabled.
    pub(crate) misses: AtomicU64,
}

/// State of striping to a peer.
#[derive(Debug, Default)]
pub(crate) struct Striping {
    /// Time at which the peer refused a group as unsupported.
    unsupported_since: Mutex<Option<Instant>>,
    /// Number of legs that could not join.
    pub(crate) missing: AtomicU64,
    /// Whether some leg of the last group could not join.
    is_incomplete: AtomicBool,
}

impl Striping {
    /// Records that the peer does not support groups. Returns whether this is new.
    pub(crate) fn record_unsupported(&self) -> bool {
        self.unsupported_since().replace(Instant::now()).is_none()
    }

    /// Returns whether the peer may support groups.
    pub(crate) fn may_be_supported(&self) -> bool {
        self.unsupported_since()
            .is_none_or(|at| at.elapsed() >= STRIPING_RETRY_AFTER)
    }

    /// Counts the legs that could not join a group. Returns whether the state has changed.
    pub(crate) fn record_missing(&self, legs: usize) -> bool {
        self.missing.fetch_add(legs as u64, Relaxed);
        let is_incomplete = legs > 0;
        self.is_incomplete.swap(is_incomplete, Relaxed) != is_incomplete
    }

    fn unsupported_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.unsupported_since.lock()
    }
}

/// Time after which a peer without support for groups is asked again: it may have been upgraded.
const STRIPING_RETRY_AFTER: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_missing_streams_and_their_return_once() {
        let striping = Striping::default();
        let changed = [0, 3, 1, 0, 0, 2].map(|legs| striping.record_missing(legs));
        assert_eq!(changed, [false, true, false, true, false, true]);
        assert_eq!(striping.missing.load(Relaxed), 6);
    }
}
