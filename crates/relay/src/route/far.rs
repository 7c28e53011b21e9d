// SPDX-License-Identifier: MIT OR Apache-2.0
//! An outgoing leg, and what a peer at its other end answers.

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

/// An outgoing leg.
#[derive(Debug)]
pub(crate) struct Far {
    pub(crate) stream: Leg,
    /// Where it goes: the destination's address or the peer's.
    pub(crate) address: SocketAddr,
    /// How its bytes move, if its profile says.
    pub(crate) mode: Option<Mode>,
    /// The peer that it goes to, if it does not go straight.
    pub(crate) peer: Option<Arc<Peer>>,
    /// The peer's answer has not been read yet.
    answer_due: AtomicBool,
    limit: Duration,
    /// How long the answer that the client gets may wait for bytes to go along with.
    patience: Duration,
    /// It stood ready, and nothing but the request has been sent over it.
    replaceable: bool,
    /// Its end came before any byte of the peer's answer.
    unanswered: AtomicBool,
    /// What came instead of an answer makes the peer doubtful.
    doubtful: AtomicBool,
    /// Relays behind the peer that the request names.
    pub(super) beyond: Beyond,
    /// The answer says that one of these can't be gone on to.
    cut_off: AtomicBool,
    /// The address that the request names the peer by, if it does.
    pub(super) hop: Option<SocketAddr>,
    /// Nothing of the client's left with the request.
    is_bare: bool,
    since: Instant,
    /// A byte was taken from the client for it.
    pub(crate) client_heard: AtomicBool,
    /// It is the first leg of these.
    pub(crate) group: Option<Arc<Group>>,
}

impl Far {
    /// The same leg, driven by the calling thread's event loop from now on.
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

    /// Sends what the client has said before the transfer begins.
    pub(crate) async fn send_first(&self, bytes: &[u8]) -> io::Result<()> {
        match &self.group {
            Some(group) => group.send_first(bytes).await,
            None => write_all(&self.stream, bytes).await,
        }
    }

    /// A leg that stands, straight to the destination.
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

    /// The same leg as the first of a group, over which `ahead` bytes of the client have left.
    pub(super) fn striped(self, stripes: Stripes, ahead: usize, peer: &Arc<Peer>) -> Self {
        let group = Group::new(stripes, self.stream.clone(), ahead, peer, self.limit);
        Self {
            group: Some(group),
            ..self
        }
    }

    /// A leg to a peer that has been asked and will answer.
    pub(super) fn asked(
        leg: Leg,
        peer: &Arc<Peer>,
        limit: Duration,
        stood: bool,
        is_bare: bool,
    ) -> Self {
        let address = leg.carrier().peer_addr();
        let address = address.unwrap_or_else(|| peer.place.last());
        Self {
            peer: Some(peer.clone()),
            answer_due: AtomicBool::new(true),
            replaceable: stood && is_bare,
            is_bare,
            ..Self::new((leg, address), &peer.config.profile, limit)
        }
    }

    /// The same leg for a client that does not wait for an answer.
    pub(super) fn unhurried(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// How long the answer that the client gets may wait for bytes from here; `None`: it leaves by
    /// itself. A peer has waited already: what it had in time came with its answer.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let own = match self.peer {
            Some(_) => Duration::ZERO,
            None => self.patience,
        };
        (!self.patience.is_zero()).then_some(own)
    }

    /// Whether it stood before it was asked for anything.
    pub(crate) fn stood_ready(&self) -> bool {
        self.replaceable
    }

    /// Whether it was dead before it was asked, for all that can be known, and the request may be
    /// made again: not a byte of the client has left.
    pub(crate) fn was_stale(&self) -> bool {
        self.replaceable && self.unanswered.load(Relaxed) && !self.client_heard.load(Relaxed)
    }

    /// Whether the peer's answer is still to come.
    pub(crate) fn owes_answer(&self) -> bool {
        self.answer_due.load(Relaxed)
    }

    /// Whether the destination is reached. A direct leg knows at once; over a peer, this reads the
    /// answer, and not one byte more. Call it before anything else is read; after the first call it
    /// does nothing.
    pub(crate) async fn answer(&self) -> Result<(), Fault> {
        if !self.answer_due.swap(false, Relaxed) {
            return Ok(());
        }
        let answer = timeout(self.limit, connection::answer(&self.stream)).await;
        match answer.unwrap_or(Err(Obstacle::Silent(self.limit))) {
            Ok((answer, cause)) => self.hear(answer, cause),
            Err(obstacle) => {
                let closed = matches!(obstacle, Obstacle::Closed(_));
                self.unanswered.store(closed, Relaxed);
                // A leg that stood ready may have died by itself: who keeps it ready sees to that.
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
                peer.is_back();
            }
            return Ok(());
        };
        match (code, &self.group) {
            (ErrorCode::UnsupportedMessage, Some(group)) => group.is_unsupported(),
            (code, _) if connection::is_strange(code) => self.doubt_peer(),
            _ => {}
        }
        let fault = Fault::of_answer((code, detail), cause, &self.relay_name());
        self.blame(&fault);
        Err(fault)
    }

    /// Takes note of a relay that can't be gone on to. Another one's shortage passes.
    fn blame(&self, fault: &Fault) {
        let named = |(hop, _): &&(SocketAddr, _)| fault.hop() == Some(*hop);
        if fault.failure != Failure::Exhausted
            && let Some((_, peer)) = self.beyond.iter().find(named)
        {
            self.cut_off.store(true, Relaxed);
            peer.is_missed_beyond(fault);
        }
    }

    /// Has the peer checked.
    fn doubt_peer(&self) {
        let Some(peer) = self.peer.clone() else {
            return;
        };
        self.doubtful.store(true, Relaxed);
        let (now, limit) = (Instant::now(), self.limit);
        tokio::spawn(async move { peer.doubt(now, limit).await });
    }

    /// After a failure: whether a peer of the chain turned out to be down, and the request may be made again by
    /// another way, because not a byte of the client has left.
    pub(crate) async fn has_lost_peer(&self) -> bool {
        let nothing_left = self.is_bare && !self.client_heard.load(Relaxed);
        match &self.peer {
            Some(_) if nothing_left && self.cut_off.load(Relaxed) => true,
            Some(peer) if nothing_left && self.doubtful.load(Relaxed) => {
                peer.doubt(self.since, self.limit).await
            }
            _ => false,
        }
    }

    /// What the client has sent since the request, if the request may be made again over one leg.
    pub(crate) fn take_back(&self) -> Option<Vec<u8>> {
        self.group.as_ref().and_then(|group| group.take_back())
    }
}

/// What other relays and clients know a peer by: the address that a request names it by, or its name.
pub(super) fn relay_name(peer: &Peer, hop: Option<&SocketAddr>) -> String {
    hop.map_or_else(|| peer.config.name.clone(), ToString::to_string)
}
