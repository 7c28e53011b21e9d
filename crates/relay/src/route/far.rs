// SPDX-License-Identifier: MIT OR Apache-2.0
//! The far leg of a connection, and the answer of the peer at its other end.

use crate::{
    config::{profile::Profile, settings::Mode},
    faults::{disagreement::Obstacle, fault::Fault},
    peers::{connection, peer::Peer},
    stripe::group::Group,
};
use longhaul_protocol::{
    convert::{Answer, Cause, ErrorCode, Stripes},
    failure::Failure,
};
use longhaul_transport::{channel::write_all, leg::Leg};
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::time::timeout;

pub(super) type Beyond = Box<[(SocketAddr, Arc<Peer>)]>;

/// The far leg of a connection.
#[derive(Debug)]
pub(crate) struct Far {
    pub(crate) stream: Leg,
    /// Remote address: the destination's or the peer's.
    pub(crate) address: SocketAddr,
    /// Copy mode, if the profile sets one.
    pub(crate) mode: Option<Mode>,
    /// Peer at the other end; `None` for a direct leg.
    pub(crate) peer: Option<Arc<Peer>>,
    /// Whether the peer's answer has not been read yet.
    answer_due: AtomicBool,
    limit: Duration,
    /// Time that the answer to the client may wait for bytes of the destination.
    patience: Duration,
    /// Whether the leg came from the pool, and only the request has been sent over it.
    replaceable: bool,
    /// Whether the leg ended before any byte of the peer's answer.
    unanswered: AtomicBool,
    /// Whether a wrong or missing answer has caused a check of the peer.
    doubtful: AtomicBool,
    /// Relays behind the peer, as named by the request.
    pub(super) beyond: Beyond,
    /// Whether the answer says that one of these can't be reached.
    cut_off: AtomicBool,
    /// Address by which the request names the peer, if it does.
    pub(super) hop: Option<SocketAddr>,
    /// Whether no bytes of the client were sent with the request.
    is_bare: bool,
    since: Instant,
    /// Whether a byte was taken from the client for this leg.
    pub(crate) client_heard: AtomicBool,
    /// Stripe group of which this is the first leg.
    pub(crate) group: Option<Arc<Group>>,
}

impl Far {
    /// Moves the leg to the calling thread's event loop.
    pub(crate) fn at_home_here(mut self) -> Result<Self, Failure> {
        // A group shares the leg, which only its last owner can move.
        let plan = self.group.take().map(|group| group.plan());
        let stream = self.stream.at_home_here().map_err(|_| Failure::Other)?;
        let far = Self { stream, ..self };
        Ok(match plan {
            Some((stripes, peer)) => far.striped(stripes, 0, &peer),
            None => far,
        })
    }

    /// Sends bytes of the client before the transfer begins.
    pub(crate) async fn send_first(&self, bytes: &[u8]) -> io::Result<()> {
        match &self.group {
            Some(group) => group.send_first(bytes).await,
            None => write_all(&self.stream, bytes).await,
        }
    }

    /// Wraps a direct connection to the destination.
    pub(crate) fn standing(
        (stream, address): (tokio::net::TcpStream, SocketAddr),
        profile: &Profile,
        limit: Duration,
    ) -> Self {
        Self::new((Leg::plain(stream), address), profile, limit)
    }

    fn new((stream, address): (Leg, SocketAddr), profile: &Profile, limit: Duration) -> Self {
        Self {
            stream,
            address,
            mode: profile.mode,
            peer: None,
            answer_due: AtomicBool::new(false),
            limit,
            patience: Duration::ZERO,
            replaceable: false,
            unanswered: AtomicBool::new(false),
            doubtful: AtomicBool::new(false),
            beyond: Beyond::default(),
            cut_off: AtomicBool::new(false),
            hop: None,
            is_bare: false,
            since: Instant::now(),
            client_heard: AtomicBool::new(false),
            group: None,
        }
    }

    /// Makes the leg the first of a stripe group, over which `ahead` bytes of the client have been
    /// sent.
    pub(super) fn striped(self, stripes: Stripes, ahead: usize, peer: &Arc<Peer>) -> Self {
        let group = Group::new(stripes, self.stream.clone(), ahead, peer, self.limit);
        Self {
            group: Some(group),
            ..self
        }
    }

    /// Wraps a leg to a peer that has received a request and will answer.
    pub(super) fn asked(
        leg: Leg,
        peer: &Arc<Peer>,
        limit: Duration,
        stood: bool,
        is_bare: bool,
    ) -> Self {
        let address = leg.carrier().peer_addr();
        let address = address.unwrap_or_else(|| peer.address.preferred());
        Self {
            peer: Some(peer.clone()),
            answer_due: AtomicBool::new(true),
            replaceable: stood && is_bare,
            is_bare,
            ..Self::new((leg, address), &peer.config.profile, limit)
        }
    }

    /// Sets the reply delay, for a client that does not wait for an answer.
    pub(super) fn unhurried(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Returns the time that the answer to the client may wait for bytes of this leg. `None`: the
    /// answer is sent alone. A peer has waited already: bytes that it had in time came with its
    /// answer.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let own = match self.peer {
            Some(_) => Duration::ZERO,
            None => self.patience,
        };
        (!self.patience.is_zero()).then_some(own)
    }

    /// Returns whether the leg came from the pool.
    pub(crate) fn stood_ready(&self) -> bool {
        self.replaceable
    }

    /// Returns whether the leg was probably dead before the request, and the request may be
    /// repeated: no byte of the client has been sent.
    pub(crate) fn was_stale(&self) -> bool {
        self.replaceable && self.unanswered.load(Relaxed) && !self.client_heard.load(Relaxed)
    }

    /// Returns whether the peer's answer has not been read yet.
    pub(crate) fn owes_answer(&self) -> bool {
        self.answer_due.load(Relaxed)
    }

    /// Waits for the destination to be reached. A direct leg returns at once. Over a peer, this
    /// reads the answer, and not one byte more. Must be called before anything else is read; later
    /// calls do nothing.
    pub(crate) async fn answer(&self) -> Result<(), Fault> {
        if !self.answer_due.swap(false, Relaxed) {
            return Ok(());
        }
        let answer = timeout(self.limit, connection::read_answer(&self.stream)).await;
        match answer.unwrap_or(Err(Obstacle::Silent(self.limit))) {
            Ok((answer, cause)) => self.hear(answer, cause),
            Err(obstacle) => {
                let closed = matches!(obstacle, Obstacle::Closed(_));
                self.unanswered.store(closed, Relaxed);
                // A pooled connection may have died by itself; the pool handles that.
                if !closed || !self.replaceable {
                    self.doubt_peer();
                }
                Err(Fault::at(obstacle.failure(), &self.relay_name()))
            }
        }
    }

    fn relay_name(&self) -> String {
        let name = |peer| relay_name(peer, self.hop.as_ref());
        self.peer.as_deref().map(name).unwrap_or_default()
    }

    fn hear(&self, answer: Answer, cause: Option<Cause>) -> Result<(), Fault> {
        let Answer::Refused { code, detail } = answer else {
            let others = self.beyond.iter().map(|(_, peer)| peer);
            for peer in self.peer.iter().chain(others) {
                peer.mark_up();
            }
            return Ok(());
        };
        match (code, &self.group) {
            (ErrorCode::UnsupportedMessage, Some(group)) => group.is_unsupported(),
            (code, _) if connection::is_protocol_error(code) => self.doubt_peer(),
            _ => {}
        }
        let fault = Fault::of_answer((code, detail), cause, &self.relay_name());
        self.blame(&fault);
        Err(fault)
    }

    /// Marks a relay that can't be reached as down. A lack of resources on another relay is
    /// temporary and ignored.
    fn blame(&self, fault: &Fault) {
        let named = |(hop, _): &&(SocketAddr, _)| fault.hop() == Some(*hop);
        if fault.failure != Failure::Exhausted
            && let Some((_, peer)) = self.beyond.iter().find(named)
        {
            self.cut_off.store(true, Relaxed);
            peer.mark_down_beyond(fault);
        }
    }

    /// Starts a check of the peer.
    fn doubt_peer(&self) {
        let Some(peer) = self.peer.clone() else {
            return;
        };
        self.doubtful.store(true, Relaxed);
        let (now, limit) = (Instant::now(), self.limit);
        tokio::spawn(async move { peer.recheck(now, limit).await });
    }

    /// Returns, after a failure, whether a peer of the chain is down and the request may be
    /// repeated over another chain, because no byte of the client has been sent.
    pub(crate) async fn has_lost_peer(&self) -> bool {
        let nothing_left = self.is_bare && !self.client_heard.load(Relaxed);
        match &self.peer {
            Some(_) if nothing_left && self.cut_off.load(Relaxed) => true,
            Some(peer) if nothing_left && self.doubtful.load(Relaxed) => {
                peer.recheck(self.since, self.limit).await
            }
            _ => false,
        }
    }

    /// Returns the bytes that the client has sent since the request, if the request may be repeated
    /// over a single leg.
    pub(crate) fn take_back(&self) -> Option<Vec<u8>> {
        self.group.as_ref().and_then(|group| group.take_back())
    }
}

/// Returns the name of a peer for other relays and clients: the address in the request, or the
/// configured name.
pub(super) fn relay_name(peer: &Peer, hop: Option<&SocketAddr>) -> String {
    hop.map_or_else(|| peer.config.name.clone(), ToString::to_string)
}
