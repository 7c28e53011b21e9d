// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another relay that connections may leave through.

use crate::{
    Relay,
    candidates::Candidates,
    certificates::identity::Initiator,
    config::{
        health::jitter,
        peer::{Peer, Place},
        settings::Transport,
    },
    connect::{self, connect, race},
    disagreement::Obstacle,
    fault::Fault,
    leg::Leg,
    shortage::within,
    udt,
};
use futures_util::future::BoxFuture;
use longhaul_command::note;
use longhaul_protocol::{
    convert::{Answer, Cause, ConvertError, ErrorCode, Request},
    destination::Destination,
    failure::Failure,
};
use longhaul_transport::{
    carrier::Carrier,
    channel::{read_some, write_all},
    tls::Tls,
};
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::{sleep, timeout};

impl Peer {
    /// Opens a leg to it, handshakes included, within `limit`. If it can't, the peer is down.
    pub(crate) async fn reach(&self, limit: Duration) -> Result<Leg, Failure> {
        let outcome = self.attempt(limit).await;
        outcome.map_err(|obstacle| self.is_missed(&obstacle))
    }

    /// Opens a leg beside one that stands: if it fails, that says nothing of the peer's health.
    pub(crate) async fn reach_again(&self, limit: Duration) -> Result<Leg, Failure> {
        let outcome = self.attempt(limit).await;
        outcome.map_err(|obstacle| obstacle.failure())
    }

    /// Asks whether it would serve this relay, and remembers the answer.
    pub(crate) async fn check(&self, limit: Duration) {
        match self.would_serve(limit).await {
            Ok(()) => self.is_back(),
            Err(obstacle) => {
                self.is_missed(&obstacle);
            }
        }
    }

    /// Has the relays that lead to it ask, the first of them from here.
    async fn check_over(&self, way: &[Arc<Self>], limit: Duration) {
        let [first, others @ ..] = way else {
            return self.check(limit).await;
        };
        let mut hops = Vec::new();
        for peer in others.iter().map(|peer| &**peer).chain([self]) {
            match within(limit, Box::pin(peer.place.resolve())).await {
                Ok(hop) => hops.push(hop),
                Err(failure) => {
                    peer.is_missed(&Obstacle::Unreachable(failure));
                    return;
                }
            }
        }
        if !first.health.is_up() {
            return;
        }
        let Ok(leg) = first.reach(limit).await else {
            return;
        };
        let request = Request::check_over(&hops, limit);
        let _ = timeout(limit, write_all(&leg, &request.encode())).await;
        let Ok(Ok((answer, cause))) = timeout(limit, answer(&leg)).await else {
            return;
        };
        let Answer::Refused { code, detail } = answer else {
            return self.is_back();
        };
        let fault = Fault::of_answer((code, detail), cause, &first.name);
        match fault.hop() {
            hop if hop == hops.last().copied() => self.is_missed_beyond(&fault),
            // It was not asked.
            Some(hop) if hops.contains(&hop) => {}
            _ => self.is_back(),
        }
    }

    /// A relay before it in a chain says that it can't go on to it.
    pub(crate) fn is_missed_beyond(&self, fault: &Fault) {
        self.is_missed(&Obstacle::Beyond(fault.clone()));
    }

    /// Checks it after a connection that ended at `since` without the peer's answer, unless that is
    /// known to be past. Returns whether it is down.
    pub(crate) async fn doubt(&self, since: Instant, limit: Duration) -> bool {
        if !self.is_configured {
            return false;
        }
        let mut last = self.doubted.lock().await;
        let asked = last.is_some_and(|at| at >= since || at.elapsed() < DOUBT_PAUSE);
        if self.health.is_up() && !asked {
            self.check(limit).await;
            *last = Some(Instant::now());
        }
        !self.health.is_up()
    }

    /// It does not serve this relay, for this reason.
    fn is_missed(&self, obstacle: &Obstacle) -> Failure {
        let failure = obstacle.failure();
        // This relay's own shortage says nothing of the peer.
        if failure != Failure::Exhausted
            && self.health.missed(Instant::now(), jitter())
            && self.is_configured
        {
            note!("longhaul relay: peer {} is down: {obstacle}", self.name);
        }
        failure
    }

    async fn would_serve(&self, limit: Duration) -> Result<(), Obstacle> {
        let leg = self.attempt(limit).await?;
        // A peer that refuses closes, and its last word says more than the error.
        let _ = timeout(limit, write_all(&leg, &Request::check().encode())).await;
        let answer = timeout(limit, answer(&leg)).await;
        match answer.unwrap_or(Err(Obstacle::Silent(limit)))?.0 {
            Answer::Refused { code, .. } if is_strange(code) => Err(Obstacle::Refuses(code)),
            _ => Ok(()),
        }
    }

    async fn attempt(&self, limit: Duration) -> Result<Leg, Obstacle> {
        let mut obstacle = None;
        let attempt = async {
            let (carrier, address) = self.connect(limit).await?;
            // Until something is asked over it, a close leaves nothing unsaid.
            carrier.fin_on_close();
            self.place.was_reached(address);
            let Some(initiator) = &self.tls else {
                return Ok(Leg::plain(carrier));
            };
            obstacle = Some(Obstacle::Silent(limit));
            let tls = self.protect(initiator, &carrier).await;
            let tls = tls.map_err(|error| {
                obstacle = Some(error);
                Failure::PeerProtocol
            })?;
            Ok(Leg::protected(carrier, Some(tls)))
        };
        let leg = within(limit, attempt).await;
        leg.map_err(|failure| match (failure, obstacle) {
            (Failure::Exhausted, _) | (_, None) => Obstacle::Unreachable(failure),
            (_, Some(obstacle)) => obstacle,
        })
    }

    async fn connect(&self, limit: Duration) -> Result<(Carrier, SocketAddr), Failure> {
        let place = self.place.destination();
        if self.transport == Transport::Udt {
            let candidates = Candidates::of(place, None).await?;
            let attempt = |address| -> BoxFuture<'_, _> { Box::pin(self.connect_udt(address)) };
            return race(candidates, attempt).await;
        }
        let departure = connect::Departure {
            source: None,
            profile: &self.profile,
            limit,
            asker: None,
        };
        let (stream, address) = connect(place, departure, |_| true).await?;
        Ok((stream.into(), address))
    }

    async fn connect_udt(&self, address: SocketAddr) -> Result<(Carrier, SocketAddr), Failure> {
        let stream = udt::connect(&self.departure, address, &self.profile).await?;
        Ok((Carrier::Udt(stream.into()), address))
    }

    async fn protect(&self, by: &Initiator, carrier: &Carrier) -> Result<Arc<Tls>, Obstacle> {
        let tls = match by.connection() {
            Ok(connection) => Tls::handshake(carrier, connection).await,
            Err(error) => Err(error),
        };
        let from = carrier.local_addr().ok();
        tls.map(Arc::new)
            .map_err(|error| Obstacle::from_io(error, from))
    }
}

/// After a check that a doubt caused, the next one of that kind waits so long: clients don't choose
/// how often a peer is asked.
const DOUBT_PAUSE: Duration = Duration::from_secs(1);

/// Reads a peer's answer, and not one byte more.
pub(crate) async fn answer(leg: &Leg) -> Result<(Answer, Option<Cause>), Obstacle> {
    let mut bytes = Vec::new();
    let from = || leg.carrier().local_addr().ok();
    loop {
        let missing = Answer::missing(&bytes).map_err(|error| misread(&error, &bytes))?;
        if missing == 0 {
            break;
        }
        match read_some(leg, &mut bytes, missing).await {
            Ok(1..) => {}
            _ if !bytes.is_empty() => return Err(Obstacle::Foreign(bytes)),
            Ok(_) => return Err(Obstacle::Closed(from())),
            Err(error) => return Err(Obstacle::from_io(error, from())),
        }
    }
    match Answer::parse(&bytes) {
        Ok(Some((answer, _))) => Ok((answer, Cause::find(&bytes))),
        _ => Err(Obstacle::Foreign(bytes)),
    }
}

fn misread(error: &ConvertError, bytes: &[u8]) -> Obstacle {
    match error {
        ConvertError::Version(version) => Obstacle::Version(*version),
        _ => Obstacle::Foreign(bytes.to_vec()),
    }
}

/// Whether a refusal says that the peer can't read what longhaul sends. Others are about the
/// destination.
pub(crate) fn is_strange(code: ErrorCode) -> bool {
    use ErrorCode as E;
    matches!(
        code,
        E::UnsupportedVersion | E::MalformedMessage | E::UnsupportedMessage | E::MissingCookie
    )
}

/// Time between two looks for peers whose check is due.
const PERIOD: Duration = Duration::from_millis(250);

/// Time between two looks at the addresses of peers' names, which requests of other relays may name
/// as hops.
const NAMES_PERIOD: Duration = Duration::from_secs(30);

/// Asks peers that are down when their pauses are over, for ever: whoever is back is used again, and
/// nobody's connection has to find out. Where the admin endpoint tells of their health, peers that
/// nothing was heard of are asked, too.
pub(crate) async fn watch(relay: &Relay) {
    let mut names_due = Instant::now();
    loop {
        let config = relay.config();
        if Instant::now() >= names_due {
            names_due = Instant::now() + NAMES_PERIOD;
            for peer in config.peers.values().cloned() {
                tokio::spawn(async move { peer.place.resolve().await });
            }
        }
        let is_shown = config.admin.is_some();
        let due = |peer: &&Arc<Peer>| {
            let (health, now) = (&peer.health, Instant::now());
            health.claim_check(now, jitter()) || (is_shown && health.claim_look(now))
        };
        for peer in config.peers.values().filter(due) {
            let (peer, limit) = (peer.clone(), config.limits.connect_timeout);
            let way = config.policy.way_to(&peer);
            tokio::spawn(async move { peer.check_over(&way, limit).await });
        }
        sleep(PERIOD).await;
    }
}

impl Place {
    /// Looks its name up again, if it has one.
    pub(crate) async fn resolve(&self) -> Result<SocketAddr, Failure> {
        if let Destination::Address(address) = self.destination() {
            return Ok(*address);
        }
        let found = Candidates::of(self.destination(), None).await?.known();
        self.has(found).ok_or(Failure::NameNotFound)
    }
}
