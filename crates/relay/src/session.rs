// SPDX-License-Identifier: MIT OR Apache-2.0
//! One client connection from accept to its record.

use crate::{
    Relay,
    admission::{
        accounts::{Account, Entered, Holder},
        lookups::Asker,
        rate::Limits,
        victims::Holding,
    },
    announcement,
    config::{
        Config,
        listener::{Kind, Listener},
        networks::Prefix,
        peer::Peer,
        profile::Profile,
        settings::Mode,
    },
    door::Door,
    faults::{disagreement::Stranger, fault::Fault},
    http_memory::HttpMemory,
    idle::Idleness,
    intercept::flow::Flow,
    leg::{Leg, candidates::Candidates},
    listener,
    peers::ready::Ready,
    records::{
        counters::{Direction, Pauses, Traffic},
        times::FirstByte,
    },
    route::{
        Route,
        far::Far,
        local::{self, LocalAccess},
        request::Request,
    },
    standstill::Standstill,
    stripe::{
        groups::{Entry, Founder, Seat},
        trunk::Trunk,
    },
    transfer::{
        self, End, Means, Side,
        striped::{self, Ends},
    },
    worker::Newcomer,
};
use jiff::Timestamp;
use longhaul_admin::relay_record::{ConnectionRecord, Ended, Record};
use longhaul_linux::pipe_pool::Pool;
use longhaul_protocol::{
    convert::{Join, Stripes},
    destination::Destination,
    failure::Failure,
    proxy_protocol::Header,
};
use longhaul_transport::{carrier::Carrier, tls::Tls};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

/// One client connection.
#[derive(Debug)]
pub(crate) struct Session {
    /// Among all that this relay has served.
    pub(crate) number: u64,
    pub(crate) relay: Arc<Relay>,
    /// What held when it came: a reload is for later connections.
    pub(crate) config: Arc<Config>,
    pub(crate) listener: Arc<Listener>,
    pub(crate) door: Arc<Door>,
    pool: Arc<Pool>,
    ready: Arc<Ready>,
    limits: Limits,
    /// Of whom is served.
    account: Arc<Account>,
    entered: OnceLock<Entered>,
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

/// Serves a newcomer, sees both legs to their right end, and writes the record. Dropped before the
/// end, the connection is cut.
pub(crate) async fn run(newcomer: Newcomer, shares: Shares) {
    // The place is free, and counted as such, once the sockets are closed.
    let Newcomer {
        place: _place,
        seated: _seated,
        entry,
        relay,
        door,
        client,
        address,
    } = newcomer;
    let session = Session::new(relay, door, shares, (client, address), entry.number);
    let mut session = Arc::new(session);
    let announced = match Arc::get_mut(&mut session) {
        Some(own) if own.listener.accept_proxy => Box::pin(own.hear_announcement()).await,
        _ => Ok(()),
    };
    entry.is(&session);
    let seat = {
        let _active = session.door.counters.connection();
        let mut finale = Finale {
            session: &session,
            end: End::Cut,
        };
        let end = session.serve(announced).await;
        match end {
            // As a connection of its own it was never asked for anything.
            End::Joined(seat) => {
                finale.end = End::Finished;
                seat
            }
            end => {
                finale.end = end;
                return;
            }
        }
    };
    entry.is_anothers();
    Box::pin(take_seat(session, seat)).await;
}

/// The leg is another session's from now on, but has its place here until that is over.
async fn take_seat(session: Arc<Session>, seat: Seat) {
    let leg = match Arc::try_unwrap(session) {
        Ok(session) => Leg::protected(session.client, session.tls.into_inner()),
        // Somebody adds up memory right now: the leg is shared for ever, which costs wake-ups.
        Err(shared) => shared.near(),
    };
    seat.take(leg).await;
}

/// What is to be done when a connection ends, however it ends.
struct Finale<'a> {
    session: &'a Session,
    end: End,
}

impl Drop for Finale<'_> {
    fn drop(&mut self) {
        let Self { session, end } = self;
        session.relay.survey.see_last_of(session);
        session.close(end);
        if !session.was_unused(end) {
            let lasted = session.started.elapsed();
            session.door.counters.times.duration.add(lasted);
        }
        if session.relay.journal.is_kept() && !session.was_unused(end) {
            session.relay.journal.put(session.record(end));
        }
    }
}

impl Session {
    fn new(
        relay: Arc<Relay>,
        door: Arc<Door>,
        Shares { pool, ready }: Shares,
        (client, client_address): (Carrier, SocketAddr),
        number: u64,
    ) -> Self {
        let (listener, config, now) = (door.listener(), relay.config(), Instant::now());
        let holder = Self::holder(&listener, client_address);
        Self {
            number,
            account: relay.accounts.of(holder, config.limits.lookups_per_client),
            config,
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
            entered: OnceLock::new(),
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

    /// Lets the sender say whom it speaks for.
    async fn hear_announcement(&mut self) -> Result<(), Failure> {
        if !self.is_known(self.sender) {
            return Err(Failure::NotAllowed);
        }
        let limit = self.config.limits.handshake_timeout;
        let heard = timeout(limit, announcement::read(&self.client)).await;
        let header = heard.unwrap_or(Err(Failure::HandshakeTimeout));
        if header == Err(Failure::BadRequest) {
            self.turn_away(&Stranger::NoProxyHeader);
        }
        let header = header?;
        if let Header::Proxied {
            source,
            destination,
        } = header
        {
            self.client_address = source;
            self.announced = Some(destination);
            self.limits = self.door.limits(&self.listener, source.ip());
            let holder = Self::holder(&self.listener, source);
            let lookups = self.config.limits.lookups_per_client;
            self.account = self.relay.accounts.of(holder, lookups);
        }
        Ok(())
    }

    /// Where the client came in: at this relay, or at one that speaks for it.
    fn entrance(&self) -> Option<SocketAddr> {
        self.announced.or_else(|| self.client.local_addr().ok())
    }

    async fn serve(self: &Arc<Self>, announced: Result<(), Failure>) -> End {
        let stranger = self.stranger().map(|why| self.turn_away(&why));
        let welcome = stranger.map_or(announced, Err);
        let welcome = welcome.and_then(|()| self.enter());
        if let Err(failure) = welcome {
            self.client.reset_on_close();
            return self.fail(failure);
        }
        match &self.listener.kind {
            Kind::Http => Box::pin(listener::http::serve(self)).await,
            Kind::Socks5 => Box::pin(listener::socks5::serve(self)).await,
            kind => listener::serve(self, kind).await,
        }
    }

    /// Takes another of the connections that its client may have.
    fn enter(&self) -> Result<(), Failure> {
        let entered = self.account.enter(self.connections_max());
        let _ = self.entered.set(entered.ok_or(Failure::Exhausted)?);
        Ok(())
    }

    /// Connections that its client may have at a time. By default it is so many times as many as are
    /// left for others: a client alone gets three quarters of all, and however many are greedy, some
    /// are left. This machine's own programs and other relays speak for many.
    fn connections_max(&self) -> usize {
        let Holder { address, is_relay } = self.account.holder;
        if is_relay {
            return usize::MAX;
        }
        let left = self.relay.places.available_permits();
        match self.config.limits.connections_per_client {
            Some(most) => most,
            None if address.is_loopback() => usize::MAX,
            None => CLIENT_PARTS * (left + 1),
        }
    }

    /// A relay's connection that stood ready and was never asked for anything is no event.
    fn was_unused(&self, end: &End) -> bool {
        let finished = matches!((&self.listener.kind, end), (Kind::Convert, End::Finished));
        finished && self.way_out().destination.is_none()
    }

    /// Invariant: no relay forwards for strangers. Whoever speaks for others must be known; those
    /// may be denied as if they had come themselves.
    fn stranger(&self) -> Option<Stranger> {
        let transparent = matches!(self.listener.kind, Kind::Transparent { .. });
        let denied = |address: SocketAddr| listed(&self.listener.deny_from, address);
        if !transparent && !self.is_known(self.sender) {
            return Some(Stranger::NotListed);
        }
        (denied(self.sender) || denied(self.client_address)).then_some(Stranger::Denied)
    }

    fn is_known(&self, sender: SocketAddr) -> bool {
        sender.ip().to_canonical().is_loopback() || listed(&self.listener.allow_from, sender)
    }

    /// The leg to the client.
    pub(crate) fn near(&self) -> Leg {
        Leg::protected(self.client.clone(), self.tls.get().cloned())
    }

    /// The legs to the client, if it is a relay that wants several.
    pub(crate) fn near_trunk(&self) -> Option<&Arc<Trunk>> {
        self.founder.get().map(|founder| founder.trunk())
    }

    /// Shakes hands with the client within `limit`, if its listener wants TLS.
    pub(crate) async fn protect(&self, limit: Duration) -> Result<(), Failure> {
        let Some(responder) = &self.listener.tls else {
            return Ok(());
        };
        let shaken = async { Tls::handshake(&self.client, responder.connection()?).await };
        let tls = match timeout(limit, shaken).await {
            Ok(Ok(tls)) => tls,
            Ok(Err(error)) => return Err(self.turn_away(&Stranger::Tls(error))),
            Err(_) => {
                // Over UDT, whoever gave up is not told from whoever says nothing.
                if self.client.tcp().is_some() {
                    self.turn_away(&Stranger::NoHandshake);
                }
                return Err(Failure::HandshakeTimeout);
            }
        };
        let _ = self.tls.set(tls.into());
        Ok(())
    }

    /// Lets the operator know why the client is not let in.
    pub(crate) fn turn_away(&self, why: &Stranger) -> Failure {
        let listener = format!("{} {}", self.listener.kind, self.door.name());
        self.door
            .warnings
            .turned_away(&listener, self.client_address.ip(), why);
        Failure::NotAllowed
    }

    /// Opens the way out and remembers it for the record.
    pub(crate) async fn open(&self, request: &Request) -> Result<Far, Fault> {
        self.open_by(request, &self.ready).await
    }

    /// The same, over no connection that stood ready.
    pub(crate) async fn open_anew(&self, request: &Request) -> Result<Far, Fault> {
        self.open_by(request, &Ready::default()).await
    }

    /// The same request over one leg, for a peer that has refused to read it. What the client has
    /// sent was counted before.
    pub(crate) async fn open_unstriped(&self, request: &Request) -> Result<Far, Fault> {
        let introduced = self.introduce(request);
        let wanted = introduced.as_ref().unwrap_or(request);
        // The peer is known by now to take no group.
        let far = Box::pin(self.route(&Ready::default()).open(wanted)).await?;
        self.leaves_by(&far);
        Ok(far)
    }

    /// Opens the way out and waits for the peer's answer, if there is a peer. A connection that
    /// stood ready and turns out to be dead makes room for a new one.
    pub(crate) async fn open_answered(&self, request: &Request) -> Result<Far, Fault> {
        let mut far = self.open(request).await?;
        let mut answer = far.answer().await;
        if answer.is_err() && far.was_stale() {
            far = self.open_anew(request).await?;
            answer = far.answer().await;
        }
        if answer.is_err() && far.take_back().is_some() {
            far = self.open_unstriped(request).await?;
            answer = far.answer().await;
        }
        while answer.is_err() && self.has_other_way(&far, request).await {
            far = self.open_anew(request).await?;
            answer = far.answer().await;
        }
        answer.map(|()| far)
    }

    /// After a failure of `far`: whether the request may be made again by another way. It has one peer
    /// less each time.
    pub(crate) async fn has_other_way(&self, far: &Far, request: &Request) -> bool {
        far.has_lost_peer().await && self.route(&self.ready).has_hope(request)
    }

    async fn open_by(&self, request: &Request, ready: &Ready) -> Result<Far, Fault> {
        self.asks_for(request.destination.to_string());
        self.first_byte.asked_unless_waiting();
        let introduced = self.introduce(request);
        let wanted = introduced.as_ref().unwrap_or(request);
        let far = match self.opened_ahead(&request.destination) {
            Some(far) => Self::greet(far.at_home_here()?, &wanted.early).await?,
            None => self.connect(ready, wanted).await?,
        };
        self.count(Direction::Up, request.early.len());
        self.leaves_by(&far);
        Ok(far)
    }

    /// Opens the way out, and counts how long that took.
    async fn connect(&self, ready: &Ready, wanted: &Request) -> Result<Far, Fault> {
        let begin = Instant::now();
        let far = Box::pin(self.route(ready).open(wanted)).await?;
        self.door.counters.times.connect.add(begin.elapsed());
        Ok(far)
    }

    /// Another request on the client's connection.
    pub(crate) fn asks_again(&self) {
        self.first_byte.asked();
    }

    /// The answer to the last request begins.
    pub(crate) fn hears_answer(&self) {
        self.first_byte.came(&self.door.counters.times);
    }

    /// A leg that was opened before there was anything to say on it.
    async fn greet(far: Far, first: &[u8]) -> Result<Far, Failure> {
        let written = far.send_first(first).await;
        written.map_err(|error| Failure::from_connect(&error))?;
        Ok(far)
    }

    /// The request with a header for its destination in front. Peers pass it on like anything that
    /// the client sends.
    fn introduce(&self, request: &Request) -> Option<Request> {
        let (version, entrance) = (self.listener.send_proxy?, self.entrance()?);
        let header = announcement::write(version, self.client_address, entrance);
        Some(Request {
            destination: request.destination.clone(),
            hops: request.hops.clone(),
            early: [header, request.early.clone()].concat(),
            ..*request
        })
    }

    fn route<'a>(&'a self, ready: &'a Ready) -> Route<'a> {
        Route {
            config: &self.config,
            ready,
            listener: &self.listener.name,
            client: self.client_address.ip().to_canonical(),
            asker: Some(self.asker()),
            direct_fallback: self.listener.direct_fallback,
            local: self.local_access(),
        }
    }

    fn local_access(&self) -> LocalAccess<'_> {
        let known_as = [self.sender, self.client_address];
        let is_from_elsewhere = |address| local::is_from_elsewhere(&self.listener, address);
        let elsewhere =
            self.asks_for_others.load(Relaxed) || known_as.into_iter().any(is_from_elsewhere);
        let allowed = self.config.allow_local || local::is_meant(&self.listener.kind);
        LocalAccess::new(elsewhere, allowed, self.relay.doors.addresses())
    }

    /// The client, a relay, has said that its own client is from elsewhere.
    pub(crate) fn asks_for_others(&self) {
        self.asks_for_others.store(true, Relaxed);
    }

    /// Whose account it is on.
    fn holder(listener: &Listener, client: SocketAddr) -> Holder {
        Holder::new(client.ip(), listener.kind == Kind::Convert)
    }

    fn asker(&self) -> Asker<'_> {
        Asker {
            lookups: &self.relay.lookups,
            account: &self.account,
        }
    }

    /// The addresses that `destination` has or leads to.
    pub(crate) async fn resolve(
        &self,
        destination: &Destination,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let candidates = Candidates::of(destination, Some(self.asker())).await?;
        Ok(candidates.known())
    }

    /// The profile of a leg straight to `destination`, or `None` if it is to go through peers.
    pub(crate) fn straight_way(
        &self,
        destination: &Destination,
    ) -> Result<Option<Arc<Profile>>, Failure> {
        self.route(&self.ready).straight(destination)
    }

    /// The same where it is not known yet who the destination is.
    pub(crate) fn straight_way_to_anyone(&self) -> Result<Option<Arc<Profile>>, Failure> {
        self.route(&self.ready).straight_to_anyone()
    }

    /// Places for descriptors beyond the two of every connection, two a place. Whoever waited for
    /// them while it holds one could wait for ever, so that it is now or never.
    pub(crate) fn more_places(&self, count: u32) -> Result<OwnedSemaphorePermit, Failure> {
        let places = self.relay.places.clone().try_acquire_many_owned(count);
        places.map_err(|_| Failure::Exhausted)
    }

    /// The rate limits that it is under.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Remembers for the record what the client wants.
    pub(crate) fn asks_for(&self, what: String) {
        self.way_out().destination = Some(what);
    }

    /// Remembers the outgoing leg, for the record and for the end.
    pub(crate) fn leaves_by(&self, far: &Far) {
        self.relay.survey.see_last_of_far(self);
        let mut way_out = self.way_out();
        way_out.next_hop = Some(far.address);
        way_out.far = Some(far.stream.carrier().clone());
        way_out.trunk = far.group.as_ref().map(|group| group.trunk().clone());
        way_out.peer.clone_from(&far.peer);
        way_out.legs += 1;
    }

    /// Waits as long as the rate limits ask for these bytes.
    pub(crate) async fn pace(&self, direction: Direction, bytes: usize) {
        if let Some(until) = self.limits.spend(direction, bytes, Instant::now) {
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
    pub(crate) async fn transfer(&self, far: &Far, on_success: impl AsRef<[u8]>) -> End {
        let near = self.near();
        let mode = match near.needs_copy() || far.stream.needs_copy() {
            true => Mode::Copy,
            false => far.mode.or(self.config.far.mode).unwrap_or_default(),
        };
        self.way_out().mode = Some(mode);
        self.is_tunnel();
        let means = Means {
            pool: &self.pool,
            counters: &self.door.counters,
            traffic: &self.traffic,
            pauses: &self.pauses,
            first_byte: &self.first_byte,
            limits: &self.limits,
            mode,
            client_heard: &far.client_heard,
        };
        if self.founder.get().is_none() && far.group.is_none() {
            return transfer::run(&near, far, on_success.as_ref(), &means).await;
        }
        let ends = Ends {
            near: &near,
            founder: self.founder.get().map(Box::as_ref),
            far,
            ready: &self.ready,
        };
        Box::pin(striped::run(&ends, on_success.as_ref(), &means)).await
    }

    /// From now on it ends when it has carried nothing for too long.
    pub(crate) fn is_tunnel(&self) {
        self.idleness.begin(Instant::now());
    }

    /// Whether it has carried nothing for too long.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        let (up, down) = self.traffic.read();
        let limit = self.config.limits.tunnel_idle_timeout;
        limit.is_some_and(|limit| self.idleness.exceeds(limit, up + down, now))
    }

    /// Counts bytes that did not pass through [`Session::transfer`].
    pub(crate) fn count(&self, direction: Direction, bytes: usize) {
        self.door.counters.traffic.add(direction, bytes);
        self.traffic.add(direction, bytes);
    }

    /// Counts a failure and names it as the end.
    pub(crate) fn fail(&self, fault: impl Into<Fault>) -> End {
        let fault = fault.into();
        self.door.counters.fail(fault.failure);
        End::Failed(fault)
    }

    /// Invariant: an abnormal end is never turned into a clean FIN. A failed connection was
    /// answered in words, if its protocol has any; otherwise it ends by RST, as all do whose end was
    /// not passed on.
    fn close(&self, end: &End) {
        if matches!(end, End::Finished) {
            return self.close_cleanly();
        }
        if matches!(end, End::Broken(..) | End::Cut) {
            if let Some(trunk) = self.near_trunk() {
                trunk.reset_on_close();
            }
            self.client.reset_on_close();
        }
        let way_out = self.way_out();
        if let Some(far) = &way_out.far {
            far.reset_on_close();
            if let Some(trunk) = &way_out.trunk {
                trunk.reset_on_close();
            }
        }
    }

    /// Nothing is owed to anybody, on no leg.
    fn close_cleanly(&self) {
        let WayOut { far, trunk, .. } = self.last_way_out();
        self.client.fin_on_close();
        if let Some(far) = far {
            far.fin_on_close();
        }
        for trunk in trunk.iter().chain(self.near_trunk()) {
            trunk.fin_on_close();
        }
    }

    /// Memory that it holds for data, in bytes: the sockets of both legs, what was read and not
    /// written, and what HTTP takes.
    pub(crate) fn memory(&self) -> u64 {
        self.socket_memory() + self.pauses.held() + self.http.bytes()
    }

    /// What it holds, and whether somebody has taken nothing of it for `patience`.
    pub(crate) fn holding(&self, now: Instant, patience: Duration) -> Holding {
        Holding {
            number: self.number,
            holder: self.account.holder,
            bytes: self.memory(),
            is_still: self.stands_still(now) >= patience,
        }
    }

    /// How long the client, or who is at the other end, has taken nothing of what is there for it.
    pub(crate) fn stands_still(&self, now: Instant) -> Duration {
        let [near, far] = &*self.standstills();
        near.time(now).max(far.time(now))
    }

    /// Looks at whether both take something.
    pub(crate) fn look(&self, now: Instant) {
        let (far, trunk) = {
            let way_out = self.way_out();
            (way_out.far.clone(), way_out.trunk.clone())
        };
        let one = |carrier: &Carrier| carrier.tcp_info().into_iter().collect();
        let near = self.near_trunk();
        let near = near.map_or_else(|| one(&self.client), |trunk| trunk.tcp_info());
        let far = match trunk {
            Some(trunk) => trunk.tcp_info(),
            None => far.as_ref().map(one).unwrap_or_default(),
        };
        let [near_still, far_still] = &mut *self.standstills();
        near_still.look(&near, now);
        far_still.look(&far, now);
    }

    fn standstills(&self) -> std::sync::MutexGuard<'_, [Standstill; 2]> {
        let standstills = self.standstills.lock();
        standstills.unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it abnormally, and says why in its record.
    pub(crate) fn cut(&self, why: WhyCut) {
        let _ = self.why_cut.set(why);
        self.relay.sessions.cut_one(self.number);
    }

    /// Kernel memory that both legs hold for data, in bytes.
    fn socket_memory(&self) -> u64 {
        let (far, trunk) = {
            let way_out = self.way_out();
            (way_out.far.clone(), way_out.trunk.clone())
        };
        let one = |carrier: &Carrier| carrier.memory().unwrap_or(0);
        let near = match self.near_trunk() {
            Some(trunk) => trunk.memory(),
            None => one(&self.client),
        };
        let far = match trunk {
            Some(trunk) => trunk.memory(),
            None => far.as_ref().map_or(0, one),
        };
        near + far
    }

    fn record(&self, end: &End) -> Record {
        let way_out = self.way_out();
        let (bytes_up, bytes_down) = self.traffic.read();
        let (ended, cause) = describe(end);
        let cause = cause.or(self.why_cut.get().map(ToString::to_string));
        let far = way_out.far.as_ref();
        let (near, trunk) = (self.near_trunk(), &way_out.trunk);
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
            near: self.client.tcp_info(),
            far: far.and_then(Carrier::tcp_info),
            near_streams: near.map(|trunk| trunk.tcp_info()).unwrap_or_default(),
            far_streams: trunk
                .as_ref()
                .map(|trunk| trunk.tcp_info())
                .unwrap_or_default(),
        }))
    }

    /// The last request, as it is now.
    pub(crate) fn last_way_out(&self) -> WayOut {
        self.way_out().clone()
    }

    fn way_out(&self) -> std::sync::MutexGuard<'_, WayOut> {
        self.way_out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connections that a client may have for each one that is left for others.
const CLIENT_PARTS: usize = 3;

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

fn listed(prefixes: &[Prefix], address: SocketAddr) -> bool {
    prefixes.iter().any(|prefix| prefix.contains(address.ip()))
}

fn describe(end: &End) -> (Ended, Option<String>) {
    match end {
        End::Finished => (Ended::Finished, None),
        End::Broken(Side::Near, error) => (Ended::ClientBroke, Some(error.to_string())),
        End::Broken(Side::Far, error) => (Ended::DestinationBroke, Some(error.to_string())),
        End::Failed(fault) => (Ended::Failed, Some(fault.to_string())),
        End::Cut => (Ended::Cut, None),
        End::Joined(_) => unreachable!("a leg of another connection has no record"),
    }
}
