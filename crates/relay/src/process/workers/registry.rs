// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connections that are open now, for those who look at all of them, the memory budget and the
//! status page, and for the one who cuts them.

use crate::session::{Session, WhyCut};
use parking_lot::{Mutex, MutexGuard};
use std::{collections::HashMap, sync::Arc};
use tokio::task::AbortHandle;

/// Open connections by number; a number is never used again.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, Connection>,
    /// From now on, whatever is listed is cut.
    cut: bool,
}

#[derive(Debug, Default)]
struct Connection {
    /// Of its task.
    abort: Option<AbortHandle>,
    /// Once it is known whose it is.
    session: Option<Arc<Session>>,
}

impl Registry {
    /// A number for a connection, which is listed until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> Entry {
        let mut open = self.open();
        let number = open.next;
        open.next += 1;
        open.connections.insert(number, Connection::default());
        Entry {
            registry: self.clone(),
            number,
        }
    }

    /// The task of a connection that has entered; nothing if it has left already.
    pub(crate) fn runs_as(&self, number: u64, abort: AbortHandle) {
        let mut open = self.open();
        if open.cut {
            abort.abort();
        }
        if let Some(connection) = open.connections.get_mut(&number) {
            connection.abort = Some(abort);
        }
    }

    /// Ends the tasks of all connections, those of the future included.
    pub(crate) fn cut(&self) {
        let mut open = self.open();
        open.cut = true;
        let tasks = open.connections.values().filter_map(|c| c.abort.as_ref());
        tasks.for_each(AbortHandle::abort);
    }

    /// Ends a connection abnormally, if it is still open, and says why in its record.
    pub(crate) fn cut_one(&self, session: &Session, why: WhyCut) {
        session.is_cut_for(why);
        let abort = {
            let open = self.open();
            let connection = open.connections.get(&session.number);
            connection.and_then(|connection| connection.abort.clone())
        };
        if let Some(abort) = abort {
            abort.abort();
        }
    }

    /// All of them whose client is known, in no order. Do not hold them for long: whoever drops the
    /// last hold of a connection closes its sockets.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        let open = self.open();
        let known = open.connections.values().filter_map(|c| c.session.clone());
        known.collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.open().connections.len()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock()
    }
}

/// A connection's place in the list.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) registry: Arc<Registry>,
    pub(crate) number: u64,
}

impl Entry {
    /// It is known whose connection this is.
    pub(crate) fn is(&self, session: &Arc<Session>) {
        let mut open = self.registry.open();
        if let Some(connection) = open.connections.get_mut(&self.number) {
            connection.session = Some(session.clone());
        }
    }

    /// It has become part of another session's connection, which is listed itself.
    pub(crate) fn is_anothers(&self) {
        let mut open = self.registry.open();
        let connection = open.connections.get_mut(&self.number);
        let left = connection.and_then(|connection| connection.session.take());
        // As in [`Drop`].
        drop(open);
        drop(left);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let left = self.registry.open().connections.remove(&self.number);
        // The last share of a session may be this one: it is let go of without the lock.
        drop(left);
    }
}
