// SPDX-License-Identifier: MIT OR Apache-2.0
//! The asking side: a request over one leg, and the legs that join it.

use crate::{
    peers::{connection::answer, peer::Peer, pool::Ready},
    stripe::{gatherer::Gatherer, trunk::Trunk},
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

/// A request for several legs, and what is known of its fate.
#[derive(Debug)]
pub(crate) struct Group {
    stripes: Stripes,
    peer: Arc<Peer>,
    /// For connecting, and for an answer.
    limit: Duration,
    pub(crate) trunk: Arc<Trunk>,
    /// The receiving half of it.
    pub(crate) receiving: AsyncMutex<Gatherer>,
    /// Bytes of the stream that left before the transfer began.
    ahead: AtomicUsize,
    pub(crate) kept: Kept,
    /// The peer has said that it knows no groups.
    unsupported: AtomicBool,
}

impl Group {
    /// After the request and `ahead` bytes of the stream have left over `first`.
    pub(crate) fn new(
        stripes: Stripes,
        first: Leg,
        ahead: usize,
        peer: &Arc<Peer>,
        limit: Duration,
    ) -> Arc<Self> {
        let legs_max = stripes.count.into();
        Arc::new(Self {
            stripes,
            peer: peer.clone(),
            limit,
            trunk: Trunk::new(first, legs_max, &peer.config.profile),
            receiving: Gatherer::new(Vec::new()).into(),
            ahead: ahead.into(),
            kept: Kept::default(),
            unsupported: AtomicBool::new(false),
        })
    }

    /// What makes the same group anew, on another thread.
    pub(crate) fn plan(&self) -> (Stripes, Arc<Peer>) {
        (self.stripes, self.peer.clone())
    }

    /// Sends the client's first bytes over the first leg, before the transfer begins.
    pub(crate) async fn send_first(&self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE_LEN) {
            let (offset, len) = (self.ahead() as u64, piece.len() as u32);
            let header = Frame::Data { offset, len }.encode();
            write_all(&self.trunk.first().leg, &[&header, piece].concat()).await?;
            self.ahead.fetch_add(piece.len(), Relaxed);
        }
        Ok(())
    }

    pub(crate) fn ahead(&self) -> usize {
        self.ahead.load(Relaxed)
    }

    /// Notes, for later requests too, that the peer knows no groups.
    pub(crate) fn is_unsupported(&self) {
        self.unsupported.store(true, Relaxed);
        self.peer.refuse_stripes();
    }

    /// What the client has sent since the request, if the same request may be made over one leg:
    /// the peer has refused to read it.
    pub(crate) fn take_back(&self) -> Option<Vec<u8>> {
        self.unsupported
            .load(Relaxed)
            .then(|| self.kept.take_back())
    }

    /// Opens the other legs at once, and lets them join as soon as `accepted` says that the peer
    /// knows the group. Those that can't are done without.
    pub(crate) async fn gather(&self, ready: &Arc<Ready>, accepted: watch::Receiver<bool>) {
        let mut joining = JoinSet::new();
        for index in 1..self.stripes.count {
            let joiner = Joiner {
                join: Join {
                    group: self.stripes.group,
                    index,
                },
                peer: self.peer.clone(),
                limit: self.limit,
                ready: ready.clone(),
            };
            joining.spawn(joiner.run(accepted.clone()));
        }
        let mut missing = Vec::new();
        while let Some(outcome) = joining.join_next().await {
            match outcome.unwrap_or(Err(Failure::Other)) {
                Ok(leg) => self.trunk.join(leg, None),
                Err(failure) => missing.push(failure),
            }
        }
        self.peer.note_missing_streams(&missing);
        self.trunk.close_entry();
        pending::<()>().await;
    }
}

/// One leg that is to join.
struct Joiner {
    join: Join,
    peer: Arc<Peer>,
    limit: Duration,
    ready: Arc<Ready>,
}

impl Joiner {
    /// A leg that stood ready may have died unnoticed: then a new one has a try.
    async fn run(self, mut accepted: watch::Receiver<bool>) -> Result<Leg, Failure> {
        if let Some(leg) = self.ready.take(&self.peer)
            && let Ok(leg) = self.ask(leg, &mut accepted).await
        {
            return Ok(leg);
        }
        let leg = self.peer.reach_again(self.limit).await?;
        self.ask(leg, &mut accepted).await
    }

    /// Asks to be let in, once the group is known.
    async fn ask(&self, leg: Leg, accepted: &mut watch::Receiver<bool>) -> Result<Leg, Failure> {
        let gone = |_| Failure::Other;
        accepted.wait_for(|yes| *yes).await.map_err(gone)?;
        let asked = async {
            write_all(&leg, &self.join.encode()).await.ok()?;
            answer(&leg).await.ok()
        };
        match timeout(self.limit, asked).await {
            Ok(Some((Answer::Accepted, _))) => Ok(leg),
            _ => Err(Failure::PeerProtocol),
        }
    }
}

/// The client's bytes that left before the peer's answer, for the case that it is "I know no
/// groups". At most [`Kept::MAX`] of them leave before it: more than a new leg's window anyway.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<KeptState>);

#[derive(Debug, Default)]
struct KeptState {
    bytes: Vec<u8>,
    settled: bool,
    waker: Option<Waker>,
}

impl Kept {
    const MAX: usize = 64 * 1024;

    /// How many bytes may leave now; `None`: as many as there are, and none need be kept.
    pub(crate) fn room(&self) -> Option<usize> {
        let state = self.state();
        (!state.settled).then(|| Self::MAX - state.bytes.len())
    }

    pub(crate) fn keep(&self, bytes: &[u8]) {
        self.state().bytes.extend(bytes);
    }

    /// The peer has accepted.
    pub(crate) fn settle(&self) {
        let mut state = self.state();
        state.settled = true;
        state.bytes = Vec::new();
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Ready when the peer has accepted.
    pub(crate) fn poll_settled(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        match state.settled {
            true => Poll::Ready(()),
            false => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn take_back(&self) -> Vec<u8> {
        std::mem::take(&mut self.state().bytes)
    }

    fn state(&self) -> MutexGuard<'_, KeptState> {
        self.0.lock()
    }
}
