// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requesting side of striping: a connection over one leg, and the legs that join it.

use crate::{
    peers::{connection::read_answer, peer::Peer, pool::PeerPools},
    stripe::{bundle::Bundle, growth::Growth},
};
use longhaul_protocol::{
    convert::{Answer, Join, Stripes},
    failure::Failure,
};
use longhaul_transport::{channel::write_all, leg::Leg};
use std::{
    future::pending,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{sync::watch, task::JoinSet, time::timeout};
use tracing::debug;

/// A connection that further legs may join, and its state.
#[derive(Debug)]
pub(crate) struct OutgoingGroup {
    stripes: Stripes,
    peer: Arc<Peer>,
    first: Leg,
    /// Timeout for connecting, and for an answer.
    timeout: Duration,
    /// Whether the peer has accepted the connection, so that it knows the group.
    accepted: watch::Sender<bool>,
    /// Whether the first leg moves enough for more legs to be worthwhile.
    pub(crate) growth: Growth,
    /// The legs, once a second one has joined.
    bundle: OnceLock<Arc<Bundle>>,
}

impl OutgoingGroup {
    /// Makes the group after the request was sent over `first`.
    pub(crate) fn new(
        stripes: Stripes,
        first: Leg,
        peer: &Arc<Peer>,
        timeout: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            stripes,
            peer: peer.clone(),
            growth: Growth::new(&first),
            first,
            timeout,
            accepted: watch::Sender::default(),
            bundle: OnceLock::new(),
        })
    }

    /// Returns the values needed to make this group again on another thread.
    pub(crate) fn parameters(&self) -> (Stripes, Arc<Peer>) {
        (self.stripes, self.peer.clone())
    }

    /// Records that the peer has accepted the connection.
    pub(crate) fn record_acceptance(&self) {
        self.accepted.send_replace(true);
    }

    /// Returns the legs, if there are several.
    pub(crate) fn bundle(&self) -> Option<&Arc<Bundle>> {
        self.bundle.get()
    }

    /// Returns whether each sender chooses the number of legs that it uses.
    pub(crate) fn is_automatic(&self) -> bool {
        self.stripes.automatic
    }

    /// Returns the number of legs beside the first.
    pub(crate) fn further_legs(&self) -> u8 {
        self.stripes.count - 1
    }

    /// Waits until further legs may be worthwhile.
    pub(crate) async fn wait_for_growth(&self) {
        if self.is_automatic() {
            self.growth.wait().await;
            let mut accepted = self.accepted.subscribe();
            let _ = accepted.wait_for(|yes| *yes).await;
        }
    }

    /// Opens the other legs at once. They join as soon as the peer has accepted the connection. Legs that fail are left
    /// out.
    pub(crate) async fn join_legs(&self, peer_pools: &Arc<PeerPools>) {
        let mut tasks = JoinSet::new();
        for index in 1..self.stripes.count {
            let task = JoinTask {
                join: Join {
                    group: self.stripes.group,
                    index,
                },
                peer: self.peer.clone(),
                timeout: self.timeout,
                peer_pools: peer_pools.clone(),
            };
            tasks.spawn(task.run(self.accepted.subscribe()));
        }
        let mut missing = Vec::new();
        while let Some(outcome) = tasks.join_next().await {
            match outcome.unwrap_or(Err(Failure::Other)) {
                Ok(leg) => {
                    debug!(peer = self.peer.config.name, "stream joined");
                    self.join(leg);
                }
                Err(failure) => {
                    debug!(
                        peer = self.peer.config.name,
                        "stream did not join: {failure}"
                    );
                    missing.push(failure);
                }
            }
        }
        self.peer.record_missing_streams(&missing);
        match self.bundle() {
            Some(bundle) => bundle.close(),
            None => self.peer.record_no_striping(),
        }
        pending::<()>().await;
    }

    fn join(&self, leg: Leg) {
        self.bundle_of_one().join(leg, None);
    }

    /// Returns the legs, of which there may be only one.
    pub(crate) fn bundle_of_one(&self) -> &Arc<Bundle> {
        let legs_max = self.stripes.count.into();
        let new = || Bundle::new(self.first.clone(), legs_max, &self.peer.config.profile);
        self.bundle.get_or_init(new)
    }
}

/// Task that joins one leg.
struct JoinTask {
    join: Join,
    peer: Arc<Peer>,
    timeout: Duration,
    peer_pools: Arc<PeerPools>,
}

impl JoinTask {
    /// Joins a leg. A pooled connection may be dead: then a new one is opened.
    async fn run(self, mut accepted: watch::Receiver<bool>) -> Result<Leg, Failure> {
        if let Some(leg) = self.peer_pools.take(&self.peer)
            && let Ok(leg) = self.join(leg, &mut accepted).await
        {
            return Ok(leg);
        }
        let leg = self.peer.open_further_leg(self.timeout).await?;
        self.join(leg, &mut accepted).await
    }

    /// Sends the join message once the group is accepted.
    async fn join(&self, leg: Leg, accepted: &mut watch::Receiver<bool>) -> Result<Leg, Failure> {
        let gone = |_| Failure::Other;
        accepted.wait_for(|yes| *yes).await.map_err(gone)?;
        let join = async {
            write_all(&leg, &self.join.encode()).await.ok()?;
            read_answer(&leg).await.ok()
        };
        match timeout(self.timeout, join).await {
            Ok(Some((Answer::Accepted, _))) => Ok(leg),
            _ => Err(Failure::PeerProtocol),
        }
    }
}
