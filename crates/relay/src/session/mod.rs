// SPDX-License-Identifier: MIT OR Apache-2.0
//! One client connection and its state.

pub(crate) mod client;
pub(crate) mod end;
pub(crate) mod http_memory;
pub(crate) mod observation;
pub(crate) mod stillness;
pub(crate) mod way_out;

use crate::{
    config::{
        Config,
        listener::{Kind, ListenerConfig},
        settings::Mode,
    },
    listeners::listener::Listener,
    peers::{
        current::{Peers, Setup},
        peer::Peer,
        pool::PeerPools,
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

/// One client connection and its state.
#[derive(Debug)]
pub(crate) struct Session {
    /// Number among all connections that this relay has served.
    pub(crate) number: u64,
    pub(crate) relay: Arc<Relay>,
    /// Configuration of the start of the session: a reload applies to later connections.
    pub(crate) config: Arc<Config>,
    /// Peers of this configuration.
    pub(crate) peers: Arc<Peers>,
    pub(crate) listener_config: Arc<ListenerConfig>,
    pub(crate) listener: Arc<Listener>,
    pool: Arc<Pool>,
    ready: Arc<PeerPools>,
    limits: RateLimits,
    /// Account of the client.
    account: Arc<Account>,
    permit: OnceLock<ConnectionPermit>,
    pub(crate) client: Carrier,
    /// TLS of the leg to the client, after the handshake.
    tls: OnceLock<Arc<Tls>>,
    /// Stripe group that the client has requested.
    founder: OnceLock<Box<Founder>>,
    /// Client's address: the connection's remote end, or the source in a PROXY header.
    pub(crate) client_address: SocketAddr,
    /// Remote end of the connection.
    pub(crate) sender: SocketAddr,
    /// Destination in the PROXY header, if there is one.
    announced: Option<SocketAddr>,
    asks_for_others: AtomicBool,
    /// Digest of a user and password that were accepted.
    pub(crate) credentials: OnceLock<Box<[u8; 32]>>,
    pub(crate) started: Instant,
    pub(crate) traffic: Traffic,
    pub(crate) pauses: Pauses,
    pub(crate) http: Arc<HttpMemory>,
    first_byte: FirstByte,
    idleness: Idleness,
    /// Stall detectors of the client and of the far end.
    standstills: Mutex<[Standstill; 2]>,
    /// Reason for a cut of this connection alone.
    why_cut: OnceLock<WhyCut>,
    /// Whether the final sample was taken.
    pub(crate) seen_last: AtomicBool,
    way_out: Mutex<WayOut>,
}

/// State of the client's last request.
#[derive(Debug, Clone, Default)]
pub(crate) struct WayOut {
    pub(crate) destination: Option<String>,
    pub(crate) next_hop: Option<SocketAddr>,
    pub(crate) far: Option<Carrier>,
    /// Bundle of which `far` is the first leg.
    pub(crate) trunk: Option<Arc<Trunk>>,
    /// Peer at the other end of the far leg.
    pub(crate) peer: Option<Arc<Peer>>,
    /// Copy mode, once the transfer has begun.
    pub(crate) mode: Option<Mode>,
    /// Number of far legs so far.
    pub(crate) legs: u64,
}

/// Resources that the connections of one worker share.
#[derive(Debug, Clone)]
pub(crate) struct Shares {
    pub(crate) pool: Arc<Pool>,
    pub(crate) ready: Arc<PeerPools>,
}

impl Session {
    pub(crate) fn new(
        relay: Arc<Relay>,
        listener: Arc<Listener>,
        Shares { pool, ready }: Shares,
        (client, client_address): (Carrier, SocketAddr),
        number: u64,
    ) -> Self {
        let (listener_config, now) = (listener.config(), Instant::now());
        let Setup { config, peers } = relay.setup();
        let holder = Self::holder(&listener_config, client_address);
        Self {
            number,
            account: relay.accounts.of(holder, config.limits.lookups_per_client),
            config,
            peers,
            limits: listener.limits(&listener_config, client_address.ip()),
            relay,
            listener_config,
            listener,
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

    /// Registers the stripe group that the client requests. `ahead` was read behind the request.
    pub(crate) fn found(&self, stripes: Stripes, ahead: Vec<u8>) -> Result<(), Failure> {
        let legs_max = stripes.count.into();
        let trunk = Trunk::new(self.near(), legs_max, &self.listener_config.profile);
        let founder = Founder::new(&self.relay.groups, stripes, self.entry(), (trunk, ahead));
        let founder = founder.ok_or(Failure::BadRequest)?;
        let _ = self.founder.set(founder.into());
        Ok(())
    }

    /// Returns a ticket for the group that the client wants to join.
    pub(crate) fn join(&self, join: Join) -> Result<Seat, Failure> {
        let seat = self.relay.groups.seat(join, &self.entry());
        seat.ok_or(Failure::NotAllowed)
    }

    fn entry(&self) -> Entry {
        Entry {
            listener: self.listener.address,
            source: self.client_address.ip(),
            certificate: self.near().certificate(),
        }
    }

    /// Returns the leg to the client, for use by another session.
    pub(crate) fn into_near(self) -> Leg {
        Leg::protected(self.client, self.tls.into_inner())
    }

    /// Returns the leg to the client.
    pub(crate) fn near(&self) -> Leg {
        Leg::protected(self.client.clone(), self.tls.get().cloned())
    }

    /// Returns the bundle of legs to the client, if the client is a relay that requested one.
    pub(crate) fn near_trunk(&self) -> Option<&Arc<Trunk>> {
        self.founder.get().map(|founder| &founder.trunk)
    }

    /// Starts the timer of a further request on the client's connection.
    pub(crate) fn asks_again(&self) {
        self.first_byte.asked();
    }

    /// Records the first byte of the answer to the last request.
    pub(crate) fn hears_answer(&self) {
        self.first_byte.came(&self.listener.counters.times);
    }

    /// Stores that the client, a relay, acts for a client on another host.
    pub(crate) fn asks_for_others(&self) {
        self.asks_for_others.store(true, Relaxed);
    }

    /// Returns the holder of the client's account.
    fn holder(listener: &ListenerConfig, client: SocketAddr) -> Holder {
        Holder::new(client.ip(), listener.kind == Kind::Convert)
    }

    /// Tries to acquire permits for descriptors beyond the two of every connection; a permit stands
    /// for two descriptors. It does not wait: a connection that waits while it holds a permit could
    /// wait without end.
    pub(crate) fn more_places(&self, count: u32) -> Result<OwnedSemaphorePermit, Failure> {
        let places = self
            .relay
            .connection_permits
            .clone()
            .try_acquire_many_owned(count);
        places.map_err(|_| Failure::Exhausted)
    }

    /// Returns the rate limits of the connection.
    pub(crate) fn limits(&self) -> &RateLimits {
        &self.limits
    }

    /// Stores the requested destination for the record.
    pub(crate) fn asks_for(&self, what: String) {
        self.way_out().destination = Some(what);
    }

    /// Waits as long as the rate limits require for these bytes.
    pub(crate) async fn pace(&self, direction: Direction, bytes: usize) {
        if let Some(until) = self.limits.spend(direction, bytes, Instant::now) {
            tokio::time::sleep_until(until.into()).await;
        }
    }

    /// Starts the idle timer: from now on the connection is cut when it is idle for too long.
    pub(crate) fn is_tunnel(&self) {
        self.idleness.begin(Instant::now());
    }

    /// Counts bytes that did not pass through [`Session::transfer`].
    pub(crate) fn count(&self, direction: Direction, bytes: usize) {
        self.listener.counters.traffic.add(direction, bytes);
        self.traffic.add(direction, bytes);
    }

    /// Returns a copy of the state of the last request.
    pub(crate) fn last_way_out(&self) -> WayOut {
        self.way_out().clone()
    }

    fn way_out(&self) -> parking_lot::MutexGuard<'_, WayOut> {
        self.way_out.lock()
    }
}

/// Reason why the relay cut one connection and not all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WhyCut {
    /// The client or the far end has taken no bytes for too long.
    #[error("nothing was taken for the time of limits.stall_timeout")]
    TookNothing,
    /// The memory budget was used up.
    #[error("the memory budget was used up")]
    Memory,
    /// A tunnel was idle for too long.
    #[error("nothing has passed for the time of limits.tunnel_idle_timeout")]
    Idle,
}
