// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether peers would serve this relay: asked when something went wrong, and when they may be back.

use crate::{
    faults::{disagreement::Obstacle, fault::Fault},
    peers::{
        connection::{answer, is_strange},
        current::{Current, Setup},
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

impl Peer {
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
            match with_timeout(limit, Box::pin(peer.place.resolve())).await {
                Ok(hop) => hops.push(hop),
                Err(failure) => {
                    peer.is_missed(&Obstacle::Unreachable(failure));
                    return;
                }
            }
        }
        if !first.state.health.is_up() {
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
        let fault = Fault::of_answer((code, detail), cause, &first.config.name);
        match fault.hop() {
            hop if hop == hops.last().copied() => self.is_missed_beyond(&fault),
            // It was not asked.
            Some(hop) if hops.contains(&hop) => {}
            _ => self.is_back(),
        }
    }

    /// Checks it after a connection that ended at `since` without the peer's answer, unless that is
    /// known to be past. Returns whether it is down.
    pub(crate) async fn doubt(&self, since: Instant, limit: Duration) -> bool {
        if !self.is_configured {
            return false;
        }
        let mut last = self.state.doubted.lock().await;
        let asked = last.is_some_and(|at| at >= since || at.elapsed() < DOUBT_PAUSE);
        if self.state.health.is_up() && !asked {
            self.check(limit).await;
            *last = Some(Instant::now());
        }
        !self.state.health.is_up()
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
}

/// After a check that a doubt caused, the next one of that kind waits so long: clients don't choose
/// how often a peer is asked.
const DOUBT_PAUSE: Duration = Duration::from_secs(1);

/// Time between two looks for peers whose check is due.
const PERIOD: Duration = Duration::from_millis(250);

/// Time between two looks at the addresses of peers' names, which requests of other relays may name
/// as hops.
const NAMES_PERIOD: Duration = Duration::from_secs(30);

/// Asks peers that are down when their pauses are over, for ever: whoever is back is used again, and
/// nobody's connection has to find out. Where the admin endpoint tells of their health, peers that
/// nothing was heard of are asked, too.
pub(crate) async fn watch(current: &Current) {
    let mut names_due = Instant::now();
    loop {
        let Setup { config, peers } = current.get();
        if Instant::now() >= names_due {
            names_due = Instant::now() + NAMES_PERIOD;
            for peer in peers.all().cloned() {
                tokio::spawn(async move { peer.place.resolve().await });
            }
        }
        let is_shown = config.admin.is_some();
        let due = |peer: &&Arc<Peer>| {
            let (health, now) = (&peer.state.health, Instant::now());
            health.claim_check(now, jitter()) || (is_shown && health.claim_look(now))
        };
        for peer in peers.all().filter(due) {
            let (peer, limit) = (peer.clone(), config.limits.connect_timeout);
            let way = peers.of(&config.policy.way_to(&peer.config));
            tokio::spawn(async move { peer.check_over(&way, limit).await });
        }
        sleep(PERIOD).await;
    }
}
