// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accepting side of striping: the open groups, and the legs that join them.
//!
//! The number of groups is bounded by the sessions that have one, the waiting legs of a group by
//! its size. A leg that names no open group is refused at once, so that nothing waits for a group
//! to be made. A leg to a group that has just ended is late, which is no error: it is closed.

use crate::{config::profile::Profile, stripe::bundle::Bundle};
use longhaul_protocol::convert::{Answer, GroupId, Join, Stripes};
use longhaul_transport::{channel::write_all, leg::Leg};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock, Weak},
};
use tokio::sync::{Notify, oneshot};

/// Groups of all workers.
#[derive(Debug, Default)]
pub(crate) struct IncomingGroups(Mutex<Groups>);

#[derive(Debug, Default)]
struct Groups {
    open: HashMap<GroupId, JoinableGroup>,
    /// The last groups that ended. Legs were on their way to some.
    ended: VecDeque<GroupId>,
}

/// Most ended groups that are remembered: 16 KiB.
const ENDED_MAX: usize = 1024;

impl Groups {
    fn end(&mut self, group: GroupId) {
        self.open.remove(&group);
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(group);
    }
}

#[derive(Debug)]
struct JoinableGroup {
    origin: LegOrigin,
    join_requests: Arc<JoinQueue>,
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
#[derive(Debug)]
struct JoinRequest {
    leg: Leg,
    done: oneshot::Sender<()>,
}

/// Legs that wait for the session. The joins left of the group bound their number.
#[derive(Debug, Default)]
struct JoinQueue {
    requests: Mutex<Vec<JoinRequest>>,
    changed: Notify,
}

impl JoinQueue {
    fn push(&self, request: JoinRequest) {
        self.requests.lock().push(request);
        self.changed.notify_one();
    }

    async fn next(&self) -> JoinRequest {
        loop {
            if let Some(request) = self.requests.lock().pop() {
                return request;
            }
            self.changed.notified().await;
        }
    }
}

/// Permission to join a group.
#[derive(Debug)]
pub(crate) struct JoinTicket(Weak<JoinQueue>);

impl JoinTicket {
    /// Hands the leg over, and returns when it is no longer needed.
    pub(crate) async fn hand_over(self, leg: Leg) {
        let (done, released) = oneshot::channel();
        // Without a queue, the group has ended.
        if let Some(queue) = self.0.upgrade() {
            queue.push(JoinRequest { leg, done });
            drop(queue);
            let _ = released.await;
        }
    }
}

/// Registration of a session's group, removed on drop.
pub(crate) struct GroupRegistration {
    groups: Arc<IncomingGroups>,
    stripes: Stripes,
    first: Leg,
    /// The session's legs, once a second one has joined.
    bundle: OnceLock<Arc<Bundle>>,
    join_requests: Arc<JoinQueue>,
}

impl std::fmt::Debug for GroupRegistration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupRegistration").finish_non_exhaustive()
    }
}

impl Drop for GroupRegistration {
    fn drop(&mut self) {
        self.groups.lock().end(self.stripes.group);
    }
}

impl GroupRegistration {
    /// Registers a group with its first leg. `None` if the identifier is in use.
    pub(crate) fn new(
        groups: &Arc<IncomingGroups>,
        stripes: Stripes,
        origin: LegOrigin,
        first: Leg,
    ) -> Option<Self> {
        let join_requests = Arc::<JoinQueue>::default();
        let mut listed = groups.lock();
        if listed.open.contains_key(&stripes.group) {
            return None;
        }
        let group = JoinableGroup {
            origin,
            join_requests: join_requests.clone(),
            joins_left: stripes.count - 1,
        };
        listed.open.insert(stripes.group, group);
        drop(listed);
        Some(Self {
            groups: groups.clone(),
            stripes,
            first,
            bundle: OnceLock::new(),
            join_requests,
        })
    }

    /// Adds joining legs to the bundle, without end. They follow `profile`.
    pub(crate) async fn accept_joins(&self, profile: &Profile) {
        loop {
            let JoinRequest { leg, done } = self.join_requests.next().await;
            let Ok(leg) = leg.rebind_to_current_runtime() else {
                continue;
            };
            // The first bytes of a new connection always fit into its send buffer.
            if write_all(&leg, &Answer::Accepted.encode()).await.is_ok() {
                self.bundle_of_one(profile).join(leg, Some(done));
            }
        }
    }

    /// Returns the legs, of which there may be only one.
    pub(crate) fn bundle_of_one(&self, profile: &Profile) -> &Arc<Bundle> {
        let legs_max = self.stripes.count.into();
        let new = || Bundle::new(self.first.clone(), legs_max, profile);
        self.bundle.get_or_init(new)
    }

    /// Returns the legs, if there are several.
    pub(crate) fn bundle(&self) -> Option<&Arc<Bundle>> {
        self.bundle.get()
    }

    /// Returns whether each sender chooses the number of legs that it uses.
    pub(crate) fn is_automatic(&self) -> bool {
        self.stripes.automatic
    }
}

impl IncomingGroups {
    /// Returns a ticket for a leg from `origin`, if the group exists, has room, and has the same
    /// origin. If the group has just ended, the ticket leads nowhere.
    pub(crate) fn issue_ticket(&self, join: Join, origin: &LegOrigin) -> Option<JoinTicket> {
        let mut groups = self.lock();
        let Groups { open, ended } = &mut *groups;
        let Some(group) = open.get_mut(&join.group) else {
            return ended.contains(&join.group).then(|| JoinTicket(Weak::new()));
        };
        if group.origin != *origin {
            return None;
        }
        group.joins_left = group.joins_left.checked_sub(1)?;
        Some(JoinTicket(Arc::downgrade(&group.join_requests)))
    }

    fn lock(&self) -> MutexGuard<'_, Groups> {
        self.0.lock()
    }
}
