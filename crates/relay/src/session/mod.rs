// SPDX-License-Identifier: MIT OR Apache-2.0
//! One client connection and its state.

pub(crate) mod client;
pub(crate) mod close;
pub(crate) mod http_memory;
pub(crate) mod measurement;
pub(crate) mod open_records;
pub(crate) mod reset_delay;
pub(crate) mod upstream;

use crate::{
    config::{
        Config,
        listener::{Kind, ListenerConfig},
        settings::Mode,
    },
    leg::stall::{IdleTimer, StallDetector},
    listeners::listener::Listener,
    peers::{
        current::{Peers, Setup},
        peer::Peer,
        pool::PeerPools,
    },
    records::{
        counters::{Pauses, Traffic},
        times::FirstByteTimer,
    },
    relay::Relay,
    session::{http_memory::HttpMemory, open_records::OpenRecords},
    stripe::{
        bundle::Bundle,
        incoming_groups::{GroupRegistration, JoinTicket, LegOrigin},
        outgoing_group::OutgoingGroup,
    },
};
use longhaul_admission::{
    accounts::{Account, ClientNetwork, ConnectionPermit},
    rate_limits::{Direction, RateLimits},
};
use longhaul_linux::pipe_pool::Pool;
use longhaul_protocol::{
    convert::{Join, Stripes},
    failure::Failure,
};
use longhaul_transport::{leg::Leg, tls::Tls, transport::TransportStream};
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
use tracing::debug;

/// One client connection and its state.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) relay: Arc<Relay>,
    pub(crate) listener: Arc<Listener>,
    pub(crate) setup: SessionSetup,
    worker: WorkerResources,
    pub(crate) client: Client,
    admission: Admission,
    pub(crate) traffic: Traffic,
    pub(crate) http: Arc<HttpMemory>,
    pub(crate) activity: Activity,
    pub(crate) records: SessionRecords,
    upstream: Mutex<Upstream>,
}

/// Configuration of the start of the session: a reload applies to later connections.
#[derive(Debug)]
pub(crate) struct SessionSetup {
    pub(crate) config: Arc<Config>,
    /// Peers of this configuration.
    pub(crate) peers: Arc<Peers>,
    pub(crate) listener_config: Arc<ListenerConfig>,
}

/// The client, and the leg to it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TransportStream,
    /// TLS of the leg, after the handshake.
    tls: OnceLock<Arc<Tls>>,
    /// Group that further legs of the client may join.
    group: OnceLock<Box<ClientGroup>>,
    /// The connection's remote end, or the source in a PROXY header.
    pub(crate) address: SocketAddr,
    /// Remote end of the connection.
    pub(crate) sender: SocketAddr,
    /// Destination in the PROXY header, if there is one.
    proxied_destination: Option<SocketAddr>,
    acts_for_remote: AtomicBool,
    /// Digest of a user and password that were accepted.
    login_digest: OnceLock<Box<[u8; 32]>>,
}

impl Client {
    fn new(stream: TransportStream, address: SocketAddr) -> Self {
        Self {
            stream,
            tls: OnceLock::new(),
            group: OnceLock::new(),
            address,
            sender: address,
            proxied_destination: None,
            acts_for_remote: AtomicBool::new(false),
            login_digest: OnceLock::new(),
        }
    }
}

/// Account, permits and rate limits of the client.
#[derive(Debug)]
struct Admission {
    account: Arc<Account>,
    connection_permit: OnceLock<ConnectionPermit>,
    rate_limits: RateLimits,
}

/// When bytes passed, and why they no longer do.
#[derive(Debug)]
pub(crate) struct Activity {
    pub(crate) started: Instant,
    first_byte: FirstByteTimer,
    idle_timer: IdleTimer,
    pauses: Pauses,
    /// Whether the client has stalled while it was to get the rest of what a broken destination had sent.
    has_stalled: AtomicBool,
    /// Stall detectors of the client and of the destination.
    stalls: Mutex<[StallDetector; 2]>,
    /// Reason for a cut of this connection alone.
    cut_reason: OnceLock<CutReason>,
}

impl Activity {
    fn new(now: Instant) -> Self {
        Self {
            started: now,
            first_byte: FirstByteTimer::new(now),
            idle_timer: IdleTimer::default(),
            pauses: Pauses::default(),
            has_stalled: AtomicBool::new(false),
            stalls: Mutex::default(),
            cut_reason: OnceLock::new(),
        }
    }
}

/// State of the records of the session.
#[derive(Debug)]
pub(crate) struct SessionRecords {
    /// Number of the session among all connections that this relay has served.
    pub(crate) number: u64,
    /// Records of the tunnel while it is open.
    open: OpenRecords,
    /// Whether the access log has records of this connection's HTTP requests.
    pub(crate) requests_logged: AtomicBool,
    /// Whether the final sample was taken.
    pub(crate) final_sample_taken: AtomicBool,
}

/// State of the client's last request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Upstream {
    /// User whose password was accepted.
    pub(crate) user: Option<String>,
    pub(crate) destination: Option<String>,
    pub(crate) next_hop: Option<SocketAddr>,
    pub(crate) transport: Option<TransportStream>,
    /// Group of which `transport` is the first leg.
    pub(crate) group: Option<Arc<OutgoingGroup>>,
    /// Peer at the other end of the upstream leg.
    pub(crate) peer: Option<Arc<Peer>>,
    /// Copy mode, once the transfer has begun.
    pub(crate) mode: Option<Mode>,
    /// Number of upstream legs so far.
    pub(crate) legs: u64,
}

impl Upstream {
    /// Returns the bundle of upstream legs, if there are several.
    pub(crate) fn bundle(&self) -> Option<&Arc<Bundle>> {
        self.group.as_ref().and_then(|group| group.bundle())
    }
}

/// Group that further legs of the client may join.
#[derive(Debug)]
struct ClientGroup {
    registration: GroupRegistration,
    /// Bytes of the stream that were read behind the request.
    early_bytes: u64,
}

/// Resources that the connections of one worker share.
#[derive(Debug, Clone)]
pub(crate) struct WorkerResources {
    pub(crate) pipe_pool: Arc<Pool>,
    pub(crate) peer_pools: Arc<PeerPools>,
}

impl Session {
    pub(crate) fn new(
        relay: Arc<Relay>,
        listener: Arc<Listener>,
        worker: WorkerResources,
        client: TransportStream,
        client_address: SocketAddr,
        number: u64,
    ) -> Self {
        let listener_config = listener.config();
        let Setup { config, peers } = relay.setup();
        let client_network = Self::client_network(&listener_config, client_address);
        let lookups = config.limits.lookups_per_client;
        debug!(client = %client_address, listener = %listener.address, "accepted");
        Self {
            client: Client::new(client, client_address),
            admission: Admission {
                account: relay.accounts.get_or_create(client_network, lookups),
                connection_permit: OnceLock::new(),
                rate_limits: listener.rate_limits(&listener_config, client_address.ip()),
            },
            setup: SessionSetup {
                config,
                peers,
                listener_config,
            },
            worker,
            relay,
            listener,
            traffic: Traffic::default(),
            http: Arc::default(),
            activity: Activity::new(Instant::now()),
            records: SessionRecords {
                number,
                open: OpenRecords::default(),
                requests_logged: AtomicBool::new(false),
                final_sample_taken: AtomicBool::new(false),
            },
            upstream: Mutex::default(),
        }
    }

    /// Registers the group that further legs of the client may join. `early_bytes` of the stream were read behind the
    /// request.
    pub(crate) fn register_group(
        &self,
        stripes: Stripes,
        early_bytes: usize,
    ) -> Result<(), Failure> {
        let (groups, first) = (&self.relay.groups, self.client_leg());
        let registration = GroupRegistration::new(groups, stripes, self.origin(), first)
            .ok_or(Failure::BadRequest)?;
        let group = ClientGroup {
            registration,
            early_bytes: early_bytes as u64,
        };
        let _ = self.client.group.set(group.into());
        Ok(())
    }

    /// Returns a ticket for the group that the client wants to join.
    pub(crate) fn issue_ticket(&self, join: Join) -> Result<JoinTicket, Failure> {
        let ticket = self.relay.groups.issue_ticket(join, &self.origin());
        ticket.ok_or(Failure::NotAllowed)
    }

    fn origin(&self) -> LegOrigin {
        LegOrigin {
            listener: self.listener.address,
            source: self.client.address.ip(),
            certificate: self.client_leg().peer_certificate(),
        }
    }

    /// Returns the leg to the client, for use by another session.
    pub(crate) fn into_client_leg(self) -> Leg {
        Leg::with_tls(self.client.stream, self.client.tls.into_inner())
    }

    /// Returns the leg to the client.
    pub(crate) fn client_leg(&self) -> Leg {
        Leg::with_tls(self.client.stream.clone(), self.client.tls.get().cloned())
    }

    /// Returns the bundle of legs to the client, if the client is a relay and further legs have joined.
    pub(crate) fn client_bundle(&self) -> Option<&Arc<Bundle>> {
        let group = self.client.group.get();
        group.and_then(|group| group.registration.bundle())
    }

    /// Starts the timer of a further request on the client's connection.
    pub(crate) fn start_request_timer(&self) {
        self.activity.first_byte.start();
    }

    /// Records the first byte of the answer to the last request.
    pub(crate) fn stop_request_timer(&self) {
        self.activity
            .first_byte
            .record_first_byte(&self.listener.counters.times);
    }

    /// Stores that the client, a relay, acts for a client on another host.
    pub(crate) fn set_acts_for_remote(&self) {
        self.client.acts_for_remote.store(true, Relaxed);
    }

    /// Returns the client_network of the client's account.
    fn client_network(listener: &ListenerConfig, client: SocketAddr) -> ClientNetwork {
        ClientNetwork::new(client.ip(), listener.kind == Kind::Convert)
    }

    /// Tries to acquire permits for descriptors beyond the two of every connection; a permit stands
    /// for two descriptors. It does not wait: a connection that waits while it holds a permit could
    /// wait without end.
    pub(crate) fn try_acquire_permits(&self, count: u32) -> Result<OwnedSemaphorePermit, Failure> {
        let permits = self
            .relay
            .connection_permits
            .clone()
            .try_acquire_many_owned(count);
        permits.map_err(|_| Failure::Exhausted)
    }

    /// Returns the rate limits of the connection.
    pub(crate) fn rate_limits(&self) -> &RateLimits {
        &self.admission.rate_limits
    }

    /// Stores the requested destination for the record.
    pub(crate) fn set_destination(&self, destination: String) {
        self.lock_upstream().destination = Some(destination);
    }

    /// Waits as long as the rate limits require for these bytes.
    pub(crate) async fn pace(&self, direction: Direction, bytes: usize) {
        if let Some(until) = self
            .admission
            .rate_limits
            .spend(direction, bytes, Instant::now)
        {
            tokio::time::sleep_until(until.into()).await;
        }
    }

    /// Starts the timers of a tunnel: from now on the connection is cut when it is idle for too long, and has records
    /// while it is open.
    pub(crate) fn start_tunnel_timers(&self) {
        let now = Instant::now();
        self.activity.idle_timer.start(now);
        if let Some(interval) = self.setup.config.access_log_interval {
            self.records.open.timer.start(now + interval);
        }
    }

    /// Counts bytes that did not pass through [`Session::transfer`].
    pub(crate) fn count_bytes(&self, direction: Direction, bytes: usize) {
        self.listener.counters.traffic.add(direction, bytes);
        self.traffic.add(direction, bytes);
    }

    /// Returns a copy of the state of the last request.
    pub(crate) fn upstream(&self) -> Upstream {
        self.lock_upstream().clone()
    }

    fn lock_upstream(&self) -> parking_lot::MutexGuard<'_, Upstream> {
        self.upstream.lock()
    }
}

/// Reason why the relay cut one connection and not all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CutReason {
    /// The client or the destination has taken no bytes for too long.
    #[error("the receiver took no bytes for limits.stall_timeout")]
    Stalled,
    /// The memory budget was used up.
    #[error("the memory budget was used up")]
    Memory,
    /// A tunnel was idle for too long.
    #[error("no bytes have passed for limits.tunnel_idle_timeout")]
    Idle,
}
