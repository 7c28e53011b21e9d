// SPDX-License-Identifier: MIT OR Apache-2.0
//! One client connection from accept to its record.

use super::{
    Relay,
    config::{Config, Kind, Listener},
    counters::{Direction, Traffic},
    door::Door,
    drain::Phase,
    failure::Failure,
    intercept::Flow,
    listener,
    prefix::Prefix,
    profile::Profile,
    rate::Limits,
    record::{ConnectionRecord, Ended, Record},
    route::{Far, Request, Route},
    transfer::{self, End, Means, Side},
};
use host::{
    pipe_pool::Pool,
    socket::{memory, reset_on_close},
    tcp_info::TcpInfo,
};
use jiff::Timestamp;
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};
use tokio::{net::TcpStream, select};
use wire::destination::Destination;

/// One client connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) relay: Arc<Relay>,
    /// What held when it came: a reload is for later connections.
    pub(crate) config: Arc<Config>,
    pub(crate) listener: Arc<Listener>,
    pub(crate) door: Arc<Door>,
    pool: Arc<Pool>,
    limits: Limits,
    pub(crate) client: Arc<TcpStream>,
    /// Who is served: the connection's other end, or whom that announced.
    pub(crate) client_address: SocketAddr,
    /// The connection's other end.
    pub(crate) sender: SocketAddr,
    started: Instant,
    traffic: Traffic,
    way_out: Mutex<WayOut>,
}

/// What became of the client's last request.
#[derive(Debug, Default)]
struct WayOut {
    destination: Option<String>,
    next_hop: Option<SocketAddr>,
    far: Option<Arc<TcpStream>>,
}

impl Session {
    pub(crate) fn new(
        relay: Arc<Relay>,
        door: Arc<Door>,
        pool: Arc<Pool>,
        client: TcpStream,
        client_address: SocketAddr,
    ) -> Self {
        let listener = door.listener();
        Self {
            config: relay.config(),
            limits: door.limits(&listener, client_address.ip()),
            relay,
            listener,
            door,
            pool,
            client: Arc::new(client),
            client_address,
            sender: client_address,
            started: Instant::now(),
            traffic: Traffic::default(),
            way_out: Mutex::default(),
        }
    }

    /// Serves the client, sees both legs to their right end, and writes the record.
    pub(crate) async fn run(self) {
        let session = Arc::new(self);
        let _active = session.door.counters.connection();
        let _listed = session.relay.sessions.enter(session.clone());
        let end = select! {
            end = session.serve() => end,
            () = session.relay.drain.reached(Phase::Cut) => End::Cut,
        };
        session.close(&end);
        if session.relay.journal.is_kept() {
            session.relay.journal.put(session.record(&end));
        }
    }

    async fn serve(self: &Arc<Self>) -> End {
        if !self.is_welcome() {
            let _ = reset_on_close(&*self.client);
            return self.fail(Failure::NotAllowed);
        }
        match &self.listener.kind {
            // In boxes, as everything that is over before bytes are relayed: an idle connection
            // is as large as the largest state that its future may be in.
            Kind::Http => Box::pin(listener::http::serve(self)).await,
            Kind::Socks5 => Box::pin(listener::socks5::serve(self)).await,
            kind => listener::serve(self, kind).await,
        }
    }

    /// Invariant: no relay forwards for strangers.
    fn is_welcome(&self) -> bool {
        let from = self.client_address.ip();
        let listed = |prefixes: &[Prefix]| prefixes.iter().any(|prefix| prefix.contains(from));
        let transparent = matches!(self.listener.kind, Kind::Transparent { .. });
        let known = transparent || from.to_canonical().is_loopback();
        !listed(&self.listener.deny_from) && (known || listed(&self.listener.allow_from))
    }

    /// Opens the way out and remembers it for the record.
    pub(crate) async fn open(&self, request: &Request) -> Result<Far, Failure> {
        self.asks_for(request.destination.to_string());
        let far = match self.opened_ahead(&request.destination) {
            Some(far) => far.at_home_here()?,
            None => Box::pin(self.route().open(request)).await?,
        };
        self.count(Direction::Up, request.early.len());
        self.leaves_by(&far);
        Ok(far)
    }

    fn route(&self) -> Route<'_> {
        Route {
            config: &self.config,
            listener: &self.listener.name,
            client: self.client_address.ip().to_canonical(),
        }
    }

    /// The profile of a leg straight to `destination`, or `None` if it is to go through peers.
    pub(crate) fn straight_way(
        &self,
        destination: &Destination,
    ) -> Result<Option<Arc<Profile>>, Failure> {
        self.route().straight(destination)
    }

    /// Remembers for the record what the client wants.
    pub(crate) fn asks_for(&self, what: String) {
        self.way_out().destination = Some(what);
    }

    /// Remembers the outgoing leg, for the record and for the end.
    pub(crate) fn leaves_by(&self, far: &Far) {
        let mut way_out = self.way_out();
        way_out.next_hop = Some(far.address);
        way_out.far = Some(far.stream.clone());
    }

    /// Waits as long as the rate limits ask for these bytes.
    pub(crate) async fn pace(&self, direction: Direction, bytes: usize) {
        if let Some(until) = self.limits.spend(direction, bytes, Instant::now()) {
            tokio::time::sleep_until(until.into()).await;
        }
    }

    /// The far leg, if the client was let in because it stood.
    fn opened_ahead(&self, destination: &Destination) -> Option<Far> {
        match destination {
            Destination::Address(to) => self.door.ready.take(Flow::new(self.client_address, *to)),
            Destination::Name(..) => None,
        }
    }

    /// Relays between the client and `far` until the end.
    pub(crate) async fn transfer(&self, far: &Far, on_success: &[u8]) -> End {
        let means = Means {
            pool: &self.pool,
            counters: &self.door.counters,
            traffic: &self.traffic,
            limits: &self.limits,
            mode: far.mode.map(Into::into),
        };
        transfer::run(&self.client, far, on_success, &means).await
    }

    /// Counts bytes that did not pass through [`Session::transfer`].
    pub(crate) fn count(&self, direction: Direction, bytes: usize) {
        self.door.counters.traffic.add(direction, bytes);
        self.traffic.add(direction, bytes);
    }

    /// Counts a failure and names it as the end.
    pub(crate) fn fail(&self, failure: Failure) -> End {
        self.door.counters.fail(failure);
        End::Failed(failure)
    }

    /// Invariant: an abnormal end is never turned into a clean FIN. A failed connection was
    /// answered in words, if its protocol has any; otherwise the listener has asked for RST.
    fn close(&self, end: &End) {
        if matches!(end, End::Broken(..) | End::Cut) {
            // An error here means that the socket has lost its connection already.
            let _ = reset_on_close(&*self.client);
        }
        if let (Some(far), false) = (&self.way_out().far, matches!(end, End::Finished)) {
            let _ = reset_on_close(&**far);
        }
    }

    /// Kernel memory that both legs hold for data, in bytes. What is in pipes is counted by
    /// neither socket and bounded by the pool.
    pub(crate) fn memory(&self) -> u64 {
        let far = self.way_out().far.clone();
        let far = far.map(|far| memory(&*far).unwrap_or(0));
        memory(&*self.client).unwrap_or(0) + far.unwrap_or(0)
    }

    fn record(&self, end: &End) -> Record {
        let way_out = self.way_out();
        let (bytes_up, bytes_down) = self.traffic.read();
        let (ended, cause) = describe(end);
        let far = way_out.far.as_deref();
        Record::Connection(Box::new(ConnectionRecord {
            time: Timestamp::now(),
            kind: self.listener.kind.to_string(),
            listener: self.door.address,
            client: self.client_address,
            destination: way_out.destination.clone(),
            next_hop: way_out.next_hop,
            bytes_up,
            bytes_down,
            duration_s: self.started.elapsed().as_secs_f64(),
            ended,
            cause,
            near: TcpInfo::of(&*self.client).ok(),
            far: far.and_then(|far| TcpInfo::of(far).ok()),
        }))
    }

    fn way_out(&self) -> std::sync::MutexGuard<'_, WayOut> {
        self.way_out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn describe(end: &End) -> (Ended, Option<String>) {
    match end {
        End::Finished => (Ended::Finished, None),
        End::Broken(Side::Near, error) => (Ended::ClientBroke, Some(error.to_string())),
        End::Broken(Side::Far, error) => (Ended::DestinationBroke, Some(error.to_string())),
        End::Failed(failure) => (Ended::Failed, Some(failure.to_string())),
        End::Cut => (Ended::Cut, None),
    }
}
