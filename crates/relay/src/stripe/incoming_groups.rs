// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accepting side of striping: the open groups, and the legs that join them.
//!
//! The number of groups is bounded by the sessions that have one, the waiting legs of a group by
//! its size. A leg that names no open group is refused at once, so that nothing waits for a group
//! to be made.

use crate::stripe::{bundle::Bundle, receiver::StripeReceiver};
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
pub(crate) struct IncomingGroups(Mutex<HashMap<GroupId, JoinableGroup>>);

#[derive(Debug)]
struct JoinableGroup {
    origin: LegOrigin,
    join_requests: Sender<JoinRequest>,
    /// Number of legs that may still join.
    joins_left: u8,
}

/// Origin of a leg. All legs of a group must have the same origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LegOrigin {
    /// Address of the listener.
    pub(crate) listener: SocketAddr,
    pub(crate) source: IpAddr,
    /// Certificate of the other relay, with TLS.
    pub(crate) certificate: Option<Vec<u8>>,
}

/// An admitted leg, on its way to the session.
struct JoinRequest {
    leg: Leg,
    done: oneshot::Sender<()>,
}

/// Permission to join a group.
#[derive(Debug)]
pub(crate) struct JoinTicket(Sender<JoinRequest>);

impl JoinTicket {
    /// Hands the leg over, and returns when it is no longer needed.
    pub(crate) async fn hand_over(self, leg: Leg) {
        let (done, released) = oneshot::channel();
        // The channel has room for every ticket; an error means that the group has ended.
        if self.0.try_send(JoinRequest { leg, done }).is_ok() {
            drop(self.0);
            let _ = released.await;
        }
    }
}

/// Registration of a session's group, removed on drop.
pub(crate) struct GroupRegistration {
    groups: Arc<IncomingGroups>,
    id: GroupId,
    pub(crate) bundle: Arc<Bundle>,
    /// Receiving half of the bundle. It lasts for the session, since several upstream legs may serve one
    /// client in turn.
    pub(crate) receiver: AsyncMutex<StripeReceiver>,
    join_requests: AsyncMutex<Receiver<JoinRequest>>,
}

impl std::fmt::Debug for GroupRegistration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupRegistration").finish_non_exhaustive()
    }
}

impl Drop for GroupRegistration {
    fn drop(&mut self) {
        self.groups.lock().remove(&self.id);
    }
}

impl GroupRegistration {
    /// Registers a group. `early_bytes` were already read from its first leg. `None` if the
    /// identifier is in use.
    pub(crate) fn new(
        groups: &Arc<IncomingGroups>,
        stripes: Stripes,
        origin: LegOrigin,
        (bundle, early_bytes): (Arc<Bundle>, Vec<u8>),
    ) -> Option<Self> {
        let others = stripes.count - 1;
        let (request_sender, request_receiver) = channel(others.into());
        let mut listed = groups.lock();
        if listed.contains_key(&stripes.group) {
            return None;
        }
        let group = JoinableGroup {
            origin,
            join_requests: request_sender,
            joins_left: others,
        };
        listed.insert(stripes.group, group);
        drop(listed);
        Some(Self {
            groups: groups.clone(),
            id: stripes.group,
            bundle,
            receiver: StripeReceiver::new(early_bytes).into(),
            join_requests: request_receiver.into(),
        })
    }

    /// Adds joining legs to the bundle, without end.
    pub(crate) async fn accept_joins(&self) {
        let mut requests = self.join_requests.lock().await;
        while let Some(JoinRequest { leg, done }) = requests.recv().await {
            let Ok(leg) = leg.rebind_to_current_runtime() else {
                continue;
            };
            // The first bytes of a new connection always fit into its send buffer.
            if write_all(&leg, &Answer::Accepted.encode()).await.is_ok() {
                self.bundle.join(leg, Some(done));
            }
        }
        pending::<()>().await;
    }
}

impl IncomingGroups {
    /// Returns a ticket for a leg from `origin`, if the group exists, has room, and has the same
    /// origin.
    pub(crate) fn issue_ticket(&self, join: Join, origin: &LegOrigin) -> Option<JoinTicket> {
        let mut groups = self.lock();
        let group = groups.get_mut(&join.group)?;
        if group.origin != *origin {
            return None;
        }
        group.joins_left = group.joins_left.checked_sub(1)?;
        Some(JoinTicket(group.join_requests.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<GroupId, JoinableGroup>> {
        self.0.lock()
    }
}
