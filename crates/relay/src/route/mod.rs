// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way out: straight to the destination, or to the next relay of a chain with the rest of the
//! way in the preamble.

pub(crate) mod far;
pub(crate) mod local;
pub(crate) mod request;

use crate::{
    config::{
        Config,
        policy::{Question, WayOut},
        profile::Profile,
    },
    faults::fault::Fault,
    leg::connect::{Departure, connect},
    peers::{
        current::Peers,
        peer::{Chain, Peer, has_hope},
        pool::Ready,
    },
    route::{
        far::{Beyond, Far, relay_name},
        local::{LocalAccess, led_to},
        request::Request,
    },
};
use longhaul_admission::{exhaustion::with_timeout, lookups::LookupQuota};
use longhaul_protocol::{
    convert::{self, Stripes},
    destination::Destination,
    failure::Failure,
    stripe,
};
use longhaul_transport::{
    channel::{Channel, write_all},
    leg::Leg,
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

/// How the connections of one client leave this relay.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route<'a> {
    pub(crate) config: &'a Config,
    /// Those of this configuration.
    pub(crate) peers: &'a Peers,
    /// Legs to peers that stand ready.
    pub(crate) ready: &'a Ready,
    /// The name of the listener that it came through.
    pub(crate) listener: &'a str,
    pub(crate) client: IpAddr,
    /// Who its lookups count for.
    pub(crate) lookup_quota: Option<LookupQuota<'a>>,
    /// Without a peer that is up, it goes straight to the destination.
    pub(crate) direct_fallback: bool,
    /// What of this host it may reach.
    pub(crate) local: LocalAccess<'a>,
}

/// Where a request may go on.
#[derive(Debug)]
struct Ways {
    /// To be tried in order; never empty.
    chains: Vec<Chain>,
    /// Of the leg straight to the destination.
    profile: Arc<Profile>,
}

/// Where the outgoing leg goes.
#[derive(Debug, PartialEq)]
enum NextLeg {
    Destination(Destination),
    Peer(Arc<Peer>, convert::Request),
}

impl Route<'_> {
    /// Opens the outgoing leg and sends the client's early bytes. To a peer, they leave in one
    /// write with the preamble, and its answer is still to come: see [`Far::answer`]. A peer that
    /// can't be reached makes room for the next chain.
    pub(crate) async fn open(&self, request: &Request) -> Result<Far, Fault> {
        let ways = self.ways(request)?;
        let mut outcome = Err(Failure::NotAllowed.into());
        for chain in by_hope(&ways.chains) {
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
                    if let Some(peer) = at_fault(&ways.chains[0]) {
                        peer.is_passed_by(self.listener);
                    }
                    return Ok(self.go_straight(&to, &ways.profile, request).await?);
                }
                // In a box: TLS is large, and most legs have none.
                NextLeg::Peer(peer, onward) => {
                    Box::pin(self.by_peer(&peer, &onward, request)).await
                }
            };
            match missed {
                Err(fault) => outcome = Err(fault),
                Ok(mut far) => {
                    far.beyond = beyond;
                    return Ok(far);
                }
            }
        }
        outcome
    }

    /// Whether a way out is left whose peers, if it has any, are up.
    pub(crate) fn has_hope(&self, request: &Request) -> bool {
        let ways = self.ways(request);
        ways.is_ok_and(|ways| ways.chains.iter().any(has_hope))
    }

    /// The time for each step on the way.
    fn limit(&self, request: &Request) -> Duration {
        let limit = self.config.limits.connect_timeout;
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        request.deadline.map_or(limit, |at| limit.min(left(at)))
    }

    /// What the rules say; a request that names its own hops goes by those, and both its hop and
    /// its destination must be allowed.
    fn ways(&self, request: &Request) -> Result<Ways, Fault> {
        let allowed = self.decide(&request.destination)?;
        let chains = match request.hops.is_empty() {
            true => self.chains(allowed),
            false => vec![self.named_chain(&request.hops)?],
        };
        Ok(Ways {
            chains,
            profile: allowed.profile.clone(),
        })
    }

    fn chains(&self, way: &WayOut) -> Vec<Chain> {
        let chains = way.chains.iter().map(|chain| self.peers.of(chain));
        let mut chains: Vec<_> = chains.collect();
        // A peer whose own legs are intercepted here would get them back.
        let is_client = |peer: &Arc<Peer>| peer.place.last().ip() == self.client.to_canonical();
        chains.retain(|chain| !self.direct_fallback || !chain.iter().any(is_client));
        if self.direct_fallback && !chains.iter().any(Vec::is_empty) {
            chains.push(Chain::new());
        }
        chains
    }

    /// The relays that a request names itself.
    fn named_chain(&self, hops: &[SocketAddr]) -> Result<Chain, Fault> {
        let denied = |failure| Fault::at(failure, &hops[0].to_string());
        self.decide_hop(hops[0]).map_err(denied)?;
        Ok(hops.iter().map(|hop| self.peer_at(*hop)).collect())
    }

    /// The peer that listens on `address`, or one with default settings.
    fn peer_at(&self, address: SocketAddr) -> Arc<Peer> {
        let known = self.peers.known_at(address).cloned();
        known.unwrap_or_else(|| Peer::named_by_request(address, self.config.far.clone()).into())
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
        match self.peers.known_at(hop) {
            Some(_) => self.ask(&Destination::Address(hop)),
            None => self.decide(&Destination::Address(hop)),
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
            lookup_quota: self.lookup_quota,
            dscp: request.dscp,
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
            from_elsewhere: self.local.is_from_elsewhere(),
            dscp: request.dscp,
            ..onward.clone()
        };
        let first = [onward.encode(), early(request, stripes.is_some())].concat();
        let is_bare = request.early.is_empty();
        let asked = |leg, stood| {
            let mut far = Far::asked(leg, peer, limit, stood, is_bare).unhurried(request.patience);
            let hop = request.hops.first().copied();
            far.hop = hop;
            match stripes {
                Some(stripes) => far.striped(stripes, request.early.len(), peer),
                None => far,
            }
        };
        while let Some(leg) = self.ready.take(peer) {
            leg.carrier().reset_unless_finished();
            set_dscp(&leg, &peer.config.profile, request.dscp);
            if let Some(taken) = offer(&leg, &first) {
                // What is wrong with the leg is found again where its answer is read.
                let _ = write_all(&leg, &first[taken..]).await;
                return Ok(asked(leg, true));
            }
        }
        let missed = |failure| Fault::at(failure, &relay_name(peer, request.hops.first()));
        let leg = peer.reach(limit).await.map_err(missed)?;
        leg.carrier().reset_unless_finished();
        set_dscp(&leg, &peer.config.profile, request.dscp);
        // A peer that refuses may close before it has read this: its answer says more than the error.
        let _ = write_all(&leg, &first).await;
        Ok(asked(leg, false))
    }
}

/// Gives a leg that stands its client's DSCP, unless its profile has one. That the kernel refuses it is no reason to refuse the
/// client.
pub(crate) fn set_dscp(leg: &Leg, profile: &Profile, dscp: u8) {
    if dscp != 0
        && profile.options.dscp.is_none()
        && let Some(socket) = leg.carrier().tcp()
    {
        let _ = longhaul_linux::socket::set_dscp(socket, dscp);
    }
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
    others.filter(|(_, peer)| peer.config.is_beyond).collect()
}

/// The peer for which a chain is not used.
fn at_fault(chain: &[Arc<Peer>]) -> Option<&Arc<Peer>> {
    let down = chain.iter().find(|peer| !peer.state.health.is_up());
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
        let found = Box::pin(with_timeout(limit, peer.place.resolve())).await;
        hops.push(found.map_err(|failure| Fault::at(failure, &peer.config.name))?);
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
        dscp: 0,
    };
    Ok(NextLeg::Peer(next.clone(), onward))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::local::{ListenAddresses, Origin};

    fn chain(peers: &[&str]) -> Vec<Arc<Peer>> {
        let peer = |text: &&str| Peer::named_by_request(text.parse().unwrap(), Arc::default());
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

    fn ways(config: &Config, hops: &[&str], destination: &str) -> Result<Ways, Fault> {
        let addresses = ListenAddresses::default();
        let route = Route {
            config,
            peers: &Peers::new(config, &Peers::default()),
            ready: &Ready::default(),
            listener: "l",
            client: [127, 0, 0, 1].into(),
            lookup_quota: None,
            direct_fallback: false,
            local: LocalAccess::new(Origin::Elsewhere, false, &addresses),
        };
        route.ways(&Request {
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
        let die = |n: usize| chains[n][0].state.health.missed(Instant::now(), 0.5);
        let [first, second, straight] = chains.each_ref();
        assert_eq!(by_hope(&chains), [first, second, straight]);
        die(0);
        assert_eq!(by_hope(&chains), [second, straight, first]);
        die(1);
        assert_eq!(by_hope(&chains), [straight, first, second]);
        first[0].state.health.reached(Instant::now());
        assert_eq!(by_hope(&chains), [first, straight, second]);
    }

    #[test]
    fn the_request_s_hops_come_before_the_relay_s_own() {
        let config = config("[peer.p]\naddress = '10.0.0.1'\n[[route]]\nvia = ['p']");
        let named = ways(&config, &["10.0.0.9:9"], "host.test:80").unwrap();
        assert_eq!(named.chains[0][0].place.last().to_string(), "10.0.0.9:9");
        let ours = ways(&config, &[], "host.test:80").unwrap();
        assert_eq!(ours.chains[0][0].config.name, "p");
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
            let outcome = ways(&config, hops, destination);
            assert_eq!(outcome.is_ok(), allowed, "{hops:?} {destination}");
        }
    }
}
