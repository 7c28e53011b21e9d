// SPDX-License-Identifier: MIT OR Apache-2.0
//! The upstream leg of a connection, and the answer of the peer at its other end.

use crate::{
    config::{profile::Profile, settings::Mode},
    faults::{fault::Fault, misconfiguration::PeerError},
    peers::{connection, peer::Peer},
    route::attempt::{Attempt, Event, Repetition},
    stripe::{bundle::Bundle, outgoing_group::OutgoingGroup},
};
use longhaul_protocol::{
    convert::{Answer, Cause, Stripes},
    failure::Failure,
};
use longhaul_transport::{channel::write_all, leg::Leg};
use parking_lot::Mutex;
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
use tracing::{Instrument as _, debug, debug_span};

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
    /// State of the request over this leg.
    attempt: Mutex<Attempt>,
    timeout: Duration,
    /// Time that the answer to the client may wait for bytes of the destination.
    reply_delay: Duration,
    /// Whether the leg came from the pool.
    pub(crate) was_pooled: bool,
    /// Relays behind the peer, as named by the request.
    pub(super) later_hops: LaterHops,
    /// Address by which the request names the peer, if it does.
    pub(super) hop: Option<SocketAddr>,
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
        Self::new(Leg::plain(stream), address, profile, timeout)
    }

    fn new(leg: Leg, address: SocketAddr, profile: &Profile, timeout: Duration) -> Self {
        Self {
            leg,
            address,
            mode: profile.mode,
            peer: None,
            attempt: Mutex::new(Attempt::Reached),
            timeout,
            reply_delay: Duration::ZERO,
            was_pooled: false,
            later_hops: LaterHops::default(),
            hop: None,
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
        was_pooled: bool,
        early_bytes_sent: usize,
    ) -> Self {
        let address = leg.transport().peer_addr();
        let address = address.unwrap_or_else(|| peer.address.preferred());
        Self {
            peer: Some(peer.clone()),
            attempt: Mutex::new(Attempt::Sent { was_pooled }),
            was_pooled,
            early_bytes_sent: AtomicU64::new(early_bytes_sent as u64),
            ..Self::new(leg, address, &peer.config.profile, timeout)
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

    /// Returns whether the peer's answer has not been read yet.
    pub(crate) fn awaits_answer(&self) -> bool {
        matches!(*self.attempt.lock(), Attempt::Sent { .. })
    }

    /// Changes the state of the attempt, and returns the new one.
    fn record(&self, event: Event) -> Attempt {
        let mut attempt = self.attempt.lock();
        *attempt = attempt.after(event);
        *attempt
    }

    /// Waits for the destination to be reached. A direct leg returns at once. Over a peer, this
    /// reads the answer, and not one byte more. Must be called before anything else is read; later
    /// calls do nothing.
    pub(crate) async fn answer(&self) -> Result<(), Fault> {
        if !self.awaits_answer() {
            return Ok(());
        }
        self.record(Event::AnswerAwaited);
        let answer = timeout(self.timeout, connection::read_answer(&self.leg)).await;
        let (event, outcome) = match answer.unwrap_or(Err(PeerError::NoAnswer(self.timeout))) {
            Ok((answer, cause)) => self.handle_answer(answer, cause),
            Err(error) => {
                let event = match error {
                    PeerError::Closed(_) => Event::Closed,
                    _ => Event::NoValidAnswer,
                };
                let fault = Fault::at_relay(error.failure(), &self.relay_name());
                (event, Err(fault))
            }
        };
        let attempt = self.record(event);
        match &outcome {
            Ok(()) => debug!(
                peer = self.relay_name(),
                "the peer has reached the destination"
            ),
            Err(fault) => debug!(
                peer = self.relay_name(),
                ?attempt,
                "refused or no answer: {fault}"
            ),
        }
        if attempt == Attempt::PeerInDoubt {
            self.recheck_peer();
        }
        outcome
    }

    fn relay_name(&self) -> String {
        let name = |peer| relay_name(peer, self.hop.as_ref());
        self.peer.as_deref().map(name).unwrap_or_default()
    }

    fn handle_answer(&self, answer: Answer, cause: Option<Cause>) -> (Event, Result<(), Fault>) {
        let Answer::Refused { code, detail } = answer else {
            let others = self.later_hops.iter().map(|(_, peer)| peer);
            for peer in self.peer.iter().chain(others) {
                peer.mark_up();
            }
            if let Some(group) = &self.group {
                group.record_acceptance();
            }
            return (Event::Accepted, Ok(()));
        };
        let fault = Fault::from_answer(code, detail, cause, &self.relay_name());
        let event = if self.mark_down_hop(&fault) {
            Event::HopUnreachable
        } else if connection::is_protocol_error(code) {
            Event::NoValidAnswer
        } else {
            Event::Refused
        };
        (event, Err(fault))
    }

    /// Marks a relay behind the peer as down if the fault says that it can't be reached. Returns whether it does. A lack
    /// of resources on another relay is temporary and ignored.
    fn mark_down_hop(&self, fault: &Fault) -> bool {
        let named = |(hop, _): &&(SocketAddr, _)| fault.hop() == Some(*hop);
        let unreachable = self.later_hops.iter().find(named);
        let unreachable = unreachable.filter(|_| fault.failure != Failure::Exhausted);
        if let Some((_, peer)) = unreachable {
            peer.mark_down_beyond(fault);
        }
        unreachable.is_some()
    }

    /// Starts a check of the peer.
    fn recheck_peer(&self) {
        let Some(peer) = self.peer.clone() else {
            return;
        };
        let (now, timeout) = (Instant::now(), self.timeout);
        let span = debug_span!("check", peer = peer.config.name);
        tokio::spawn(async move { peer.recheck(now, timeout).await }.instrument(span));
    }

    /// Returns, after a failure, how the request may be repeated. Waits for the check of a peer in doubt.
    pub(super) async fn repetition(&self) -> Repetition {
        let client_bytes_sent =
            self.early_bytes_sent() > 0 || self.client_bytes_taken.load(Relaxed);
        let repetition = self.attempt.lock().repetition(client_bytes_sent);
        match (repetition, &self.peer) {
            (Repetition::IfPeerIsDown, Some(peer)) => {
                if peer.recheck(self.opened_at, self.timeout).await {
                    Repetition::OverAnotherChain
                } else {
                    Repetition::Never
                }
            }
            (repetition, _) => repetition,
        }
    }
}

/// Returns the name of a peer for other relays and clients: the address in the request, or the
/// configured name.
pub(super) fn relay_name(peer: &Peer, hop: Option<&SocketAddr>) -> String {
    hop.map_or_else(|| peer.config.name.clone(), ToString::to_string)
}
