// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connections that are open now, for those who look at all of them: the memory budget and the
//! status page.

use super::session::Session;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Open connections by number; a number is never used again.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Session>>>,
}

impl Registry {
    /// A number for a new connection.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Lists `session` until the guard is dropped.
    pub(crate) fn enter(&self, session: Arc<Session>) -> Entry<'_> {
        let number = session.number;
        self.open().insert(number, session);
        Entry {
            registry: self,
            number,
        }
    }

    /// All of them, in no order. Do not hold them for long: whoever drops the last hold of a
    /// connection closes its sockets.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.open().values().cloned().collect()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Session>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place in the list.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    registry: &'a Registry,
    number: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.registry.open().remove(&self.number);
    }
}
