// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way out: straight to the destination, or to the next relay of a chain with the rest of the
//! way in the preamble.

use crate::{
    config::{
        Config,
        peer::Peer,
        policy::{Chain, Question, WayOut, has_hope},
        profile::Profile,
        settings::Mode,
    },
    connect::{Departure, connect},
    disagreement::Obstacle,
    fault::Fault,
    leg::Leg,
    local::{LocalAccess, led_to},
    lookups::Asker,
    peer,
    ready::Ready,
    shortage::within,
    stripe::group::Group,
};
use longhaul_protocol::failure::Failure;
use longhaul_protocol::{
    convert::{self, Answer, Cause, ErrorCode, HOPS_MAX, Stripes},
    destination::Destination,
    stripe,
};
use longhaul_transport::channel::{Channel, write_all};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// What a client wants, whichever listener it came through.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) destination: Destination,
    /// Relays that the relay before wants passed, nearest first.
    pub(crate) hops: Vec<SocketAddr>,
    /// Relays that may still be passed, this one included.
    pub(crate) hop_limit: u8,
    /// Address and port to leave with, if not the relay's own.
    pub(crate) source: Option<SocketAddr>,
    /// How long the answer to a relay may wait for bytes that it can go along with; zero for clients
    /// that wait for it themselves.
    pub(crate) patience: Duration,
    /// When the relay before waits no longer.
    pub(crate) deadline: Option<Instant>,
    /// What the client sent behind its request.
    pub(crate) early: Vec<u8>,
    /// The leg to a peer may be the first of several.
    pub(crate) may_stripe: bool,
}

impl Request {
    /// From a client that knows nothing of relays.
    pub(crate) fn to(destination: Destination, early: Vec<u8>) -> Self {
        Self {
            destination,
            hops: Vec::new(),
            hop_limit: HOPS_MAX as u8,
            source: None,
            patience: Duration::ZERO,
            deadline: None,
            early,
            may_stripe: false,
        }
    }

    /// From a client that waits for nothing but the destination's bytes.
    pub(crate) fn unanswered(self) -> Self {
        Self {
            patience: convert::PATIENCE_MAX,
            ..self
        }
    }
}

impl From<(convert::Request, Vec<u8>)> for Request {
    fn from((request, early): (convert::Request, Vec<u8>)) -> Self {
        Self {
            destination: request.destination,
            hops: request.hops,
            hop_limit: request.hop_limit,
            source: None,
            patience: request.patience,
            deadline: deadline(request.time),
            early,
            may_stripe: false,
        }
    }
}

/// The end of the time that the relay before has, less the way back: an eighth of it, enough for a
/// round trip of 1.25 s at 10 s.
fn deadline(time: Duration) -> Option<Instant> {
    (!time.is_zero()).then(|| Instant::now() + time / 8 * 7)
}

/// How the connections of one client leave this relay.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route<'a> {
    pub(crate) config: &'a Config,
    /// Legs to peers that stand ready.
    pub(crate) ready: &'a Ready,
    /// The name of the listener that it came through.
    pub(crate) listener: &'a str,
    pub(crate) client: IpAddr,
    /// Who its lookups count for.
    pub(crate) asker: Option<Asker<'a>>,
    /// Without a peer that is up, it goes straight to the destination.
    pub(crate) direct_fallback: bool,
    /// What of this host it may reach.
    pub(crate) local: LocalAccess<'a>,
}

/// Where the outgoing leg goes.
#[derive(Debug, PartialEq, Eq)]
enum NextLeg {
    Destination(Destination),
    Peer(Arc<Peer>, convert::Request),
}

impl Route<'_> {
    /// Opens the outgoing leg and sends the client's early bytes. To a peer, they leave in one
    /// write with the preamble, and its answer is still to come: see [`Far::answer`]. A peer that
    /// can't be reached makes room for the next chain.
    pub(crate) async fn open(&self, request: &Request) -> Result<Far, Fault> {
        let way = self.way_out(request)?;
        let mut outcome = Err(Failure::NotAllowed.into());
        for chain in by_hope(&way.chains) {
            let hops = match hops(chain, self.limit(request)).await {
                Ok(hops) => hops,
                Err(fault) => {
                    outcome = Err(fault);
                    continue;
                }
            };
            let beyond = beyond(chain, &hops);
            let missed = match next_leg(chain, hops, request)? {
                NextLeg::Destination(to) => {
                    if let Some(peer) = at_fault(&way.chains[0]) {
                        peer.is_passed_by(self.listener);
                    }
                    return Ok(self.go_straight(&to, &way.profile, request).await?);
                }
                // In a box: TLS is large, and most legs have none.
                NextLeg::Peer(peer, onward) => {
                    Box::pin(self.by_peer(&peer, &onward, request)).await
                }
            };
            match missed {
                Err(fault) => outcome = Err(fault),
                Ok(far) => return Ok(Far { beyond, ..far }),
            }
        }
        outcome
    }

    /// Whether a way out is left whose peers, if it has any, are up.
    pub(crate) fn has_hope(&self, request: &Request) -> bool {
        let way = self.way_out(request);
        way.is_ok_and(|way| way.has_hope())
    }

    /// The time for each step on the way.
    fn limit(&self, request: &Request) -> Duration {
        let limit = self.config.limits.connect_timeout;
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        request.deadline.map_or(limit, |at| limit.min(left(at)))
    }

    /// What the rules say; a request that names its own hops goes by those, and both its hop and
    /// its destination must be allowed.
    fn way_out(&self, request: &Request) -> Result<WayOut, Fault> {
        let allowed = self.decide(&request.destination)?;
        if request.hops.is_empty() {
            let mut way = allowed.clone();
            if self.direct_fallback && !way.chains.iter().any(Vec::is_empty) {
                way.chains.push(Chain::new());
            }
            return Ok(way);
        }
        let hop = request.hops[0];
        let denied = |failure| Fault::at(failure, &hop.to_string());
        self.decide_hop(hop).map_err(denied)?;
        let peer = |hop: &SocketAddr| self.config.peer_at(*hop);
        Ok(WayOut {
            chains: vec![request.hops.iter().map(peer).collect()],
            profile: allowed.profile.clone(),
        })
    }

    /// The profile of a leg straight to `destination`, or `None` if it is to go through peers.
    pub(crate) fn straight(
        &self,
        destination: &Destination,
    ) -> Result<Option<Arc<Profile>>, Failure> {
        let way = self.decide(destination)?;
        let straight = way.chains[0].is_empty();
        Ok(straight.then(|| way.profile.clone()))
    }

    /// The same where the destination is not known yet, and whatever it is must be allowed besides.
    pub(crate) fn straight_to_anyone(&self) -> Result<Option<Arc<Profile>>, Failure> {
        let anyone = Destination::from_ip(Ipv4Addr::UNSPECIFIED.into(), 0);
        let way = self.ask(&anyone)?;
        let straight = way.chains[0].is_empty();
        Ok(straight.then(|| way.profile.clone()))
    }

    /// Where this host's own relays stand, the configuration may have named them as peers.
    fn decide_hop(&self, hop: SocketAddr) -> Result<&WayOut, Failure> {
        match self.config.has_peer_at(hop) {
            true => self.ask(&Destination::Address(hop)),
            false => self.decide(&Destination::Address(hop)),
        }
    }

    /// What the rules say of `destination`; an address is looked at in its plainest form.
    fn decide(&self, destination: &Destination) -> Result<&WayOut, Failure> {
        let Destination::Address(address) = destination else {
            return self.ask(destination);
        };
        let address = led_to(*address);
        match self.local.permits(address) {
            true => self.ask(&Destination::Address(address)),
            false => Err(Failure::NotAllowed),
        }
    }

    fn ask(&self, destination: &Destination) -> Result<&WayOut, Failure> {
        let question = Question {
            listener: self.listener,
            client: self.client,
            destination,
        };
        let way = self.config.policy.decide(question);
        way.ok_or(Failure::NotAllowed)
    }

    async fn go_straight(
        &self,
        to: &Destination,
        profile: &Profile,
        request: &Request,
    ) -> Result<Far, Failure> {
        let limit = self.limit(request);
        // A name may lead where its rule did not look.
        let permits = |address| self.decide(&Destination::Address(address)).is_ok();
        let departure = Departure {
            source: request.source,
            profile,
            limit,
            asker: self.asker,
        };
        let connected = connect(to, departure, permits).await?;
        let far = Far::standing(connected, profile, limit).unhurried(request.patience);
        let written = write_all(&far.stream, &request.early).await;
        written.map_err(|error| Failure::from_connect(&error))?;
        Ok(far)
    }

    /// A leg that stands ready is asked first. One that does not take the request's first bytes
    /// has delivered none of them, so another may have them.
    async fn by_peer(
        &self,
        peer: &Arc<Peer>,
        onward: &convert::Request,
        request: &Request,
    ) -> Result<Far, Fault> {
        let limit = self.limit(request);
        let stripes = stripes(peer, request);
        let onward = convert::Request {
            patience: request.patience.min(limit / PATIENCE_SHARE),
            time: limit,
            stripes,
            from_elsewhere: self.local.from_elsewhere,
            ..onward.clone()
        };
        let first = [onward.encode(), early(request, stripes.is_some())].concat();
        let is_bare = request.early.is_empty();
        let asked = |leg, stood| {
            let far = Far::asked(leg, peer, limit, stood, is_bare).unhurried(request.patience);
            let hop = request.hops.first().copied();
            let far = Far { hop, ..far };
            match stripes {
                Some(stripes) => far.striped(stripes, request.early.len(), peer),
                None => far,
            }
        };
        while let Some(leg) = self.ready.take(peer) {
            leg.carrier().reset_unless_finished();
            if let Some(taken) = offer(&leg, &first) {
                // What is wrong with the leg is found again where its answer is read.
                let _ = write_all(&leg, &first[taken..]).await;
                return Ok(asked(leg, true));
            }
        }
        let missed = |failure| Fault::at(failure, &relay_name(peer, request.hops.first()));
        let leg = peer.reach(limit).await.map_err(missed)?;
        leg.carrier().reset_unless_finished();
        // A peer that refuses may close before it has read this: its answer says more than the error.
        let _ = write_all(&leg, &first).await;
        Ok(asked(leg, false))
    }
}

/// What other relays and clients know a peer by: the address that a request names it by, or its name.
fn relay_name(peer: &Peer, hop: Option<&SocketAddr>) -> String {
    hop.map_or_else(|| peer.name.clone(), ToString::to_string)
}

/// The part of the time for connecting and for the answer that a relay may hold the answer back.
const PATIENCE_SHARE: u32 = 10;

/// The group that a request is to be carried by, if any.
fn stripes(peer: &Peer, request: &Request) -> Option<Stripes> {
    let fits = request.early.len() <= stripe::PIECE_LEN_MAX as usize;
    (request.may_stripe && fits)
        .then(|| peer.new_stripes())
        .flatten()
}

/// What leaves right behind the preamble.
fn early(request: &Request, striped: bool) -> Vec<u8> {
    let early = &request.early;
    if !striped || early.is_empty() {
        return early.clone();
    }
    let (offset, len) = (0, early.len() as u32);
    [&stripe::Frame::Data { offset, len }.encode(), &early[..]].concat()
}

/// The peers of a chain that this relay knows by what the relays before them say, and the addresses
/// that the request names them by.
fn beyond(chain: &[Arc<Peer>], hops: &[SocketAddr]) -> Beyond {
    let others = hops.iter().copied().zip(chain.iter().skip(1).cloned());
    others.filter(|(_, peer)| peer.is_beyond).collect()
}

type Beyond = Box<[(SocketAddr, Arc<Peer>)]>;

/// The peer for which a chain is not used.
fn at_fault(chain: &[Arc<Peer>]) -> Option<&Arc<Peer>> {
    let down = chain.iter().find(|peer| !peer.health.is_up());
    down.or(chain.first())
}

/// The chains whose peers are up before the others, which are the last resort.
fn by_hope(chains: &[Chain]) -> Vec<&Chain> {
    let (up, down): (Vec<_>, Vec<_>) = chains.iter().partition(|chain| has_hope(chain));
    [up, down].concat()
}

/// The most that is offered to a ready leg in one write: with TLS one record, which the peer gets
/// whole or not at all.
const OFFER_BYTES_MAX: usize = 16 * 1024;

/// How many of the first bytes a ready leg took; `None` if it took none.
fn offer(leg: &Leg, first: &[u8]) -> Option<usize> {
    let most = first.len().min(OFFER_BYTES_MAX);
    let slices = [io::IoSlice::new(&first[..most])];
    leg.try_write_vectored(&slices)
        .ok()
        .filter(|taken| *taken > 0)
}

/// Where the relays behind the first one of a chain are, which that one is told.
async fn hops(chain: &[Arc<Peer>], limit: Duration) -> Result<Vec<SocketAddr>, Fault> {
    let mut hops = Vec::new();
    for peer in chain.iter().skip(1) {
        let found = Box::pin(within(limit, peer.place.resolve())).await;
        hops.push(found.map_err(|failure| Fault::at(failure, &peer.name))?);
    }
    Ok(hops)
}

fn next_leg(
    chain: &[Arc<Peer>],
    hops: Vec<SocketAddr>,
    request: &Request,
) -> Result<NextLeg, Fault> {
    let Some(next) = chain.first() else {
        return Ok(NextLeg::Destination(request.destination.clone()));
    };
    let looped = || Fault::at(Failure::Loop, &relay_name(next, request.hops.first()));
    let hop_limit = request.hop_limit.checked_sub(1).ok_or_else(looped)?;
    let onward = convert::Request {
        destination: request.destination.clone(),
        hops,
        hop_limit,
        patience: request.patience,
        time: Duration::ZERO,
        stripes: None,
        from_elsewhere: false,
    };
    Ok(NextLeg::Peer(next.clone(), onward))
}

/// An outgoing leg.
#[derive(Debug)]
pub(crate) struct Far {
    pub(crate) stream: Leg,
    /// Where it goes: the destination's address or the peer's.
    pub(crate) address: SocketAddr,
    /// How its bytes move, if its profile says.
    pub(crate) mode: Option<Mode>,
    /// The peer that it goes to, if it does not go straight.
    pub(crate) peer: Option<Arc<Peer>>,
    /// The peer's answer has not been read yet.
    answer_due: AtomicBool,
    limit: Duration,
    /// How long the answer that the client gets may wait for bytes to go along with.
    patience: Duration,
    /// It stood ready, and nothing but the request has been sent over it.
    replaceable: bool,
    /// Its end came before any byte of the peer's answer.
    unanswered: AtomicBool,
    /// What came instead of an answer makes the peer doubtful.
    doubtful: AtomicBool,
    /// Relays behind the peer that the request names.
    beyond: Beyond,
    /// The answer says that one of these can't be gone on to.
    cut_off: AtomicBool,
    /// The address that the request names the peer by, if it does.
    hop: Option<SocketAddr>,
    /// Nothing of the client's left with the request.
    is_bare: bool,
    since: Instant,
    /// A byte was taken from the client for it.
    pub(crate) client_heard: AtomicBool,
    /// It is the first leg of these.
    pub(crate) group: Option<Arc<Group>>,
}

impl Far {
    /// The same leg, driven by the calling thread's event loop from now on.
    pub(crate) fn at_home_here(mut self) -> Result<Self, Failure> {
        // A group shares the leg, which only its last owner can move.
        let plan = self.group.take().map(|group| group.plan());
        let stream = self.stream.at_home_here().map_err(|_| Failure::Other)?;
        let far = Self { stream, ..self };
        Ok(match plan {
            Some((stripes, peer)) => far.striped(stripes, 0, &peer),
            None => far,
        })
    }

    /// Sends what the client has said before the transfer begins.
    pub(crate) async fn send_first(&self, bytes: &[u8]) -> io::Result<()> {
        match &self.group {
            Some(group) => group.send_first(bytes).await,
            None => write_all(&self.stream, bytes).await,
        }
    }

    /// A leg that stands, straight to the destination.
    pub(crate) fn standing(
        (stream, address): (tokio::net::TcpStream, SocketAddr),
        profile: &Profile,
        limit: Duration,
    ) -> Self {
        Self::new((Leg::plain(stream), address), profile, limit)
    }

    fn new((stream, address): (Leg, SocketAddr), profile: &Profile, limit: Duration) -> Self {
        Self {
            stream,
            address,
            mode: profile.mode,
            peer: None,
            answer_due: AtomicBool::new(false),
            limit,
            patience: Duration::ZERO,
            replaceable: false,
            unanswered: AtomicBool::new(false),
            doubtful: AtomicBool::new(false),
            beyond: Beyond::default(),
            cut_off: AtomicBool::new(false),
            hop: None,
            is_bare: false,
            since: Instant::now(),
            client_heard: AtomicBool::new(false),
            group: None,
        }
    }

    /// The same leg as the first of a group, over which `ahead` bytes of the client have left.
    fn striped(self, stripes: Stripes, ahead: usize, peer: &Arc<Peer>) -> Self {
        let group = Group::new(stripes, self.stream.clone(), ahead, peer, self.limit);
        Self {
            group: Some(group),
            ..self
        }
    }

    /// A leg to a peer that has been asked and will answer.
    fn asked(leg: Leg, peer: &Arc<Peer>, limit: Duration, stood: bool, is_bare: bool) -> Self {
        let address = leg.carrier().peer_addr();
        let address = address.unwrap_or_else(|| peer.place.last());
        Self {
            peer: Some(peer.clone()),
            answer_due: AtomicBool::new(true),
            replaceable: stood && is_bare,
            is_bare,
            ..Self::new((leg, address), &peer.profile, limit)
        }
    }

    /// The same leg for a client that does not wait for an answer.
    fn unhurried(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// How long the answer that the client gets may wait for bytes from here; `None`: it leaves by
    /// itself. A peer has waited already: what it had in time came with its answer.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let own = match self.peer {
            Some(_) => Duration::ZERO,
            None => self.patience,
        };
        (!self.patience.is_zero()).then_some(own)
    }

    /// Whether it stood before it was asked for anything.
    pub(crate) fn stood_ready(&self) -> bool {
        self.replaceable
    }

    /// Whether it was dead before it was asked, for all that can be known, and the request may be
    /// made again: not a byte of the client has left.
    pub(crate) fn was_stale(&self) -> bool {
        self.replaceable && self.unanswered.load(Relaxed) && !self.client_heard.load(Relaxed)
    }

    /// Whether the peer's answer is still to come.
    pub(crate) fn owes_answer(&self) -> bool {
        self.answer_due.load(Relaxed)
    }

    /// Whether the destination is reached. A direct leg knows at once; over a peer, this reads the
    /// answer, and not one byte more. Call it before anything else is read; after the first call it
    /// does nothing.
    pub(crate) async fn answer(&self) -> Result<(), Fault> {
        if !self.answer_due.swap(false, Relaxed) {
            return Ok(());
        }
        let answer = timeout(self.limit, peer::answer(&self.stream)).await;
        match answer.unwrap_or(Err(Obstacle::Silent(self.limit))) {
            Ok((answer, cause)) => self.hear(answer, cause),
            Err(obstacle) => {
                let closed = matches!(obstacle, Obstacle::Closed(_));
                self.unanswered.store(closed, Relaxed);
                // A leg that stood ready may have died by itself: who keeps it ready sees to that.
                if !closed || !self.replaceable {
                    self.doubt_peer();
                }
                Err(Fault::at(obstacle.failure(), &self.relay_name()))
            }
        }
    }

    fn relay_name(&self) -> String {
        let name = |peer| relay_name(peer, self.hop.as_ref());
        self.peer.as_deref().map(name).unwrap_or_default()
    }

    fn hear(&self, answer: Answer, cause: Option<Cause>) -> Result<(), Fault> {
        let Answer::Refused { code, detail } = answer else {
            let others = self.beyond.iter().map(|(_, peer)| peer);
            for peer in self.peer.iter().chain(others) {
                peer.is_back();
            }
            return Ok(());
        };
        match (code, &self.group) {
            (ErrorCode::UnsupportedMessage, Some(group)) => group.is_unsupported(),
            (code, _) if peer::is_strange(code) => self.doubt_peer(),
            _ => {}
        }
        let fault = Fault::of_answer((code, detail), cause, &self.relay_name());
        self.blame(&fault);
        Err(fault)
    }

    /// Takes note of a relay that can't be gone on to. Another one's shortage passes.
    fn blame(&self, fault: &Fault) {
        let named = |(hop, _): &&(SocketAddr, _)| fault.hop() == Some(*hop);
        if fault.failure != Failure::Exhausted
            && let Some((_, peer)) = self.beyond.iter().find(named)
        {
            self.cut_off.store(true, Relaxed);
            peer.is_missed_beyond(fault);
        }
    }

    /// Has the peer checked.
    fn doubt_peer(&self) {
        let Some(peer) = self.peer.clone() else {
            return;
        };
        self.doubtful.store(true, Relaxed);
        let (now, limit) = (Instant::now(), self.limit);
        tokio::spawn(async move { peer.doubt(now, limit).await });
    }

    /// After a failure: whether a peer of the chain turned out to be down, and the request may be made again by
    /// another way, because not a byte of the client has left.
    pub(crate) async fn has_lost_peer(&self) -> bool {
        let nothing_left = self.is_bare && !self.client_heard.load(Relaxed);
        match &self.peer {
            Some(_) if nothing_left && self.cut_off.load(Relaxed) => true,
            Some(peer) if nothing_left && self.doubtful.load(Relaxed) => {
                peer.doubt(self.since, self.limit).await
            }
            _ => false,
        }
    }

    /// What the client has sent since the request, if the request may be made again over one leg.
    pub(crate) fn take_back(&self) -> Option<Vec<u8>> {
        self.group.as_ref().and_then(|group| group.take_back())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::Doors;

    fn chain(peers: &[&str]) -> Vec<Arc<Peer>> {
        let peer = |text: &&str| Peer::new(text, text.parse().unwrap(), Arc::default());
        peers.iter().map(peer).map(Arc::new).collect()
    }

    fn request(hop_limit: u8) -> Request {
        Request {
            hop_limit,
            ..Request::to("host.test:80".parse().unwrap(), Vec::new())
        }
    }

    fn config(text: &str) -> Config {
        let listener = "[[listener]]\nkind = 'socks5'\naddress = '127.0.0.1:0'\nname = 'l'\n";
        Config::new(&toml::from_str(&format!("{listener}{text}")).unwrap()).unwrap()
    }

    fn way_out(config: &Config, hops: &[&str], destination: &str) -> Result<WayOut, Fault> {
        let doors = Doors::default();
        let route = Route {
            config,
            ready: &Ready::default(),
            listener: "l",
            client: [127, 0, 0, 1].into(),
            asker: None,
            direct_fallback: false,
            local: LocalAccess::new(false, false, &doors),
        };
        route.way_out(&Request {
            hops: hops.iter().map(|p| p.parse().unwrap()).collect(),
            ..Request::to(destination.parse().unwrap(), Vec::new())
        })
    }

    #[test]
    fn without_peers_it_goes_straight() {
        let leg = next_leg(&[], Vec::new(), &request(0)).unwrap();
        assert_eq!(leg, NextLeg::Destination("host.test:80".parse().unwrap()));
    }

    #[tokio::test]
    async fn a_chain_is_stripped_from_the_near_end() {
        let chain = chain(&["10.0.0.1:1", "10.0.0.2:2"]);
        let hops = hops(&chain, Duration::from_secs(1)).await.unwrap();
        let NextLeg::Peer(peer, onward) = next_leg(&chain, hops, &request(16)).unwrap() else {
            panic!("straight");
        };
        assert_eq!(peer, chain[0]);
        assert_eq!(onward.hops, [chain[1].place.last()]);
        assert_eq!(onward.hop_limit, 15);
    }

    #[test]
    fn the_hop_limit_ends_a_loop() {
        let chain = chain(&["10.0.0.1:1"]);
        assert!(next_leg(&chain, Vec::new(), &request(1)).is_ok());
        let looped = next_leg(&chain, Vec::new(), &request(0));
        assert_eq!(looped, Err(Fault::at(Failure::Loop, "10.0.0.1:1")));
    }

    #[test]
    fn chains_behind_a_dead_peer_are_the_last_resort() {
        let chains = [chain(&["10.0.0.1:1"]), chain(&["10.0.0.2:2"]), chain(&[])];
        let die = |n: usize| chains[n][0].health.missed(Instant::now(), 0.5);
        let [first, second, straight] = chains.each_ref();
        assert_eq!(by_hope(&chains), [first, second, straight]);
        die(0);
        assert_eq!(by_hope(&chains), [second, straight, first]);
        die(1);
        assert_eq!(by_hope(&chains), [straight, first, second]);
        first[0].health.reached(Instant::now());
        assert_eq!(by_hope(&chains), [first, straight, second]);
    }

    #[test]
    fn the_request_s_hops_come_before_the_relay_s_own() {
        let config = config("[peer.p]\naddress = '10.0.0.1'\n[[route]]\nvia = ['p']");
        let way = way_out(&config, &["10.0.0.9:9"], "host.test:80").unwrap();
        assert_eq!(way.chains[0][0].place.last().to_string(), "10.0.0.9:9");
        let way = way_out(&config, &[], "host.test:80").unwrap();
        assert_eq!(way.chains[0][0].name, "p");
    }

    #[test]
    fn what_is_denied_is_denied_as_a_hop_too() {
        let config = config("[[route]]\nto = ['10.0.0.0/8']\ndeny = true");
        for (hops, destination, allowed) in [
            (&[][..], "10.1.2.3:80", false),
            (&["10.1.2.3:80"], "host.test:80", false),
            (&["192.0.2.1:80"], "10.1.2.3:80", false),
            (&["192.0.2.1:80"], "host.test:80", true),
        ] {
            let outcome = way_out(&config, hops, destination);
            assert_eq!(outcome.is_ok(), allowed, "{hops:?} {destination}");
        }
    }
}
