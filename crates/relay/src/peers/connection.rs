// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connects to a peer, and reads its answers.

use crate::{
    config::{certificates::identity::Initiator, settings::Transport},
    faults::{fault::Fault, misconfiguration::PeerError},
    leg::{
        candidates::Candidates,
        connect::{self, connect, race},
        udt,
    },
    peers::{address::PeerAddress, health::jitter, peer::Peer},
};
use futures_util::future::BoxFuture;
use longhaul_admission::exhaustion::with_timeout;
use longhaul_protocol::{
    convert::{Answer, Cause, ConvertError, ErrorCode},
    destination::Destination,
    failure::Failure,
};
use longhaul_transport::{channel::read_some, leg::Leg, tls::Tls, transport::TransportStream};
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tracing::warn;

impl Peer {
    /// Opens a leg to the peer within `limit`, handshakes included. A failure marks the peer as
    /// down.
    pub(crate) async fn open_leg(&self, limit: Duration) -> Result<Leg, Failure> {
        let outcome = self.try_connect(limit).await;
        outcome.map_err(|peer_error| self.mark_down(&peer_error))
    }

    /// Opens a further leg beside an open one. A failure says nothing about the peer's health.
    pub(crate) async fn open_further_leg(&self, limit: Duration) -> Result<Leg, Failure> {
        let outcome = self.try_connect(limit).await;
        outcome.map_err(|peer_error| peer_error.failure())
    }

    /// Marks the peer as down because an earlier relay in the chain can't reach it.
    pub(crate) fn mark_down_beyond(&self, fault: &Fault) {
        self.mark_down(&PeerError::NextHop(fault.clone()));
    }

    /// Marks the peer as down for this reason.
    pub(super) fn mark_down(&self, peer_error: &PeerError) -> Failure {
        let failure = peer_error.failure();
        // A lack of resources on this relay says nothing about the peer.
        if failure != Failure::Exhausted
            && self.state.health.record_failure(Instant::now(), jitter())
            && self.is_configured
        {
            warn!("peer {} is down: {peer_error}", self.config.name);
        }
        failure
    }

    pub(super) async fn try_connect(&self, limit: Duration) -> Result<Leg, PeerError> {
        let mut peer_error = None;
        let attempt = async {
            let (stream, address) = self.connect(limit).await?;
            // No request has been sent yet, so a FIN loses nothing.
            stream.fin_on_close();
            self.address.record_connected(address);
            let Some(initiator) = &self.config.tls else {
                return Ok(Leg::plain(stream));
            };
            peer_error = Some(PeerError::NoAnswer(limit));
            let tls = self.tls_handshake(initiator, &stream).await;
            let tls = tls.map_err(|error| {
                peer_error = Some(error);
                Failure::PeerProtocol
            })?;
            Ok(Leg::with_tls(stream, Some(tls)))
        };
        let leg = with_timeout(limit, attempt).await;
        leg.map_err(|failure| match (failure, peer_error) {
            (Failure::Exhausted, _) | (_, None) => PeerError::Unreachable(failure),
            (_, Some(peer_error)) => peer_error,
        })
    }

    async fn connect(&self, limit: Duration) -> Result<(TransportStream, SocketAddr), Failure> {
        let destination = self.address.destination();
        if self.config.transport == Transport::Udt {
            let candidates = Candidates::resolve(destination, None).await?;
            let attempt = |address| -> BoxFuture<'_, _> { Box::pin(self.connect_udt(address)) };
            return race(candidates, attempt).await;
        }
        let options = connect::ConnectOptions {
            source: None,
            profile: &self.config.profile,
            timeout: limit,
            lookup_quota: None,
            dscp: 0,
        };
        let (stream, address) = connect(destination, options, |_| true).await?;
        Ok((stream.into(), address))
    }

    async fn connect_udt(
        &self,
        address: SocketAddr,
    ) -> Result<(TransportStream, SocketAddr), Failure> {
        let stream = udt::connect(&self.udt_ports, address, &self.config.profile).await?;
        Ok((TransportStream::Udt(stream.into()), address))
    }

    async fn tls_handshake(
        &self,
        initiator: &Initiator,
        stream: &TransportStream,
    ) -> Result<Arc<Tls>, PeerError> {
        let tls = match initiator.connection() {
            Ok(connection) => Tls::handshake(stream, connection).await,
            Err(error) => Err(error),
        };
        let from = stream.local_addr().ok();
        tls.map(Arc::new)
            .map_err(|error| PeerError::from_io(error, from))
    }
}

/// Reads a peer's answer, and not one byte more.
pub(crate) async fn read_answer(leg: &Leg) -> Result<(Answer, Option<Cause>), PeerError> {
    let mut bytes = Vec::new();
    let from = || leg.transport().local_addr().ok();
    loop {
        let missing =
            Answer::bytes_missing(&bytes).map_err(|error| to_peer_error(&error, &bytes))?;
        if missing == 0 {
            break;
        }
        match read_some(leg, &mut bytes, missing).await {
            Ok(1..) => {}
            _ if !bytes.is_empty() => return Err(PeerError::NotConvert(bytes)),
            Ok(_) => return Err(PeerError::Closed(from())),
            Err(error) => return Err(PeerError::from_io(error, from())),
        }
    }
    match Answer::parse(&bytes) {
        Ok(Some((answer, _))) => Ok((answer, Cause::find(&bytes))),
        _ => Err(PeerError::NotConvert(bytes)),
    }
}

fn to_peer_error(error: &ConvertError, bytes: &[u8]) -> PeerError {
    match error {
        ConvertError::Version(version) => PeerError::Version(*version),
        _ => PeerError::NotConvert(bytes.to_vec()),
    }
}

/// Returns whether a refusal means that the peer can't read the messages of this relay. Other
/// refusals are about the destination.
pub(crate) fn is_protocol_error(code: ErrorCode) -> bool {
    use ErrorCode as E;
    matches!(
        code,
        E::UnsupportedVersion | E::MalformedMessage | E::UnsupportedMessage | E::MissingCookie
    )
}

impl PeerAddress {
    /// Looks up the peer's name again, if it has one, and returns the preferred address.
    pub(crate) async fn resolve(&self) -> Result<SocketAddr, Failure> {
        if let Destination::Address(address) = self.destination() {
            return Ok(*address);
        }
        let found = Candidates::resolve(self.destination(), None)
            .await?
            .into_addresses();
        self.set_resolved(found).ok_or(Failure::NameNotFound)
    }
}
