// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requesting side of striping: a request over one leg, and the legs that join it.

use crate::{
    peers::{connection::read_answer, peer::Peer, pool::PeerPools},
    stripe::{bundle::Bundle, receiver::StripeReceiver},
};
use longhaul_protocol::{
    convert::{Answer, Join, Stripes},
    failure::Failure,
    stripe::{Frame, PIECE_LEN},
};
use longhaul_transport::{channel::write_all, leg::Leg};
use parking_lot::{Mutex, MutexGuard};
use std::{
    future::pending,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{
    sync::{Mutex as AsyncMutex, watch},
    task::JoinSet,
    time::timeout,
};

/// A request for several legs, and its state.
#[derive(Debug)]
pub(crate) struct OutgoingGroup {
    stripes: Stripes,
    peer: Arc<Peer>,
    /// Timeout for connecting, and for an answer.
    timeout: Duration,
    pub(crate) bundle: Arc<Bundle>,
    /// Receiving half of the bundle.
    pub(crate) receiver: AsyncMutex<StripeReceiver>,
    /// Bytes of the stream that were sent before the transfer began.
    early_bytes_sent: AtomicUsize,
    pub(crate) replay: ReplayBuffer,
    /// Whether the peer has refused groups as unsupported.
    unsupported: AtomicBool,
}

impl OutgoingGroup {
    /// Makes the group after the request and `early_bytes_sent` bytes of the stream were sent over
    /// `first`.
    pub(crate) fn new(
        stripes: Stripes,
        first: Leg,
        early_bytes_sent: usize,
        peer: &Arc<Peer>,
        timeout: Duration,
    ) -> Arc<Self> {
        let legs_max = stripes.count.into();
        Arc::new(Self {
            stripes,
            peer: peer.clone(),
            timeout,
            bundle: Bundle::new(first, legs_max, &peer.config.profile),
            receiver: StripeReceiver::new(Vec::new()).into(),
            early_bytes_sent: early_bytes_sent.into(),
            replay: ReplayBuffer::default(),
            unsupported: AtomicBool::new(false),
        })
    }

    /// Returns the values needed to make this group again on another thread.
    pub(crate) fn parameters(&self) -> (Stripes, Arc<Peer>) {
        (self.stripes, self.peer.clone())
    }

    /// Sends the client's first bytes over the first leg, before the transfer begins.
    pub(crate) async fn send_early_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE_LEN) {
            let (offset, len) = (self.early_bytes_sent() as u64, piece.len() as u32);
            let header = Frame::Data { offset, len }.encode();
            write_all(&self.bundle.first().leg, &[&header, piece].concat()).await?;
            self.early_bytes_sent.fetch_add(piece.len(), Relaxed);
        }
        Ok(())
    }

    pub(crate) fn early_bytes_sent(&self) -> usize {
        self.early_bytes_sent.load(Relaxed)
    }

    /// Records, for later requests too, that the peer does not support groups.
    pub(crate) fn mark_unsupported(&self) {
        self.unsupported.store(true, Relaxed);
        self.peer.record_no_striping();
    }

    /// Returns the client's bytes since the request, if the request may be repeated over a single
    /// leg because the peer has refused to read it.
    pub(crate) fn take_replay(&self) -> Option<Vec<u8>> {
        self.unsupported.load(Relaxed).then(|| self.replay.take())
    }

    /// Opens the other legs at once. They join as soon as `accepted` reports that the peer knows
    /// the group. Legs that fail are left out.
    pub(crate) async fn join_legs(
        &self,
        peer_pools: &Arc<PeerPools>,
        accepted: watch::Receiver<bool>,
    ) {
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
            tasks.spawn(task.run(accepted.clone()));
        }
        let mut missing = Vec::new();
        while let Some(outcome) = tasks.join_next().await {
            match outcome.unwrap_or(Err(Failure::Other)) {
                Ok(leg) => self.bundle.join(leg, None),
                Err(failure) => missing.push(failure),
            }
        }
        self.peer.record_missing_streams(&missing);
        self.bundle.close();
        pending::<()>().await;
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

/// Copy of the client's bytes that were sent before the peer's answer, for the case that the peer
/// does not support groups. At most [`ReplayBuffer::MAX`] bytes are sent before the answer: more
/// than the initial window of a new leg anyway.
#[derive(Debug, Default)]
pub(crate) struct ReplayBuffer(Mutex<ReplayState>);

#[derive(Debug, Default)]
struct ReplayState {
    bytes: Vec<u8>,
    is_accepted: bool,
    waker: Option<Waker>,
}

impl ReplayBuffer {
    const MAX: usize = 64 * 1024;

    /// Returns the number of bytes that may be sent now. `None`: no limit, and no copy is needed.
    pub(crate) fn bytes_left(&self) -> Option<usize> {
        let state = self.state();
        (!state.is_accepted).then(|| Self::MAX - state.bytes.len())
    }

    pub(crate) fn append(&self, bytes: &[u8]) {
        self.state().bytes.extend(bytes);
    }

    /// Records that the peer has accepted, and drops the copy.
    pub(crate) fn accept(&self) {
        let mut state = self.state();
        state.is_accepted = true;
        state.bytes = Vec::new();
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Ready when the peer has accepted.
    pub(crate) fn poll_accepted(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        match state.is_accepted {
            true => Poll::Ready(()),
            false => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.state().bytes)
    }

    fn state(&self) -> MutexGuard<'_, ReplayState> {
        self.0.lock()
    }
}
