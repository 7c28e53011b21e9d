// SPDX-License-Identifier: MIT OR Apache-2.0
//! A look at all open connections once a second, as long as somebody wants to know. It runs on the
//! supervisor's thread, never in a worker; what a worker adds is one look at a connection that ends.
//!
//! A look costs four system calls a connection, so that nobody pays who does not ask: without
//! `--admin` nothing is seen at all, and a minute after the last question the rounds stop.

pub(crate) mod book;

use crate::records::survey::book::{Book, Glimpse, Verdict};
use longhaul_admin::record::{Group, LegSums, Snapshot};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Rounds go on for this long after the last question.
const ATTENTION: Duration = Duration::from_secs(60);

/// What is known of the open connections.
#[derive(Debug)]
pub(crate) struct Survey {
    wanted: bool,
    book: Mutex<Book>,
    asked: watch::Sender<Option<Instant>>,
    latest: watch::Sender<Option<Latest>>,
}

#[derive(Debug, Clone)]
struct Latest {
    snapshot: Arc<Snapshot>,
    good_until: Instant,
}

impl Survey {
    /// One that sees nothing unless it is `wanted`.
    pub(crate) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            book: Mutex::default(),
            asked: watch::Sender::new(None),
            latest: watch::Sender::new(None),
        }
    }

    /// Whether anybody may ever ask.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// All connections as they were at most some two seconds ago.
    pub(crate) async fn latest(&self) -> Arc<Snapshot> {
        let now = Instant::now();
        self.asked.send_replace(Some(now));
        let mut latest = self.latest.subscribe();
        let good = |l: &Option<Latest>| l.as_ref().is_some_and(|l| l.good_until > now);
        // An error would mean that the sender is gone, but `self` is the sender.
        let found = latest.wait_for(good).await.ok();
        let snapshot = found.and_then(|found| Some(found.as_ref()?.snapshot.clone()));
        snapshot.expect("it was waited for")
    }

    /// The last look at a connection, of which no other counts from now on.
    pub(crate) fn see_last(&self, glimpse: Glimpse, seen_last: &AtomicBool) {
        let mut book = self.book();
        seen_last.store(true, Relaxed);
        let number = glimpse.number;
        book.note(glimpse);
        book.forget(number);
    }

    /// Notes a look at a connection; nothing if its last one was noted.
    pub(crate) fn look(
        &self,
        glimpse: Glimpse,
        seen_last: &AtomicBool,
    ) -> Option<(Glimpse, Verdict)> {
        let mut book = self.book();
        let is_over = seen_last.load(Relaxed);
        (!is_over).then(|| (glimpse.clone(), book.note(glimpse)))
    }

    /// Waits until somebody wants to know.
    pub(crate) async fn asked(&self) {
        // As above.
        let _ = self.asked.subscribe().wait_for(is_recent).await;
    }

    /// Whether somebody wants to know.
    pub(crate) fn is_asked(&self) -> bool {
        is_recent(&self.asked.borrow())
    }

    /// Answers those who have asked.
    pub(crate) fn publish(&self, snapshot: Snapshot, good_until: Instant) {
        self.latest.send_replace(Some(Latest {
            snapshot: snapshot.into(),
            good_until,
        }));
    }

    /// The sums of these listeners; those of others are forgotten.
    pub(crate) fn sums(&self, listeners: &[String]) -> BTreeMap<Group, LegSums> {
        self.book().sums(listeners)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock()
    }
}

fn is_recent(asked: &Option<Instant>) -> bool {
    asked.is_some_and(|asked| asked.elapsed() < ATTENTION)
}
