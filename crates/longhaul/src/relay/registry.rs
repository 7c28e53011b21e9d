// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connections that are open now, for those who look at all of them: the memory budget and the
//! status page.

use super::session::Session;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Open connections by number; a number is never used again.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    sessions: HashMap<u64, Arc<Session>>,
}

impl Registry {
    /// Lists `session` until the guard is dropped.
    pub(crate) fn enter(&self, session: Arc<Session>) -> Entry<'_> {
        let mut open = self.open();
        let number = open.next;
        open.next += 1;
        open.sessions.insert(number, session);
        Entry {
            registry: self,
            number,
        }
    }

    /// All of them, with their numbers, in no order.
    pub(crate) fn all(&self) -> Vec<(u64, Arc<Session>)> {
        let open = self.open();
        let pair = |(number, session): (&u64, &Arc<Session>)| (*number, session.clone());
        open.sessions.iter().map(pair).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.open().sessions.len()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.registry.open().sessions.remove(&self.number);
    }
}
