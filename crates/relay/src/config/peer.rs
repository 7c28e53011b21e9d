// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another relay that connections may leave through: what is configured, and what is known of it.

use crate::config::{
    certificates::identity::Initiator,
    health::{Health, Report},
    limits::positive,
    location::{In as _, Table},
    profile::{Profile, Profiles, check_transport, profile_named},
    settings::{PeerSettings, RouteSettings, Settings, Transport},
};
use longhaul_admin::relay_record::PeerCounts;
use longhaul_command::{exit::Refusal, note};
use longhaul_protocol::{
    convert::{self, GroupId, Stripes},
    destination::Destination,
    failure::Failure,
};
use longhaul_transport::port::Departure;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::sync::Mutex as AsyncMutex;

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

/// A group of this size that nobody can guess; `None` if the kernel has no random bytes.
fn new_stripes(count: u8) -> Option<Stripes> {
    let mut id = [0; 16];
    // getrandom(2): up to 256 bytes are never cut short.
    let filled = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty());
    (filled == Ok(id.len())).then_some(Stripes {
        group: GroupId(id),
        count,
    })
}

/// A peer's place, and the addresses that its name had last.
#[derive(Debug)]
pub(crate) struct Place {
    destination: Destination,
    addresses: Mutex<Vec<SocketAddr>>,
}

/// The same place; what is known of it does not count.
impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.destination == other.destination
    }
}

impl Place {
    pub(crate) fn new(destination: Destination) -> Self {
        let addresses = match &destination {
            Destination::Address(address) => vec![*address],
            Destination::Name(..) => Vec::new(),
        };
        Self {
            destination,
            addresses: addresses.into(),
        }
    }

    /// As it is configured.
    pub(crate) fn destination(&self) -> &Destination {
        &self.destination
    }

    #[cfg(test)]
    pub(crate) fn port(&self) -> u16 {
        self.destination.port()
    }

    /// Whether it is at `address`, for all that is known.
    pub(crate) fn is_at(&self, address: SocketAddr) -> bool {
        self.addresses().contains(&address)
    }

    /// Its name has these addresses now. The order stays, with the address first that was reached last.
    pub(crate) fn has(&self, found: Vec<SocketAddr>) -> Option<SocketAddr> {
        let mut addresses = self.addresses();
        let reached = addresses.first().copied();
        *addresses = found;
        addresses.sort_by_key(|address| Some(*address) != reached);
        addresses.first().copied()
    }

    /// Where it was last, for all that is known: 0.0.0.0 if nothing is.
    pub(crate) fn last(&self) -> SocketAddr {
        let unknown = SocketAddr::from(([0; 4], self.destination.port()));
        self.addresses().first().copied().unwrap_or(unknown)
    }

    /// A connection to it stands, at `address`.
    pub(crate) fn was_reached(&self, address: SocketAddr) {
        let mut addresses = self.addresses();
        if !addresses.contains(&address) {
            addresses.push(address);
        }
        addresses.sort_by_key(|known| *known != address);
        addresses.truncate(ADDRESSES_MAX);
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, Vec<SocketAddr>> {
        self.addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Addresses of a name that are remembered.
const ADDRESSES_MAX: usize = 8;

pub(crate) fn peers(
    settings: &Settings,
    profiles: &Profiles,
) -> anyhow::Result<BTreeMap<String, Arc<Peer>>> {
    let chains = || settings.route.iter().flat_map(RouteSettings::chains);
    let peer = |(name, written): (&String, &PeerSettings)| {
        let begins = chains().any(|via| via.first() == Some(name));
        let profile = written.profile.as_deref().unwrap_or("far");
        let user = format!("peer {name}");
        let profile = profile_named(profile, profiles, &user)?;
        check_transport(written.transport, written.tls.is_some(), &profile, &user)?;
        let initiator = |tls| Initiator::new(tls, &user, name).map(Arc::new);
        let peer = Peer {
            is_configured: true,
            is_beyond: !begins && chains().any(|via| via.contains(name)),
            tls: written.tls.as_ref().map(initiator).transpose()?,
            pool: pool_size(written, &user)?,
            streams: streams(written, &user)?,
            transport: written.transport,
            pool_age: written
                .pool_age
                .map_or(Ok(POOL_AGE_DEFAULT), |age| positive("pool_age", age))?,
            ..Peer::new(name, written.address.0.clone(), profile)
        };
        Ok((name.clone(), Arc::new(peer)))
    };
    let located = |(name, written)| peer((name, written)).in_table(Table::Peer(name.clone()));
    settings.peer.iter().map(located).collect()
}

/// A peer's bound on what each worker may keep of it.
const POOL_MAX: u16 = 1024;

fn pool_size(written: &PeerSettings, user: &str) -> anyhow::Result<usize> {
    match written.pool.unwrap_or(0) {
        pool @ 0..=POOL_MAX => Ok(pool.into()),
        _ => Err(Refusal::usage(format!(
            "{user}: pool: want 0 to {POOL_MAX}"
        ))),
    }
}

fn streams(written: &PeerSettings, user: &str) -> anyhow::Result<u8> {
    match written.streams.unwrap_or(1) {
        streams @ 1..=convert::STRIPES_MAX => Ok(streams),
        _ => Err(Refusal::usage(format!(
            "{user}: streams: want 1 to {}",
            convert::STRIPES_MAX
        ))),
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
