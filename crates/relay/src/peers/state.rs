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
pub(crate) struct State {
    pub(crate) health: Health,
    /// End of the last check after a failed connection; locked during such a check.
    pub(crate) doubted: AsyncMutex<Option<Instant>>,
    /// Whether it was logged that clients connect directly while the peer is down.
    pub(crate) passed_by: AtomicBool,
    pub(crate) stock: StockCounters,
    pub(crate) striping: Striping,
}

/// Counters of the idle connections of all workers.
#[derive(Debug, Default)]
pub(crate) struct StockCounters {
    /// Idle connections now.
    pub(crate) ready: AtomicU64,
    /// Requests that found an idle connection.
    pub(crate) hits: AtomicU64,
    /// Requests that found no idle connection although the pool is enabled.
    pub(crate) misses: AtomicU64,
}

/// State of striping to a peer.
#[derive(Debug, Default)]
pub(crate) struct Striping {
    /// Time at which the peer refused a group as unsupported.
    refused: Mutex<Option<Instant>>,
    /// Number of legs that could not join.
    pub(crate) missing: AtomicU64,
    /// Whether some leg of the last group could not join.
    short: AtomicBool,
}

impl Striping {
    /// Records that the peer does not support groups. Returns whether this is new.
    pub(crate) fn refuse(&self) -> bool {
        self.refused().replace(Instant::now()).is_none()
    }

    /// Returns whether the peer may support groups.
    pub(crate) fn may_be_asked(&self) -> bool {
        self.refused()
            .is_none_or(|at| at.elapsed() >= STRIPING_PAUSE)
    }

    /// Counts the legs that could not join a group. Returns whether the state has changed.
    pub(crate) fn note_missing(&self, legs: usize) -> bool {
        self.missing.fetch_add(legs as u64, Relaxed);
        let short = legs > 0;
        self.short.swap(short, Relaxed) != short
    }

    fn refused(&self) -> MutexGuard<'_, Option<Instant>> {
        self.refused.lock()
    }
}

/// Time after which a peer without support for groups is asked again: it may have been upgraded.
const STRIPING_PAUSE: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_missing_streams_and_their_return_once() {
        let striping = Striping::default();
        let told = [0, 3, 1, 0, 0, 2].map(|legs| striping.note_missing(legs));
        assert_eq!(told, [false, true, false, true, false, true]);
        assert_eq!(striping.missing.load(Relaxed), 6);
    }
}
