// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another relay that connections may leave through.

use crate::{
    Relay,
    candidates::Candidates,
    certificates::Initiator,
    config::settings::Transport,
    connect::{self, connect, race},
    disagreement::Obstacle,
    fault::Fault,
    health::{Health, Report},
    leg::Leg,
    place::Place,
    profile::Profile,
    shortage::within,
    stripe::group::new_stripes,
    udt,
};
use futures_util::future::BoxFuture;
use longhaul_admin::relay_record::PeerCounts;
use longhaul_command::note;
use longhaul_protocol::failure::Failure;
use longhaul_protocol::{
    convert::{Answer, Cause, ConvertError, ErrorCode, Request, Stripes},
    destination::Destination,
};
use longhaul_transport::{
    carrier::Carrier,
    channel::{read_some, write_all},
    port::Departure,
    tls::Tls,
};
use std::{
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{
    sync::Mutex as AsyncMutex,
    time::{sleep, timeout},
};

/// A peer as configured, and what is known of it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) place: Place,
    /// Of the legs to it.
    pub(crate) profile: Arc<Profile>,
    /// What the legs to it are protected by.
    pub(crate) tls: Option<Arc<Initiator>>,
    /// What the legs to it go over.
    pub(crate) transport: Transport,
    /// The ports that those over UDT leave by.
    pub(crate) departure: Departure,
    /// Ready connections that each worker keeps.
    pub(crate) pool: usize,
    /// After which time without use a ready connection is replaced.
    pub(crate) pool_age: Duration,
    /// Legs that carry one client's connection together; 1 is none but the first.
    pub(crate) streams: u8,
    /// It is in the configuration. Another one, which only a request names, is not watched, and
    /// nothing is said of it: whoever may ask would choose what.
    pub(crate) is_configured: bool,
    /// Chains pass it and none begins with it: what relays before it say of it is its health.
    pub(crate) is_beyond: bool,
    pub(crate) health: Health,
    /// The end of the last check that a doubt caused; held by whoever checks.
    pub(crate) doubted: AsyncMutex<Option<Instant>>,
    /// It was said that clients go straight while it is down.
    pub(crate) passed_by: AtomicBool,
    pub(crate) stock: StockCounters,
    pub(crate) striping: Striping,
}

/// What is known of striping to a peer.
#[derive(Debug, Default)]
pub(crate) struct Striping {
    /// When the peer said that it knows no groups.
    refused: Mutex<Option<Instant>>,
    /// Legs that could not join.
    missing: AtomicU64,
    /// Not all legs of the last group could.
    short: AtomicBool,
}

impl Striping {
    /// Counts the legs that could not join a group. Returns whether that is news.
    fn note_missing(&self, legs: usize) -> bool {
        self.missing.fetch_add(legs as u64, Relaxed);
        let short = legs > 0;
        self.short.swap(short, Relaxed) != short
    }
}

/// After which time a peer that knew no groups is asked again: it may have been replaced.
const STRIPING_PAUSE: Duration = Duration::from_secs(600);

/// Half of the time that a Convert listener waits for a request by default.
pub(crate) const POOL_AGE_DEFAULT: Duration = Duration::from_secs(60);

/// How the ready connections of all workers do.
#[derive(Debug, Default)]
pub(crate) struct StockCounters {
    /// Standing ready now.
    pub(crate) ready: AtomicU64,
    /// Requests that found one.
    pub(crate) hits: AtomicU64,
    /// Requests that found none although some are kept.
    pub(crate) misses: AtomicU64,
}

/// The same relay by the same means; what is known of it does not count.
impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.place, &self.profile, self.pool)
            == (&other.name, &other.place, &other.profile, other.pool)
            && (self.pool_age, self.streams) == (other.pool_age, other.streams)
            && self.is_beyond == other.is_beyond
            && (&self.tls, self.transport) == (&other.tls, other.transport)
    }
}

impl Eq for Peer {}

impl Peer {
    /// A peer that a request names, without TLS and without ready connections.
    pub(crate) fn new(name: &str, place: Destination, profile: Arc<Profile>) -> Self {
        Self {
            name: name.to_owned(),
            place: Place::new(place),
            profile,
            tls: None,
            transport: Transport::Tcp,
            departure: Departure::default(),
            pool: 0,
            pool_age: POOL_AGE_DEFAULT,
            is_configured: false,
            is_beyond: false,
            health: Health::default(),
            doubted: AsyncMutex::default(),
            passed_by: AtomicBool::new(false),
            stock: StockCounters::default(),
            streams: 1,
            striping: Striping::default(),
        }
    }

    /// A new group, if one is wanted and the peer, for all that is known, would take it.
    pub(crate) fn new_stripes(&self) -> Option<Stripes> {
        let refused = *self.refused();
        let pause = refused.is_some_and(|at| at.elapsed() < STRIPING_PAUSE);
        (self.streams > 1 && !pause)
            .then(|| new_stripes(self.streams))
            .flatten()
    }

    /// The peer has said that it knows no groups.
    pub(crate) fn refuse_stripes(&self) {
        if self.refused().replace(Instant::now()).is_none() {
            note!("longhaul relay: peer {} takes one stream only", self.name);
        }
    }

    /// Counts the legs that could not join their group, and says so once until all could again.
    pub(crate) fn note_missing_streams(&self, missing: &[Failure]) {
        if !self.striping.note_missing(missing.len()) {
            return;
        }
        let (name, streams) = (&self.name, self.streams);
        match missing {
            [] => note!("longhaul relay: peer {name}: all {streams} streams join again"),
            [why, ..] => note!(
                "longhaul relay: peer {name}: {} of {streams} streams could not join: {why}; the \
                 others carry on",
                missing.len()
            ),
        }
    }

    fn refused(&self) -> MutexGuard<'_, Option<Instant>> {
        let refused = self.striping.refused.lock();
        refused.unwrap_or_else(PoisonError::into_inner)
    }

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

    /// Says once that a listener's clients go straight to their destinations without it.
    pub(crate) fn is_passed_by(&self, listener: &str) {
        if !self.passed_by.swap(true, Relaxed) {
            let name = &self.name;
            note!(
                "longhaul relay: {listener}: clients go straight to their destinations while peer \
                 {name} is down"
            );
        }
    }

    /// It has served this relay.
    pub(crate) fn is_back(&self) {
        self.passed_by.store(false, Relaxed);
        if self.health.reached(Instant::now()) && self.is_configured {
            note!("longhaul relay: peer {} is back", self.name);
        }
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
        let tls = by.protect(carrier).await;
        let from = carrier.local_addr().ok();
        tls.map(Arc::new)
            .map_err(|error| Obstacle::from_io(error, from))
    }

    /// Its health and its ready connections.
    pub(crate) fn read(&self) -> PeerCounts {
        let Report {
            down_since,
            failures,
        } = self.health.report();
        PeerCounts {
            name: self.name.clone(),
            address: self.place.destination().to_string(),
            down_s: down_since.map(|since| since.elapsed().as_secs_f64()),
            failures,
            ready: self.stock.ready.load(Relaxed),
            ready_hits: self.stock.hits.load(Relaxed),
            ready_misses: self.stock.misses.load(Relaxed),
            streams_missing: self.striping.missing.load(Relaxed),
        }
    }

    /// Counts a request that came for a ready connection.
    pub(crate) fn count_taken(&self, found: bool) {
        let counter = match found {
            true => &self.stock.hits,
            false => &self.stock.misses,
        };
        counter.fetch_add(1, Relaxed);
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

/// Between 0 and 1. Where chance decides about waiting only, the seeds of hash tables are enough.
pub(crate) fn jitter() -> f64 {
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_streams_are_news_once_and_so_is_their_return() {
        let striping = Striping::default();
        let told = [0, 3, 1, 0, 0, 2].map(|legs| striping.note_missing(legs));
        assert_eq!(told, [false, true, false, true, false, true]);
        assert_eq!(striping.missing.load(Relaxed), 6);
    }
}
