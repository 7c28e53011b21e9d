// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples of all open connections, taken once a second while there are readers. The supervisor's
//! thread takes them. A worker only adds the final sample of a connection that ends.
//!
//! A sample costs four system calls per connection, so it is taken only on demand. Sampling stops a
//! minute after the last read, and never starts without `--admin`.

pub(crate) mod samples;

use crate::records::sampling::samples::{Rates, Sample, SampleStore};
use longhaul_admin::record::{LegGroupKey, LegTotals, Snapshot};
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

/// Time for which sampling continues after the last read.
const READER_TIMEOUT: Duration = Duration::from_secs(60);

/// Sampler of the open connections.
#[derive(Debug)]
pub(crate) struct ConnectionSampler {
    is_enabled: bool,
    store: Mutex<SampleStore>,
    last_read: watch::Sender<Option<Instant>>,
    latest: watch::Sender<Option<LatestSnapshot>>,
}

#[derive(Debug, Clone)]
struct LatestSnapshot {
    snapshot: Arc<Snapshot>,
    valid_until: Instant,
}

impl ConnectionSampler {
    /// Returns a sampler that takes no samples unless `is_enabled`.
    pub(crate) fn new(is_enabled: bool) -> Self {
        Self {
            is_enabled,
            store: Mutex::default(),
            last_read: watch::Sender::new(None),
            latest: watch::Sender::new(None),
        }
    }

    /// Returns whether samples may be taken, because there can be readers.
    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Returns a snapshot of all connections, at most about two seconds old.
    pub(crate) async fn snapshot(&self) -> Arc<Snapshot> {
        let now = Instant::now();
        self.last_read.send_replace(Some(now));
        let mut latest = self.latest.subscribe();
        let is_valid = |l: &Option<LatestSnapshot>| l.as_ref().is_some_and(|l| l.valid_until > now);
        // An error would mean that the sender is gone, but `self` owns the sender.
        let found = latest.wait_for(is_valid).await.ok();
        let snapshot = found.and_then(|found| Some(found.as_ref()?.snapshot.clone()));
        snapshot.expect("wait_for returns a valid snapshot")
    }

    /// Records the final sample of a connection. Later samples of it are ignored.
    pub(crate) fn record_final(&self, sample: Sample, final_sample_taken: &AtomicBool) {
        let mut store = self.store();
        final_sample_taken.store(true, Relaxed);
        let number = sample.number;
        store.record(sample);
        store.remove(number);
    }

    /// Records a sample of a connection and returns it with its rates. After the connection's final
    /// sample, ignores it and returns `None`.
    pub(crate) fn record(
        &self,
        sample: Sample,
        final_sample_taken: &AtomicBool,
    ) -> Option<(Sample, Rates)> {
        let mut store = self.store();
        let is_over = final_sample_taken.load(Relaxed);
        (!is_over).then(|| (sample.clone(), store.record(sample)))
    }

    /// Waits until there is a reader.
    pub(crate) async fn wait_for_reader(&self) {
        // An error is impossible: `self` owns the sender.
        let _ = self.last_read.subscribe().wait_for(is_recent).await;
    }

    /// Returns whether there was a read within [`READER_TIMEOUT`].
    pub(crate) fn has_readers(&self) -> bool {
        is_recent(&self.last_read.borrow())
    }

    /// Publishes a snapshot to the waiting readers.
    pub(crate) fn publish(&self, snapshot: Snapshot, valid_until: Instant) {
        self.latest.send_replace(Some(LatestSnapshot {
            snapshot: snapshot.into(),
            valid_until,
        }));
    }

    /// Returns the totals over the legs of these listeners, and forgets those of other listeners.
    pub(crate) fn totals(&self, listeners: &[String]) -> BTreeMap<LegGroupKey, LegTotals> {
        self.store().totals(listeners)
    }

    fn store(&self) -> MutexGuard<'_, SampleStore> {
        self.store.lock()
    }
}

fn is_recent(last_read: &Option<Instant>) -> bool {
    last_read.is_some_and(|last_read| last_read.elapsed() < READER_TIMEOUT)
}
