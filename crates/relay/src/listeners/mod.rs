// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running listeners, closed ones included as long as they have connections. Counters of listeners
//! that are gone stay in the total.

pub(crate) mod listener;
pub(crate) mod preconnected;
pub(crate) mod sockets;

use crate::{listeners::listener::Listener, records::counters, route::local::ListenAddresses};
use longhaul_admin::{
    record::ListenerTimes,
    relay_record::{Counts, ListenerCounts},
};
use parking_lot::RwLock;
use std::{collections::BTreeSet, sync::Arc};

/// All running listeners. A reload replaces the open ones.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    list: RwLock<List>,
    addresses: ListenAddresses,
}

#[derive(Debug, Default)]
struct List {
    open: Vec<Arc<Listener>>,
    /// Closed listeners with open connections; never more than there are connections.
    closing: Vec<Arc<Listener>>,
    /// Sum of the counters of listeners that are gone.
    past: Counts,
}

impl Listeners {
    pub(crate) fn new(open: Vec<Arc<Listener>>) -> Self {
        let listeners = Self::default();
        listeners.replace(open, []);
        listeners
    }

    /// Returns the listeners that accept.
    pub(crate) fn open(&self) -> Vec<Arc<Listener>> {
        let list = self.list.read();
        list.open.clone()
    }

    /// Replaces the listeners that accept, and keeps `closed` until their connections end.
    pub(crate) fn replace(
        &self,
        open: Vec<Arc<Listener>>,
        closed: impl IntoIterator<Item = Arc<Listener>>,
    ) {
        let mut list = self.list.write();
        self.addresses
            .set(open.iter().map(|listener| listener.address));
        list.open = open;
        list.closing.extend(closed);
        list.drop_unused();
    }

    /// Addresses on which this relay accepts connections.
    pub(crate) fn addresses(&self) -> &ListenAddresses {
        &self.addresses
    }

    /// Counters of each listener, and the total since the start.
    pub(crate) fn counts(&self) -> (Vec<ListenerCounts>, Counts) {
        let list = self.list.read();
        let listeners = list.open.iter().chain(&list.closing);
        let each: Vec<_> = listeners.map(|listener| listener.counts()).collect();
        let total = counters::total(&list.past, &each);
        (each, total)
    }
}

impl Listeners {
    /// Connection durations by listener. An open and a closing listener of the same name count as
    /// one.
    pub(crate) fn durations(&self) -> Vec<ListenerTimes> {
        let list = self.list.read();
        let mut names = BTreeSet::new();
        let listeners = list.open.iter().chain(&list.closing);
        let listeners = listeners.filter(|listener| names.insert(listener.name()));
        listeners
            .map(|listener| listener.counters.times.read(listener.name()))
            .collect()
    }
}

impl List {
    fn drop_unused(&mut self) {
        let listeners = std::mem::take(&mut self.closing);
        for listener in listeners {
            // A worker may still accept connections from the listen queue.
            if Arc::strong_count(&listener) > 1 {
                self.closing.push(listener);
            } else {
                self.past.add(&listener.counters.read());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::listener::tests::listener as listener_config;

    fn listener() -> Arc<Listener> {
        let config = listener_config("127.0.0.1:1", "");
        let address = config.address;
        Listener::new(config, address).into()
    }

    #[test]
    fn total_keeps_counters_of_closed_listeners() {
        let (open, closed) = (listener(), listener());
        let listeners = Listeners::new(vec![open.clone(), closed.clone()]);
        drop(open.counters.count_connection());
        drop(closed.counters.count_connection());
        listeners.replace(vec![open.clone()], [closed.clone()]);
        let (each, total) = listeners.counts();
        assert_eq!(
            (each.len(), total.accepted),
            (2, 2),
            "a closing listener may still count"
        );
        drop(closed);
        listeners.replace(vec![open.clone()], []);
        let (each, total) = listeners.counts();
        assert_eq!((each.len(), total.accepted), (1, 2));
    }
}
