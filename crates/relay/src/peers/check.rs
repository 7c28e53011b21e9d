// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks whether peers serve this relay: after a failure, and when a peer may be up again.

use crate::{
    faults::{fault::Fault, misconfiguration::PeerError},
    peers::{
        connection::{is_protocol_error, read_answer},
        current::{CurrentSetup, Setup},
        health::jitter,
        peer::Peer,
    },
};
use longhaul_admission::exhaustion::with_timeout;
use longhaul_protocol::convert::{Answer, Request};
use longhaul_transport::channel::write_all;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::{sleep, timeout};
use tracing::{Instrument as _, debug, debug_span};

impl Peer {
    /// Asks the peer whether it would serve this relay, and stores the answer.
    pub(crate) async fn check(&self, limit: Duration) {
        match self.probe(limit).await {
            Ok(()) => {
                debug!("the peer serves this relay");
                self.mark_up();
            }
            Err(error) => {
                debug!("the peer does not serve this relay: {error}");
                self.mark_down(&error);
            }
        }
    }

    /// Checks the peer through the relays of `chain`, the first of which is asked from here.
    async fn check_through(&self, chain: &[Arc<Self>], limit: Duration) {
        let [first, others @ ..] = chain else {
            return self.check(limit).await;
        };
        let mut hops = Vec::new();
        for peer in others.iter().map(|peer| &**peer).chain([self]) {
            match with_timeout(limit, Box::pin(peer.address.resolve())).await {
                Ok(hop) => hops.push(hop),
                Err(failure) => {
                    peer.mark_down(&PeerError::Unreachable(failure));
                    return;
                }
            }
        }
        if !first.state.health.is_up() {
            return;
        }
        let Ok(leg) = first.open_leg(limit).await else {
            return;
        };
        let request = Request::health_check_through(&hops, limit);
        let _ = timeout(limit, write_all(&leg, &request.encode())).await;
        let Ok(Ok((answer, cause))) = timeout(limit, read_answer(&leg)).await else {
            return;
        };
        let Answer::Refused { code, detail } = answer else {
            return self.mark_up();
        };
        let fault = Fault::from_answer(code, detail, cause, &first.config.name);
        match fault.hop() {
            hop if hop == hops.last().copied() => self.mark_down_beyond(&fault),
            // The chain failed at an earlier hop: the last one was not asked.
            Some(hop) if hops.contains(&hop) => {}
            _ => self.mark_up(),
        }
    }

    /// Checks the peer after a connection that ended at `since` without an answer, unless a later
    /// check exists. Returns whether the peer is down.
    pub(crate) async fn recheck(&self, since: Instant, limit: Duration) -> bool {
        if !self.is_configured {
            return false;
        }
        let mut last = self.state.last_recheck.lock().await;
        let rechecked = last.is_some_and(|at| at >= since || at.elapsed() < RECHECK_INTERVAL_MIN);
        if self.state.health.is_up() && !rechecked {
            self.check(limit).await;
            *last = Some(Instant::now());
        }
        !self.state.health.is_up()
    }

    async fn probe(&self, limit: Duration) -> Result<(), PeerError> {
        let leg = self.try_connect(limit).await?;
        // A peer that refuses closes the connection, and its answer says more than the write error.
        let _ = timeout(limit, write_all(&leg, &Request::health_check().encode())).await;
        let answer = timeout(limit, read_answer(&leg)).await;
        match answer.unwrap_or(Err(PeerError::NoAnswer(limit)))?.0 {
            Answer::Refused { code, .. } if is_protocol_error(code) => {
                Err(PeerError::Rejected(code))
            }
            _ => Ok(()),
        }
    }
}

/// Minimum interval between two such checks: clients don't control how often a peer is asked.
const RECHECK_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Interval of the search for peers whose check is due.
const CHECK_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Interval of the name lookups for peers. Requests of other relays may name a peer by its address.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);

/// Checks peers that are down whenever their backoff is over, without end. A peer that is up again
/// is used again, and no client's connection has to find out. If the admin endpoint reports peer
/// health, idle peers are checked too.
pub(crate) async fn run_checks(current: &CurrentSetup) {
    let mut names_due = Instant::now();
    loop {
        let Setup { config, peers } = current.get();
        if Instant::now() >= names_due {
            names_due = Instant::now() + RESOLVE_INTERVAL;
            for peer in peers.all().cloned() {
                tokio::spawn(async move { peer.address.resolve().await });
            }
        }
        let is_shown = config.admin.or(config.health).is_some();
        let due = |peer: &&Arc<Peer>| {
            let (health, now) = (&peer.state.health, Instant::now());
            health.claim_check(now, jitter()) || (is_shown && health.claim_quiet_check(now))
        };
        for peer in peers.all().filter(due) {
            let (peer, limit) = (peer.clone(), config.limits.connect_timeout);
            let chain = peers.chain(&config.policy.chain_to(&peer.config));
            let span = debug_span!("check", peer = peer.config.name);
            let check = async move { peer.check_through(&chain, limit).await };
            tokio::spawn(check.instrument(span));
        }
        sleep(CHECK_POLL_INTERVAL).await;
    }
}
