// SPDX-License-Identifier: MIT OR Apache-2.0
//! All listeners at work, those that a reload has closed included: their connections go on, and
//! what they have counted stays in the total.

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

/// The listeners; a reload replaces them.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    list: RwLock<List>,
    addresses: ListenAddresses,
}

#[derive(Debug, Default)]
struct List {
    open: Vec<Arc<Door>>,
    /// Closed, with connections that go on; no more than there are connections.
    closing: Vec<Arc<Door>>,
    /// What those counted that are gone.
    past: Counts,
}

impl Doors {
    pub(crate) fn new(open: Vec<Arc<Door>>) -> Self {
        let doors = Self::default();
        doors.replace(open, []);
        doors
    }

    /// Those that accept.
    pub(crate) fn open(&self) -> Vec<Arc<Door>> {
        let list = self.list.read();
        list.open.clone()
    }

    /// Those that accept from now on, and those that do no more.
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

    /// Where connections would reach this relay.
    pub(crate) fn addresses(&self) -> &ListenAddresses {
        &self.addresses
    }

    /// The counters of each, and the total since the start.
    pub(crate) fn counts(&self) -> (Vec<ListenerCounts>, Counts) {
        let list = self.list.read();
        let doors = list.open.iter().chain(&list.closing);
        let each: Vec<_> = doors.map(|door| door.counts()).collect();
        let total = counters::total(&list.past, &each);
        (each, total)
    }
}

impl Doors {
    /// How long the connections of each took. Two of one name, of which one is closing, are one.
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
            // A worker may still hand over what was in the listen queue.
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
    fn the_total_never_shrinks() {
        let (kept, gone) = (door(), door());
        let doors = Doors::new(vec![kept.clone(), gone.clone()]);
        drop(kept.counters.connection());
        drop(gone.counters.connection());
        doors.replace(vec![kept.clone()], [gone.clone()]);
        let (each, total) = doors.counts();
        assert_eq!((each.len(), total.accepted), (2, 2), "it may still count");
        drop(gone);
        doors.replace(vec![kept.clone()], []);
        let (each, total) = doors.counts();
        assert_eq!((each.len(), total.accepted), (1, 2));
    }
}
