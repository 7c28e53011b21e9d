// SPDX-License-Identifier: MIT OR Apache-2.0
//! What HTTP takes of this process's memory for one client's connection: part of the memory budget.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Bytes of a message head; more is 431. The buffer of one is no larger.
pub(crate) const HEAD_LEN_MAX: usize = 64 * 1024;

/// What hyper takes for a connection, to a client or to an origin, besides bytes that wait: its state
/// and a buffer of 8 KiB (`bench/relay/heads.py` measures it).
pub(crate) const CONNECTION_BYTES: usize = 32 * 1024;

/// Bytes of one connection.
#[derive(Debug, Default)]
pub(crate) struct HttpMemory {
    connections: AtomicUsize,
    /// The buffer of a head that is not complete, before there is a connection of hyper's.
    head: AtomicUsize,
    /// Read since the last message ended.
    read: AtomicUsize,
    /// Not yet taken by the client.
    queued: AtomicUsize,
}

/// A connection of hyper's that counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Arc<HttpMemory>);

impl HttpMemory {
    pub(crate) fn bytes(&self) -> u64 {
        let read = self.read.load(Relaxed).min(HEAD_LEN_MAX);
        let waiting = self.head.load(Relaxed) + read + self.queued.load(Relaxed);
        (self.connections.load(Relaxed) * CONNECTION_BYTES + waiting) as u64
    }

    /// Counts a connection of hyper's.
    pub(crate) fn connection(self: &Arc<Self>) -> Counted {
        self.connections.fetch_add(1, Relaxed);
        Counted(self.clone())
    }

    /// The buffer of an incomplete head has this size now.
    pub(crate) fn set_head(&self, capacity: usize) {
        self.head.store(capacity, Relaxed);
    }

    /// Another part of a message came.
    pub(crate) fn add_read(&self, bytes: usize) {
        self.read.fetch_add(bytes, Relaxed);
    }

    /// What comes next is a head, for all that is known, and not a body.
    pub(crate) fn may_be_head(&self) -> bool {
        self.read.load(Relaxed) < HEAD_LEN_MAX
    }

    /// A message has been read.
    pub(crate) fn end_message(&self) {
        self.read.store(0, Relaxed);
    }

    /// The client takes no more, and so many bytes wait for it.
    pub(crate) fn set_queued(&self, bytes: usize) {
        self.queued.store(bytes, Relaxed);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}
