// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that HTTP uses for one client's connection: part of the memory budget.

use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Maximum size of a message head in bytes, and of its buffer. A larger head gets status 431.
pub(crate) const HEAD_LEN_MAX: usize = 64 * 1024;

/// Memory of one hyper connection, to a client or to an origin, without queued bytes: its state and
/// a buffer of 8 KiB (measured by `bench/heads.toml`).
pub(crate) const CONNECTION_BYTES: usize = 32 * 1024;

/// HTTP memory of one connection.
#[derive(Debug, Default)]
pub(crate) struct HttpMemory {
    connections: AtomicUsize,
    /// Size of the buffer for an incomplete head, before hyper has the connection.
    head: AtomicUsize,
    /// Bytes read since the last message ended.
    read: AtomicUsize,
    /// Bytes not yet taken by the client.
    queued: AtomicUsize,
    /// Time since which the client has no request open.
    idle_since: Mutex<Option<Instant>>,
}

/// Counts one hyper connection until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionCount(Arc<HttpMemory>);

impl HttpMemory {
    pub(crate) fn bytes(&self) -> u64 {
        let read = self.read.load(Relaxed).min(HEAD_LEN_MAX);
        let waiting = self.head.load(Relaxed) + read + self.queued.load(Relaxed);
        (self.connections.load(Relaxed) * CONNECTION_BYTES + waiting) as u64
    }

    /// Counts a hyper connection.
    pub(crate) fn connection(self: &Arc<Self>) -> ConnectionCount {
        self.connections.fetch_add(1, Relaxed);
        ConnectionCount(self.clone())
    }

    /// Sets the buffer size of an incomplete head.
    pub(crate) fn set_head(&self, capacity: usize) {
        self.head.store(capacity, Relaxed);
    }

    /// Adds bytes of a message.
    pub(crate) fn add_read(&self, bytes: usize) {
        self.read.fetch_add(bytes, Relaxed);
    }

    /// Returns whether the next bytes may be part of a head, and not of a body.
    pub(crate) fn may_be_head(&self) -> bool {
        self.read.load(Relaxed) < HEAD_LEN_MAX
    }

    /// Records that a whole message was read.
    pub(crate) fn end_message(&self) {
        self.read.store(0, Relaxed);
    }

    /// Sets the time since which the client has no request open; `None` if it has one.
    pub(crate) fn set_idle(&self, since: Option<Instant>) {
        *self.idle_since.lock() = since;
    }

    /// Returns for how long the client has had no request open.
    pub(crate) fn idle_for(&self, now: Instant) -> Duration {
        let since = *self.idle_since.lock();
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Sets the number of bytes that wait for the client.
    pub(crate) fn set_queued(&self, bytes: usize) {
        self.queued.store(bytes, Relaxed);
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}
