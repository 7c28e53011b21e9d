// SPDX-License-Identifier: MIT OR Apache-2.0
//! One client connection, and what is known of it.

pub(crate) mod client;
pub(crate) mod end;
pub(crate) mod http_memory;
pub(crate) mod observation;
pub(crate) mod stillness;
pub(crate) mod way_out;

use crate::{
    config::{
        Config,
        listener::{Kind, Listener},
        settings::Mode,
    },
    doors::door::Door,
    peers::{
        current::{Peers, Setup},
        peer::Peer,
        pool::Ready,
    },
    records::{
        counters::{Pauses, Traffic},
        times::FirstByte,
    },
    relay::Relay,
    session::{
        http_memory::HttpMemory,
        stillness::{Idleness, Standstill},
    },
    stripe::{
        groups::{Entry, Founder, Seat},
        trunk::Trunk,
    },
};
use longhaul_admission::{
    accounts::{Account, ConnectionPermit, Holder},
    rate_limits::{Direction, RateLimits},
};
use longhaul_linux::pipe_pool::Pool;
use longhaul_protocol::{
    convert::{Join, Stripes},
    failure::Failure,
};
use longhaul_transport::{carrier::Carrier, leg::Leg, tls::Tls};
use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};
use tokio::sync::OwnedSemaphorePermit;

/// One client connection.
#[derive(Debug)]
pub(crate) struct Session {
    /// Among all that this relay has served.
    pub(crate) number: u64,
    pub(crate) relay: Arc<Relay>,
    /// What held when it came: a reload is for later connections.
    pub(crate) config: Arc<Config>,
    /// Those of this configuration.
    pub(crate) peers: Arc<Peers>,
    pub(crate) listener: Arc<Listener>,
    pub(crate) door: Arc<Door>,
    pool: Arc<Pool>,
    ready: Arc<Ready>,
    limits: RateLimits,
    /// Of whom is served.
    account: Arc<Account>,
    permit: OnceLock<ConnectionPermit>,
    pub(crate) client: Carrier,
    /// What protects the leg to the client, once that is settled.
    tls: OnceLock<Arc<Tls>>,
    /// The group that the client wants its connection carried by.
    founder: OnceLock<Box<Founder>>,
    /// Who is served: the connection's other end, or whom that announced.
    pub(crate) client_address: SocketAddr,
    /// The connection's other end.
    pub(crate) sender: SocketAddr,
    /// Where the client came in, if that was announced.
    announced: Option<SocketAddr>,
    asks_for_others: AtomicBool,
    /// The digest of the user and password that were right.
    pub(crate) credentials: OnceLock<Box<[u8; 32]>>,
    pub(crate) started: Instant,
    pub(crate) traffic: Traffic,
    pub(crate) pauses: Pauses,
    pub(crate) http: Arc<HttpMemory>,
    first_byte: FirstByte,
    idleness: Idleness,
    /// Of the client, and of who is at the other end.
    standstills: Mutex<[Standstill; 2]>,
    /// Why it was cut, if it was cut alone.
    why_cut: OnceLock<WhyCut>,
    /// The survey has counted its end.
    pub(crate) seen_last: AtomicBool,
    way_out: Mutex<WayOut>,
}

/// What became of the client's last request.
#[derive(Debug, Clone, Default)]
pub(crate) struct WayOut {
    pub(crate) destination: Option<String>,
    pub(crate) next_hop: Option<SocketAddr>,
    pub(crate) far: Option<Carrier>,
    /// The legs that `far` is the first of.
    pub(crate) trunk: Option<Arc<Trunk>>,
    /// The peer that the outgoing leg goes to.
    pub(crate) peer: Option<Arc<Peer>>,
    /// How bytes move, once they do.
    pub(crate) mode: Option<Mode>,
    /// Outgoing legs that there were.
    pub(crate) legs: u64,
}

/// What the connections of one worker share.
#[derive(Debug, Clone)]
pub(crate) struct Shares {
    pub(crate) pool: Arc<Pool>,
    pub(crate) ready: Arc<Ready>,
}

impl Session {
    pub(crate) fn new(
        relay: Arc<Relay>,
        door: Arc<Door>,
        Shares { pool, ready }: Shares,
        (client, client_address): (Carrier, SocketAddr),
        number: u64,
    ) -> Self {
        let (listener, now) = (door.listener(), Instant::now());
        let Setup { config, peers } = relay.setup();
        let holder = Self::holder(&listener, client_address);
        Self {
            number,
            account: relay.accounts.of(holder, config.limits.lookups_per_client),
            config,
            peers,
            limits: door.limits(&listener, client_address.ip()),
            relay,
            listener,
            door,
            pool,
            ready,
            tls: OnceLock::new(),
            founder: OnceLock::new(),
            client,
            client_address,
            sender: client_address,
            announced: None,
            started: now,
            first_byte: FirstByte::new(now),
            idleness: Idleness::default(),
            asks_for_others: AtomicBool::new(false),
            credentials: OnceLock::new(),
            traffic: Traffic::default(),
            pauses: Pauses::default(),
            http: Arc::default(),
            permit: OnceLock::new(),
            standstills: Mutex::default(),
            why_cut: OnceLock::new(),
            seen_last: AtomicBool::new(false),
            way_out: Mutex::default(),
        }
    }

    /// Founds the group that the client asks for; `ahead` came behind the request.
    pub(crate) fn found(&self, stripes: Stripes, ahead: Vec<u8>) -> Result<(), Failure> {
        let legs_max = stripes.count.into();
        let trunk = Trunk::new(self.near(), legs_max, &self.listener.profile);
        let founder = Founder::new(&self.relay.groups, stripes, self.entry(), (trunk, ahead));
        let founder = founder.ok_or(Failure::BadRequest)?;
        let _ = self.founder.set(founder.into());
        Ok(())
    }

    /// A seat in the group that the client wants to join.
    pub(crate) fn join(&self, join: Join) -> Result<Seat, Failure> {
        let seat = self.relay.groups.seat(join, &self.entry());
        seat.ok_or(Failure::NotAllowed)
    }

    fn entry(&self) -> Entry {
        Entry {
            door: self.door.address,
            source: self.client_address.ip(),
            certificate: self.near().certificate(),
        }
    }

    /// The leg to the client, which is another session's from now on.
    pub(crate) fn into_near(self) -> Leg {
        Leg::protected(self.client, self.tls.into_inner())
    }

    /// The leg to the client.
    pub(crate) fn near(&self) -> Leg {
        Leg::protected(self.client.clone(), self.tls.get().cloned())
    }

    /// The legs to the client, if it is a relay that wants several.
    pub(crate) fn near_trunk(&self) -> Option<&Arc<Trunk>> {
        self.founder.get().map(|founder| &founder.trunk)
    }

    /// Another request on the client's connection.
    pub(crate) fn asks_again(&self) {
        self.first_byte.asked();
    }

    /// The answer to the last request begins.
    pub(crate) fn hears_answer(&self) {
        self.first_byte.came(&self.door.counters.times);
    }

    /// The client, a relay, has said that its own client is from elsewhere.
    pub(crate) fn asks_for_others(&self) {
        self.asks_for_others.store(true, Relaxed);
    }

    /// Whose account it is on.
    fn holder(listener: &Listener, client: SocketAddr) -> Holder {
        Holder::new(client.ip(), listener.kind == Kind::Convert)
    }

    /// Places for descriptors beyond the two of every connection, two a place. Whoever waited for
    /// them while it holds one could wait for ever, so that it is now or never.
    pub(crate) fn more_places(&self, count: u32) -> Result<OwnedSemaphorePermit, Failure> {
        let places = self.relay.places.clone().try_acquire_many_owned(count);
        places.map_err(|_| Failure::Exhausted)
    }

    /// The rate limits that it is under.
    pub(crate) fn limits(&self) -> &RateLimits {
        &self.limits
    }

    /// Remembers for the record what the client wants.
    pub(crate) fn asks_for(&self, what: String) {
        self.way_out().destination = Some(what);
    }

    /// Waits as long as the rate limits ask for these bytes.
    pub(crate) async fn pace(&self, direction: Direction, bytes: usize) {
        if let Some(until) = self.limits.spend(direction, bytes, Instant::now) {
            tokio::time::sleep_until(until.into()).await;
        }
    }

    /// From now on it ends when it has carried nothing for too long.
    pub(crate) fn is_tunnel(&self) {
        self.idleness.begin(Instant::now());
    }

    /// Counts bytes that did not pass through [`Session::transfer`].
    pub(crate) fn count(&self, direction: Direction, bytes: usize) {
        self.door.counters.traffic.add(direction, bytes);
        self.traffic.add(direction, bytes);
    }

    /// The last request, as it is now.
    pub(crate) fn last_way_out(&self) -> WayOut {
        self.way_out().clone()
    }

    fn way_out(&self) -> parking_lot::MutexGuard<'_, WayOut> {
        self.way_out.lock()
    }
}

/// Why the relay ended one connection and not all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WhyCut {
    /// Its client, or who is at the other end, has taken nothing for too long.
    #[error("nothing was taken for the time of limits.stall_timeout")]
    TookNothing,
    /// The memory budget was used up.
    #[error("the memory budget was used up")]
    Memory,
    /// A tunnel has carried nothing for too long.
    #[error("nothing has passed for the time of limits.tunnel_idle_timeout")]
    Idle,
}
