// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accepting side of striping: the open groups, and the legs that join them.
//!
//! The number of groups is bounded by the sessions that have one, the waiting legs of a group by
//! its size. A leg that names no open group is refused at once, so that nothing waits for a group
//! to be made.

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

/// Groups of all workers.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<HashMap<GroupId, Group>>);

#[derive(Debug)]
struct Group {
    entry: Entry,
    seats: Sender<Newcomer>,
    /// Number of legs that may still join.
    free: u8,
}

/// Origin of a leg. All legs of a group must have the same origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Address of the listener.
    pub(crate) listener: SocketAddr,
    pub(crate) source: IpAddr,
    /// Certificate of the other relay, with TLS.
    pub(crate) certificate: Option<Vec<u8>>,
}

/// An admitted leg, on its way to the session.
struct Newcomer {
    leg: Leg,
    seat: oneshot::Sender<()>,
}

/// Permission to join a group.
#[derive(Debug)]
pub(crate) struct Seat(Sender<Newcomer>);

impl Seat {
    /// Hands the leg over, and returns when it is no longer needed.
    pub(crate) async fn take(self, leg: Leg) {
        let (seat, left) = oneshot::channel();
        // The channel has room for every ticket; an error means that the group has ended.
        if self.0.try_send(Newcomer { leg, seat }).is_ok() {
            drop(self.0);
            let _ = left.await;
        }
    }
}

/// Registration of a session's group, removed on drop.
pub(crate) struct Founder {
    groups: Arc<Groups>,
    id: GroupId,
    pub(crate) trunk: Arc<Trunk>,
    /// Receiving half of the bundle. It lasts for the session, since several far legs may serve one
    /// client in turn.
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
    /// Registers a group. `ahead` was already read from its first leg. `None` if the identifier is
    /// in use.
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

    /// Adds joining legs to the bundle, without end.
    pub(crate) async fn welcome(&self) {
        let mut newcomers = self.newcomers.lock().await;
        while let Some(Newcomer { leg, seat }) = newcomers.recv().await {
            let Ok(leg) = leg.at_home_here() else {
                continue;
            };
            // The first bytes of a new connection always fit into its send buffer.
            if write_all(&leg, &Answer::Accepted.encode()).await.is_ok() {
                self.trunk.join(leg, Some(seat));
            }
        }
        pending::<()>().await;
    }
}

impl Groups {
    /// Returns a ticket for a leg from `entry`, if the group exists, has room, and has the same
    /// origin.
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
