// SPDX-License-Identifier: MIT OR Apache-2.0
//! The upstream leg of a connection, and the answer of the peer at its other end.

use crate::{
    config::{profile::Profile, settings::Mode},
    faults::{fault::Fault, misconfiguration::PeerError},
    peers::{connection, peer::Peer},
    stripe::{bundle::Bundle, outgoing_group::OutgoingGroup},
};
use longhaul_protocol::{
    convert::{Answer, Cause, Stripes},
    failure::Failure,
};
use longhaul_transport::{channel::write_all, leg::Leg};
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::time::timeout;

pub(super) type LaterHops = Box<[(SocketAddr, Arc<Peer>)]>;

/// The upstream leg of a connection.
#[derive(Debug)]
pub(crate) struct UpstreamLeg {
    pub(crate) leg: Leg,
    /// Remote address: the destination's or the peer's.
    pub(crate) address: SocketAddr,
    /// Copy mode, if the profile sets one.
    pub(crate) mode: Option<Mode>,
    /// Peer at the other end; `None` for a direct leg.
    pub(crate) peer: Option<Arc<Peer>>,
    /// Whether the peer's answer has not been read yet.
    awaits_answer: AtomicBool,
    timeout: Duration,
    /// Time that the answer to the client may wait for bytes of the destination.
    reply_delay: Duration,
    /// Whether the leg came from the pool, and only the request has been sent over it.
    is_replaceable: bool,
    /// Whether the leg ended before any byte of the peer's answer.
    closed_without_answer: AtomicBool,
    /// Whether a wrong or missing answer has caused a check of the peer.
    peer_rechecked: AtomicBool,
    /// Relays behind the peer, as named by the request.
    pub(super) later_hops: LaterHops,
    /// Whether the answer says that one of these can't be reached.
    hop_unreachable: AtomicBool,
    /// Address by which the request names the peer, if it does.
    pub(super) hop: Option<SocketAddr>,
    /// Whether no bytes of the client were sent with the request.
    sent_no_client_bytes: bool,
    opened_at: Instant,
    /// Whether a byte was taken from the client for this leg.
    pub(crate) client_bytes_taken: AtomicBool,
    /// Bytes of the client that were sent before the transfer.
    early_bytes_sent: AtomicU64,
    /// Group of which this is the first leg.
    pub(crate) group: Option<Arc<OutgoingGroup>>,
}

impl UpstreamLeg {
    /// Moves the leg to the calling thread's event loop.
    pub(crate) fn move_to_current_runtime(mut self) -> Result<Self, Failure> {
        // A group shares the leg, which only its last owner can move.
        let parameters = self.group.take().map(|group| group.parameters());
        let stream = self
            .leg
            .rebind_to_current_runtime()
            .map_err(|_| Failure::Other)?;
        let upstream = Self {
            leg: stream,
            ..self
        };
        Ok(match parameters {
            Some((stripes, peer)) => upstream.into_first_of_group(stripes, &peer),
            None => upstream,
        })
    }

    /// Sends bytes of the client before the transfer begins.
    pub(crate) async fn send_early_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        self.early_bytes_sent.fetch_add(bytes.len() as u64, Relaxed);
        write_all(&self.leg, bytes).await
    }

    /// Wraps a direct connection to the destination.
    pub(crate) fn direct(
        (stream, address): (tokio::net::TcpStream, SocketAddr),
        profile: &Profile,
        timeout: Duration,
    ) -> Self {
        Self::new((Leg::plain(stream), address), profile, timeout)
    }

    fn new((stream, address): (Leg, SocketAddr), profile: &Profile, timeout: Duration) -> Self {
        Self {
            leg: stream,
            address,
            mode: profile.mode,
            peer: None,
            awaits_answer: AtomicBool::new(false),
            timeout,
            reply_delay: Duration::ZERO,
            is_replaceable: false,
            closed_without_answer: AtomicBool::new(false),
            peer_rechecked: AtomicBool::new(false),
            later_hops: LaterHops::default(),
            hop_unreachable: AtomicBool::new(false),
            hop: None,
            sent_no_client_bytes: false,
            opened_at: Instant::now(),
            client_bytes_taken: AtomicBool::new(false),
            early_bytes_sent: AtomicU64::new(0),
            group: None,
        }
    }

    /// Makes the leg the first of a group.
    pub(super) fn into_first_of_group(self, stripes: Stripes, peer: &Arc<Peer>) -> Self {
        let group = OutgoingGroup::new(stripes, self.leg.clone(), peer, self.timeout);
        Self {
            group: Some(group),
            ..self
        }
    }

    /// Returns the bundle of legs, if further ones have joined.
    pub(crate) fn bundle(&self) -> Option<&Arc<Bundle>> {
        self.group.as_ref().and_then(|group| group.bundle())
    }

    /// Makes the later close of every leg an abnormal one.
    pub(crate) fn reset_on_close(&self) {
        self.leg.transport().reset_on_close();
        if let Some(bundle) = self.bundle() {
            bundle.reset_on_close();
        }
    }

    /// Resets every leg now, whoever else shares it.
    pub(crate) fn reset(&self) {
        self.leg.transport().reset();
        if let Some(bundle) = self.bundle() {
            bundle.reset();
        }
    }

    /// Returns the bytes of the client that were sent before the transfer.
    pub(crate) fn early_bytes_sent(&self) -> u64 {
        self.early_bytes_sent.load(Relaxed)
    }

    /// Wraps a leg to a peer that has received a request and will answer.
    pub(super) fn to_peer(
        leg: Leg,
        peer: &Arc<Peer>,
        timeout: Duration,
        from_pool: bool,
        early_bytes_sent: usize,
    ) -> Self {
        let sent_no_client_bytes = early_bytes_sent == 0;
        let address = leg.transport().peer_addr();
        let address = address.unwrap_or_else(|| peer.address.preferred());
        Self {
            peer: Some(peer.clone()),
            awaits_answer: AtomicBool::new(true),
            is_replaceable: from_pool && sent_no_client_bytes,
            sent_no_client_bytes,
            early_bytes_sent: AtomicU64::new(early_bytes_sent as u64),
            ..Self::new((leg, address), &peer.config.profile, timeout)
        }
    }

    /// Sets the reply delay, for a client that does not wait for an answer.
    pub(super) fn with_reply_delay(self, reply_delay: Duration) -> Self {
        Self {
            reply_delay,
            ..self
        }
    }

    /// Returns the time that the answer to the client may wait for bytes of this leg. `None`: the
    /// answer is sent alone. A peer has waited already: bytes that it had in time came with its
    /// answer.
    pub(crate) fn reply_delay(&self) -> Option<Duration> {
        let own = match self.peer {
            Some(_) => Duration::ZERO,
            None => self.reply_delay,
        };
        (!self.reply_delay.is_zero()).then_some(own)
    }

    /// Returns whether the leg came from the pool.
    pub(crate) fn was_pooled(&self) -> bool {
        self.is_replaceable
    }

    /// Returns whether the leg was probably dead before the request, and the request may be
    /// repeated: no byte of the client has been sent.
    pub(crate) fn was_dead(&self) -> bool {
        self.is_replaceable
            && self.closed_without_answer.load(Relaxed)
            && !self.client_bytes_taken.load(Relaxed)
    }

    /// Returns whether the peer's answer has not been read yet.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.awaits_answer.load(Relaxed)
    }

    /// Waits for the destination to be reached. A direct leg returns at once. Over a peer, this
    /// reads the answer, and not one byte more. Must be called before anything else is read; later
    /// calls do nothing.
    pub(crate) async fn answer(&self) -> Result<(), Fault> {
        if !self.awaits_answer.swap(false, Relaxed) {
            return Ok(());
        }
        let answer = timeout(self.timeout, connection::read_answer(&self.leg)).await;
        match answer.unwrap_or(Err(PeerError::NoAnswer(self.timeout))) {
            Ok((answer, cause)) => self.handle_answer(answer, cause),
            Err(error) => {
                let closed = matches!(error, PeerError::Closed(_));
                self.closed_without_answer.store(closed, Relaxed);
                // A pooled connection may have died by itself; the pool handles that.
                if !closed || !self.is_replaceable {
                    self.recheck_peer();
                }
                Err(Fault::at_relay(error.failure(), &self.relay_name()))
            }
        }
    }

    fn relay_name(&self) -> String {
        let name = |peer| relay_name(peer, self.hop.as_ref());
        self.peer.as_deref().map(name).unwrap_or_default()
    }

    fn handle_answer(&self, answer: Answer, cause: Option<Cause>) -> Result<(), Fault> {
        let Answer::Refused { code, detail } = answer else {
            let others = self.later_hops.iter().map(|(_, peer)| peer);
            for peer in self.peer.iter().chain(others) {
                peer.mark_up();
            }
            if let Some(group) = &self.group {
                group.record_acceptance();
            }
            return Ok(());
        };
        if connection::is_protocol_error(code) {
            self.recheck_peer();
        }
        let fault = Fault::from_answer((code, detail), cause, &self.relay_name());
        self.mark_down_hop(&fault);
        Err(fault)
    }

    /// Marks a relay that can't be reached as down. A lack of resources on another relay is
    /// temporary and ignored.
    fn mark_down_hop(&self, fault: &Fault) {
        let named = |(hop, _): &&(SocketAddr, _)| fault.hop() == Some(*hop);
        if fault.failure != Failure::Exhausted
            && let Some((_, peer)) = self.later_hops.iter().find(named)
        {
            self.hop_unreachable.store(true, Relaxed);
            peer.mark_down_beyond(fault);
        }
    }

    /// Starts a check of the peer.
    fn recheck_peer(&self) {
        let Some(peer) = self.peer.clone() else {
            return;
        };
        self.peer_rechecked.store(true, Relaxed);
        let (now, timeout) = (Instant::now(), self.timeout);
        tokio::spawn(async move { peer.recheck(now, timeout).await });
    }

    /// Returns, after a failure, whether a peer of the chain is down and the request may be
    /// repeated over another chain, because no byte of the client has been sent.
    pub(crate) async fn lost_peer(&self) -> bool {
        let can_repeat = self.sent_no_client_bytes && !self.client_bytes_taken.load(Relaxed);
        match &self.peer {
            Some(_) if can_repeat && self.hop_unreachable.load(Relaxed) => true,
            Some(peer) if can_repeat && self.peer_rechecked.load(Relaxed) => {
                peer.recheck(self.opened_at, self.timeout).await
            }
            _ => false,
        }
    }
}

/// Returns the name of a peer for other relays and clients: the address in the request, or the
/// configured name.
pub(super) fn relay_name(peer: &Peer, hop: Option<&SocketAddr>) -> String {
    hop.map_or_else(|| peer.config.name.clone(), ToString::to_string)
}
