// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registry of open connections, for the memory budget, the status page and the shutdown.

use crate::session::{CutReason, Session};
use parking_lot::{Mutex, MutexGuard};
use std::{collections::HashMap, sync::Arc};
use tokio::task::AbortHandle;

/// Open connections by number. A number is never used again.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<RegistryState>);

#[derive(Debug, Default)]
struct RegistryState {
    next_number: u64,
    connections: HashMap<u64, Connection>,
    /// Whether all connections are cut, later ones included.
    is_cut: bool,
}

#[derive(Debug, Default)]
struct Connection {
    /// Handle that aborts the connection's task.
    abort: Option<AbortHandle>,
    /// Session, once the client is known.
    session: Option<Arc<Session>>,
}

impl Registry {
    /// Returns a number for a connection, which is registered until the guard is dropped.
    pub(crate) fn register(self: &Arc<Self>) -> Registration {
        let mut state = self.state();
        let number = state.next_number;
        state.next_number += 1;
        state.connections.insert(number, Connection::default());
        Registration {
            registry: self.clone(),
            number,
        }
    }

    /// Stores the task of a registered connection. Does nothing if the connection has ended.
    pub(crate) fn set_task(&self, number: u64, abort: AbortHandle) {
        let mut state = self.state();
        if state.is_cut {
            abort.abort();
        }
        if let Some(connection) = state.connections.get_mut(&number) {
            connection.abort = Some(abort);
        }
    }

    /// Aborts the tasks of all connections, later ones included.
    pub(crate) fn cut_all(&self) {
        let mut open = self.state();
        open.is_cut = true;
        let tasks = open.connections.values().filter_map(|c| c.abort.as_ref());
        tasks.for_each(AbortHandle::abort);
    }

    /// Aborts one connection if it is still open, and stores the reason for its record.
    pub(crate) fn cut(&self, session: &Session, reason: CutReason) {
        session.set_cut_reason(reason);
        let abort = {
            let open = self.state();
            let connection = open.connections.get(&session.records.number);
            connection.and_then(|connection| connection.abort.clone())
        };
        if let Some(abort) = abort {
            abort.abort();
        }
    }

    /// Returns all connections whose client is known, unordered. Callers should drop them soon: the
    /// last owner of a session closes its sockets.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        let open = self.state();
        let known = open.connections.values().filter_map(|c| c.session.clone());
        known.collect()
    }

    /// Returns the number of connections.
    pub(crate) fn len(&self) -> usize {
        self.state().connections.len()
    }

    fn state(&self) -> MutexGuard<'_, RegistryState> {
        self.0.lock()
    }
}

/// Registration of a connection, removed on drop.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) registry: Arc<Registry>,
    pub(crate) number: u64,
}

impl Registration {
    /// Stores the session once the client is known.
    pub(crate) fn set_session(&self, session: &Arc<Session>) {
        let mut open = self.registry.state();
        if let Some(connection) = open.connections.get_mut(&self.number) {
            connection.session = Some(session.clone());
        }
    }

    /// Removes the session: its leg is now part of another session, which has its own registration.
    pub(crate) fn clear_session(&self) {
        let mut open = self.registry.state();
        let connection = open.connections.get_mut(&self.number);
        let left = connection.and_then(|connection| connection.session.take());
        // Unlocked first, as in [`Drop`].
        drop(open);
        drop(left);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let left = self.registry.state().connections.remove(&self.number);
        // This may be the last reference to the session: it is dropped without the lock.
        drop(left);
    }
}
