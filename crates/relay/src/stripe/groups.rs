// SPDX-License-Identifier: MIT OR Apache-2.0
//! The asked side: which groups there are, and who may join them.
//!
//! Bounded by the sessions that have one; a group's waiting legs by its size. A leg that names no
//! group of this moment is refused at once, so that nothing ever waits for a group to be made.

use crate::stripe::{gatherer::Gatherer, trunk::Trunk};
use longhaul_protocol::convert::{Answer, GroupId, Join, Stripes};
use longhaul_transport::{channel::write_all, leg::Leg};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    future::pending,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};
use tokio::sync::{
    Mutex as AsyncMutex,
    mpsc::{Receiver, Sender, channel},
    oneshot,
};

/// The groups of all workers.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<HashMap<GroupId, Group>>);

#[derive(Debug)]
struct Group {
    entry: Entry,
    seats: Sender<Newcomer>,
    /// Legs that it may still have.
    free: u8,
}

/// How a leg came in: all of one group come the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The listener.
    pub(crate) door: SocketAddr,
    pub(crate) source: IpAddr,
    /// The other relay's certificate, where there is TLS.
    pub(crate) certificate: Option<Vec<u8>>,
}

/// A leg that was let in, on its way to the session.
struct Newcomer {
    leg: Leg,
    seat: oneshot::Sender<()>,
}

/// The permission to join.
#[derive(Debug)]
pub(crate) struct Seat(Sender<Newcomer>);

impl Seat {
    /// Hands the leg over, and returns when it is needed no more.
    pub(crate) async fn take(self, leg: Leg) {
        let (seat, left) = oneshot::channel();
        // There is room for all that were given a seat; an error means that the group is gone.
        if self.0.try_send(Newcomer { leg, seat }).is_ok() {
            drop(self.0);
            let _ = left.await;
        }
    }
}

/// A session's group, listed until this is dropped.
pub(crate) struct Founder {
    groups: Arc<Groups>,
    id: GroupId,
    pub(crate) trunk: Arc<Trunk>,
    /// The receiving half of it; kept here because one client may be served by several ways out in turn.
    pub(crate) receiving: AsyncMutex<Gatherer>,
    newcomers: AsyncMutex<Receiver<Newcomer>>,
}

impl std::fmt::Debug for Founder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Founder").finish_non_exhaustive()
    }
}

impl Drop for Founder {
    fn drop(&mut self) {
        self.groups.lock().remove(&self.id);
    }
}

impl Founder {
    /// Lists a group, of whose first leg `ahead` was read already; `None` if there is one of that name.
    pub(crate) fn new(
        groups: &Arc<Groups>,
        stripes: Stripes,
        entry: Entry,
        (trunk, ahead): (Arc<Trunk>, Vec<u8>),
    ) -> Option<Self> {
        let others = stripes.count - 1;
        let (seats, newcomers) = channel(others.into());
        let mut listed = groups.lock();
        if listed.contains_key(&stripes.group) {
            return None;
        }
        let group = Group {
            entry,
            seats,
            free: others,
        };
        listed.insert(stripes.group, group);
        drop(listed);
        Some(Self {
            groups: groups.clone(),
            id: stripes.group,
            trunk,
            receiving: Gatherer::new(ahead).into(),
            newcomers: newcomers.into(),
        })
    }

    /// Lets legs into the trunk, for ever.
    pub(crate) async fn welcome(&self) {
        let mut newcomers = self.newcomers.lock().await;
        while let Some(Newcomer { leg, seat }) = newcomers.recv().await {
            let Ok(leg) = leg.at_home_here() else {
                continue;
            };
            // The first bytes of a new connection always find room.
            if write_all(&leg, &Answer::Accepted.encode()).await.is_ok() {
                self.trunk.join(leg, Some(seat));
            }
        }
        pending::<()>().await;
    }
}

impl Groups {
    /// A seat for a leg that came in by `entry`, if the group is there, has room, and came in the
    /// same way.
    pub(crate) fn seat(&self, join: Join, entry: &Entry) -> Option<Seat> {
        let mut groups = self.lock();
        let group = groups.get_mut(&join.group)?;
        if group.entry != *entry {
            return None;
        }
        group.free = group.free.checked_sub(1)?;
        Some(Seat(group.seats.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<GroupId, Group>> {
        self.0.lock()
    }
}
