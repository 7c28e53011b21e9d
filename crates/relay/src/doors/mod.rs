// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running listeners, closed ones included as long as they have connections. Counters of listeners
//! that are gone stay in the total.

pub(crate) mod door;
pub(crate) mod opening;
pub(crate) mod ready;

use crate::{doors::door::Door, records::counters, route::local::ListenAddresses};
use longhaul_admin::{
    record::ListenerTimes,
    relay_record::{Counts, ListenerCounts},
};
use parking_lot::RwLock;
use std::{collections::BTreeSet, sync::Arc};

/// All running listeners. A reload replaces the open ones.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    list: RwLock<List>,
    addresses: ListenAddresses,
}

#[derive(Debug, Default)]
struct List {
    open: Vec<Arc<Door>>,
    /// Closed listeners with open connections; never more than there are connections.
    closing: Vec<Arc<Door>>,
    /// Sum of the counters of listeners that are gone.
    past: Counts,
}

impl Doors {
    pub(crate) fn new(open: Vec<Arc<Door>>) -> Self {
        let doors = Self::default();
        doors.replace(open, []);
        doors
    }

    /// Returns the listeners that accept.
    pub(crate) fn open(&self) -> Vec<Arc<Door>> {
        let list = self.list.read();
        list.open.clone()
    }

    /// Replaces the listeners that accept, and keeps `closed` until their connections end.
    pub(crate) fn replace(
        &self,
        open: Vec<Arc<Door>>,
        closed: impl IntoIterator<Item = Arc<Door>>,
    ) {
        let mut list = self.list.write();
        self.addresses.set(open.iter().map(|door| door.address));
        list.open = open;
        list.closing.extend(closed);
        list.forget_idle();
    }

    /// Addresses on which this relay accepts connections.
    pub(crate) fn addresses(&self) -> &ListenAddresses {
        &self.addresses
    }

    /// Counters of each listener, and the total since the start.
    pub(crate) fn counts(&self) -> (Vec<ListenerCounts>, Counts) {
        let list = self.list.read();
        let doors = list.open.iter().chain(&list.closing);
        let each: Vec<_> = doors.map(|door| door.counts()).collect();
        let total = counters::total(&list.past, &each);
        (each, total)
    }
}

impl Doors {
    /// Connection durations by listener. An open and a closing listener of the same name count as
    /// one.
    pub(crate) fn times(&self) -> Vec<ListenerTimes> {
        let list = self.list.read();
        let mut names = BTreeSet::new();
        let doors = list.open.iter().chain(&list.closing);
        let doors = doors.filter(|door| names.insert(door.name()));
        doors
            .map(|door| door.counters.times.read(door.name()))
            .collect()
    }
}

impl List {
    fn forget_idle(&mut self) {
        let doors = std::mem::take(&mut self.closing);
        for door in doors {
            // A worker may still accept connections from the listen queue.
            if Arc::strong_count(&door) > 1 {
                self.closing.push(door);
            } else {
                self.past.add(&door.counters.read());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::listener::tests::listener;

    fn door() -> Arc<Door> {
        let listener = listener("127.0.0.1:1", "");
        let address = listener.address;
        Door::new(listener, address).into()
    }

    #[test]
    fn total_keeps_counters_of_closed_listeners() {
        let (kept, gone) = (door(), door());
        let doors = Doors::new(vec![kept.clone(), gone.clone()]);
        drop(kept.counters.connection());
        drop(gone.counters.connection());
        doors.replace(vec![kept.clone()], [gone.clone()]);
        let (each, total) = doors.counts();
        assert_eq!(
            (each.len(), total.accepted),
            (2, 2),
            "a closing listener may still count"
        );
        drop(gone);
        doors.replace(vec![kept.clone()], []);
        let (each, total) = doors.counts();
        assert_eq!((each.len(), total.accepted), (1, 2));
    }
}
