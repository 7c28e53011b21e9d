// SPDX-License-Identifier: MIT OR Apache-2.0
//! All that is known of a peer beside its place.

use crate::peers::health::Health;
use parking_lot::{Mutex, MutexGuard};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};
use tokio::sync::Mutex as AsyncMutex;

/// What is known of a peer. Any thread tells, any asks.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) health: Health,
    /// The end of the last check that a doubt caused; held by whoever checks.
    pub(crate) doubted: AsyncMutex<Option<Instant>>,
    /// It was said that clients go straight while it is down.
    pub(crate) passed_by: AtomicBool,
    pub(crate) stock: StockCounters,
    pub(crate) striping: Striping,
}

/// How the ready connections of all workers do.
#[derive(Debug, Default)]
pub(crate) struct StockCounters {
    /// Standing ready now.
    pub(crate) ready: AtomicU64,
    /// Requests that found one.
    pub(crate) hits: AtomicU64,
    /// Requests that found none although some are kept.
    pub(crate) misses: AtomicU64,
}

/// What is known of striping to a peer.
#[derive(Debug, Default)]
pub(crate) struct Striping {
    /// When the peer said that it knows no groups.
    refused: Mutex<Option<Instant>>,
    /// Legs that could not join.
    pub(crate) missing: AtomicU64,
    /// Not all legs of the last group could.
    short: AtomicBool,
}

impl Striping {
    /// The peer knows no groups. Returns whether that is news.
    pub(crate) fn refuse(&self) -> bool {
        self.refused().replace(Instant::now()).is_none()
    }

    /// Whether the peer, for all that is known, would take a group.
    pub(crate) fn may_be_asked(&self) -> bool {
        self.refused()
            .is_none_or(|at| at.elapsed() >= STRIPING_PAUSE)
    }

    /// Counts the legs that could not join a group. Returns whether that is news.
    pub(crate) fn note_missing(&self, legs: usize) -> bool {
        self.missing.fetch_add(legs as u64, Relaxed);
        let short = legs > 0;
        self.short.swap(short, Relaxed) != short
    }

    fn refused(&self) -> MutexGuard<'_, Option<Instant>> {
        self.refused.lock()
    }
}

/// After which time a peer that knew no groups is asked again: it may have been replaced.
const STRIPING_PAUSE: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_streams_are_news_once_and_so_is_their_return() {
        let striping = Striping::default();
        let told = [0, 3, 1, 0, 0, 2].map(|legs| striping.note_missing(legs));
        assert_eq!(told, [false, true, false, true, false, true]);
        assert_eq!(striping.missing.load(Relaxed), 6);
    }
}
