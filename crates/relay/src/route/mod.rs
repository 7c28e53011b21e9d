// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routing: opens the upstream leg, directly to the destination or to the first relay of a chain. The
//! Convert preamble (RFC 8803) tells that relay the rest of the chain.

mod attempt;
pub(crate) mod local;
pub(crate) mod request;
pub(crate) mod upstream_leg;

use crate::{
    config::{
        Config,
        policy::{RouteQuery, RouteTarget},
        profile::Profile,
    },
    faults::fault::Fault,
    leg::connect::{ConnectOptions, connect},
    peers::{
        current::Peers,
        peer::{Chain, Peer, is_chain_up},
        pool::PeerPools,
    },
    route::{
        attempt::Repetition,
        local::{LocalAccess, effective_address},
        request::Request,
        upstream_leg::{LaterHops, UpstreamLeg, relay_name},
    },
};
use longhaul_admission::{exhaustion::with_timeout, lookups::LookupQuota};
use longhaul_protocol::{convert, destination::Destination, failure::Failure};
use longhaul_transport::{
    channel::{Channel, write_all},
    leg::Leg,
};
use longhaul_units::Time;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};
use tracing::debug;

/// Rules and state that decide how the connections of one client leave this relay.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route<'a> {
    pub(crate) config: &'a Config,
    /// Peers of this configuration.
    pub(crate) peers: &'a Peers,
    /// Pooled connections to peers.
    pub(crate) peer_pools: &'a PeerPools,
    /// Name of the client's listener.
    pub(crate) listener: &'a str,
    pub(crate) client: IpAddr,
    /// Client's quota of name lookups; `None` if nothing is looked up for the client.
    pub(crate) lookup_quota: Option<LookupQuota<'a>>,
    /// Whether the relay connects directly to the destination if no peer can be reached.
    pub(crate) direct_fallback: bool,
    /// Client's access to addresses of this host.
    pub(crate) local: LocalAccess<'a>,
}

/// Chains that a request may take.
#[derive(Debug)]
struct ChainChoice {
    /// Chains in the order in which they are tried; never empty.
    chains: Vec<Chain>,
    /// Profile of a direct leg to the destination.
    profile: Arc<Profile>,
}

/// Target of the upstream leg.
#[derive(Debug, PartialEq)]
enum NextTarget {
    Destination(Destination),
    Peer(Arc<Peer>, convert::Request),
}

impl Route<'_> {
    /// Opens the upstream leg and sends the client's early bytes. A peer gets them in one write with the
    /// preamble; [`UpstreamLeg::answer`] reads the peer's answer later. If a peer can't be reached, the
    /// next chain is tried.
    pub(crate) async fn open(&self, request: &Request) -> Result<UpstreamLeg, Fault> {
        let choice = self.choose_chains(request)?;
        let mut outcome = Err(Failure::NotAllowed.into());
        for chain in sort_up_first(&choice.chains) {
            let hops = match resolve_later_hops(chain, self.timeout(request)).await {
                Ok(hops) => hops,
                Err(fault) => {
                    outcome = Err(fault);
                    continue;
                }
            };
            let later_hops = later_hops(chain, &hops);
            debug!(peers = %names(chain), "chain tried");
            let opened = match next_target(chain, hops, request)? {
                NextTarget::Destination(to) => {
                    if let Some(peer) = first_down_peer(&choice.chains[0]) {
                        peer.log_bypass(self.listener);
                    }
                    return Ok(self.connect_directly(&to, &choice.profile, request).await?);
                }
                // Boxed: the future is large because of TLS, which most legs do not use.
                NextTarget::Peer(peer, onward) => {
                    Box::pin(self.connect_to_peer(&peer, &onward, request)).await
                }
            };
            match opened {
                Err(fault) => {
                    debug!("chain failed: {fault}");
                    outcome = Err(fault);
                }
                Ok(mut upstream) => {
                    upstream.later_hops = later_hops;
                    return Ok(upstream);
                }
            }
        }
        outcome
    }

    /// Returns whether a request that failed over `upstream` may be repeated over a new leg. Another chain must be up if
    /// this one is not. Each time, one more peer is down, so repetitions end.
    pub(crate) async fn may_repeat(&self, upstream: &UpstreamLeg, request: &Request) -> bool {
        let repetition = upstream.repetition().await;
        let is_repeated = match repetition {
            Repetition::Never | Repetition::IfPeerIsDown => false,
            Repetition::OverNewLeg => true,
            Repetition::OverAnotherChain => self.is_any_chain_up(request),
        };
        if is_repeated {
            debug!(?repetition, "another attempt is allowed");
        } else if repetition == Repetition::OverAnotherChain {
            debug!("no other attempt: no other chain is up");
        } else {
            debug!("no other attempt");
        }
        is_repeated
    }

    /// Returns whether the request may take a chain without peers, or one whose peers are all up.
    fn is_any_chain_up(&self, request: &Request) -> bool {
        let choice = self.choose_chains(request);
        choice.is_ok_and(|choice| choice.chains.iter().any(is_chain_up))
    }

    /// Returns the timeout of a lookup or a connection attempt. The request's deadline bounds it.
    fn timeout(&self, request: &Request) -> Duration {
        let limit = self.config.limits.connect_timeout;
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        request.deadline.map_or(limit, |at| limit.min(left(at)))
    }

    /// Returns the chains that the rules give. A request that names its own hops takes those
    /// instead: the rules must allow its first hop and its destination.
    fn choose_chains(&self, request: &Request) -> Result<ChainChoice, Fault> {
        let allowed = self.apply_rules_to(&request.destination)?;
        let chains = if request.hops.is_empty() {
            self.chains(allowed)
        } else {
            vec![self.named_chain(&request.hops)?]
        };
        Ok(ChainChoice {
            chains,
            profile: allowed.profile.clone(),
        })
    }

    fn chains(&self, target: &RouteTarget) -> Vec<Chain> {
        let chains = target.chains.iter().map(|chain| self.peers.chain(chain));
        let mut chains: Vec<_> = chains.collect();
        // The client may be a peer whose own legs are intercepted here. A chain through that peer
        // would send its legs back to it.
        let is_client =
            |peer: &Arc<Peer>| peer.address.preferred().ip() == self.client.to_canonical();
        chains.retain(|chain| !self.direct_fallback || !chain.iter().any(is_client));
        if self.direct_fallback && !chains.iter().any(Vec::is_empty) {
            chains.push(Chain::new());
        }
        chains
    }

    /// Returns the chain of relays that a request names.
    fn named_chain(&self, hops: &[SocketAddr]) -> Result<Chain, Fault> {
        let denied = |failure| Fault::at_relay(failure, &hops[0].to_string());
        self.apply_rules_to_hop(hops[0]).map_err(denied)?;
        Ok(hops.iter().map(|hop| self.peer_at(*hop)).collect())
    }

    /// Returns the peer that listens on `address`, or a new one with default settings.
    fn peer_at(&self, address: SocketAddr) -> Arc<Peer> {
        let known = self.peers.find_by_address(address).cloned();
        known.unwrap_or_else(|| {
            Peer::named_by_request(address, self.config.upstream_profile.clone()).into()
        })
    }

    /// Returns the profile of a direct leg to `destination`, or `None` if the rules lead through
    /// peers.
    pub(crate) fn direct_profile(
        &self,
        destination: &Destination,
    ) -> Result<Option<Arc<Profile>>, Failure> {
        let target = self.apply_rules_to(destination)?;
        let direct = target.chains[0].is_empty();
        Ok(direct.then(|| target.profile.clone()))
    }

    /// Returns the profile of a direct leg to a destination that is not known yet. The destination
    /// must be checked later.
    pub(crate) fn direct_profile_for_any(&self) -> Result<Option<Arc<Profile>>, Failure> {
        let unspecified = Destination::from_ip(Ipv4Addr::UNSPECIFIED.into(), 0);
        let target = self.apply_rules(&unspecified)?;
        let direct = target.chains[0].is_empty();
        Ok(direct.then(|| target.profile.clone()))
    }

    /// Evaluates the rules for a hop. A configured peer may run on this host, so that the check of
    /// local addresses is left out for it.
    fn apply_rules_to_hop(&self, hop: SocketAddr) -> Result<&RouteTarget, Failure> {
        match self.peers.find_by_address(hop) {
            Some(_) => self.apply_rules(&Destination::Address(hop)),
            None => self.apply_rules_to(&Destination::Address(hop)),
        }
    }

    /// Evaluates the rules for `destination`, after a check of local addresses. Both take an
    /// address in canonical form.
    fn apply_rules_to(&self, destination: &Destination) -> Result<&RouteTarget, Failure> {
        let Destination::Address(address) = destination else {
            return self.apply_rules(destination);
        };
        let address = effective_address(*address);
        if self.local.permits(address) {
            self.apply_rules(&Destination::Address(address))
        } else {
            Err(Failure::NotAllowed)
        }
    }

    fn apply_rules(&self, destination: &Destination) -> Result<&RouteTarget, Failure> {
        let query = RouteQuery {
            listener: self.listener,
            client: self.client,
            destination,
        };
        let target = self.config.policy.decide(query);
        target.ok_or(Failure::NotAllowed)
    }

    async fn connect_directly(
        &self,
        to: &Destination,
        profile: &Profile,
        request: &Request,
    ) -> Result<UpstreamLeg, Failure> {
        let limit = self.timeout(request);
        // The rules allowed the name; each address that it resolves to is checked too.
        let permits = |address| self.apply_rules_to(&Destination::Address(address)).is_ok();
        let options = ConnectOptions {
            source: request.source,
            profile,
            timeout: limit,
            lookup_quota: self.lookup_quota,
            dscp: request.dscp,
        };
        let begin = Instant::now();
        let connected = connect(to, options, permits).await;
        let elapsed = Time::from(begin.elapsed());
        match &connected {
            Ok((_, address)) => debug!(%address, %elapsed, "connected to the destination"),
            Err(failure) => debug!(destination = %to, %elapsed, "not connected: {failure}"),
        }
        let connected = connected?;
        let upstream =
            UpstreamLeg::direct(connected, profile, limit).with_reply_delay(request.reply_delay);
        let written = write_all(&upstream.leg, &request.early_bytes).await;
        written.map_err(|error| Failure::from_connect(&error))?;
        Ok(upstream)
    }

    /// Sends the request to a peer, over a pooled connection if there is one. A pooled connection
    /// that takes no byte of the first write has delivered nothing, and the next one is tried.
    async fn connect_to_peer(
        &self,
        peer: &Arc<Peer>,
        next_request: &convert::Request,
        request: &Request,
    ) -> Result<UpstreamLeg, Fault> {
        let limit = self.timeout(request);
        let stripes = request.may_stripe.then(|| peer.new_group()).flatten();
        let onward = convert::Request {
            reply_delay: request.reply_delay.min(limit / REPLY_DELAY_DIVISOR),
            timeout: limit,
            stripes,
            is_client_remote: self.local.is_remote(),
            dscp: request.dscp,
            ..next_request.clone()
        };
        let first = [onward.encode(), request.early_bytes.clone()].concat();
        let early_bytes_sent = request.early_bytes.len();
        let upstream_leg = |leg, from_pool| {
            let mut upstream = UpstreamLeg::to_peer(leg, peer, limit, from_pool, early_bytes_sent)
                .with_reply_delay(request.reply_delay);
            let hop = request.hops.first().copied();
            upstream.hop = hop;
            match stripes {
                Some(stripes) => upstream.into_first_of_group(stripes, peer),
                None => upstream,
            }
        };
        while let Some(leg) = self.peer_pools.take(peer) {
            leg.transport().reset_unless_finished();
            set_dscp(&leg, &peer.config.profile, request.dscp);
            if let Some(taken) = try_first_write(&leg, &first) {
                debug!(peer = peer.config.name, "request sent over a pooled leg");
                // After a write error, the peer's answer tells the reason, or its read fails too.
                let _ = write_all(&leg, &first[taken..]).await;
                return Ok(upstream_leg(leg, true));
            }
        }
        let at_relay = |failure| Fault::at_relay(failure, &relay_name(peer, request.hops.first()));
        let begin = Instant::now();
        let leg = peer.open_leg(limit).await.map_err(at_relay)?;
        let elapsed = Time::from(begin.elapsed());
        debug!(peer = peer.config.name, %elapsed, "leg opened to the peer");
        leg.transport().reset_unless_finished();
        set_dscp(&leg, &peer.config.profile, request.dscp);
        // A peer that refuses may close before it has read all of this. Its answer says more than
        // the write error.
        let _ = write_all(&leg, &first).await;
        Ok(upstream_leg(leg, false))
    }
}

/// Sets the client's DSCP on a connected leg, unless the leg's profile sets one. Errors are
/// ignored: a wrong DSCP is no reason to refuse the client.
pub(crate) fn set_dscp(leg: &Leg, profile: &Profile, dscp: u8) {
    if dscp != 0
        && profile.options.dscp.is_none()
        && let Some(socket) = leg.transport().tcp()
    {
        let _ = longhaul_linux::socket::set_dscp(socket, dscp);
    }
}

/// Divisor of the timeout. The quotient bounds the time by which a relay may delay its answer.
const REPLY_DELAY_DIVISOR: u32 = 10;

/// Returns the peers of a chain that this relay reaches only through other peers, each with its
/// address in the request. Their state is known from the answers of earlier relays.
fn later_hops(chain: &[Arc<Peer>], hops: &[SocketAddr]) -> LaterHops {
    let others = hops.iter().copied().zip(chain.iter().skip(1).cloned());
    others
        .filter(|(_, peer)| peer.config.is_behind_peers)
        .collect()
}

/// Returns the first peer of a chain that is down, or the chain's first peer if none is.
fn first_down_peer(chain: &[Arc<Peer>]) -> Option<&Arc<Peer>> {
    let down = chain.iter().find(|peer| !peer.state.health.is_up());
    down.or(chain.first())
}

/// Returns the names of a chain's peers.
fn names(chain: &[Arc<Peer>]) -> String {
    let names: Vec<_> = chain.iter().map(|peer| &*peer.config.name).collect();
    if names.is_empty() {
        "directly".to_owned()
    } else {
        names.join(", ")
    }
}

/// Sorts the chains: those whose peers are all up come first, in their order. The others follow.
fn sort_up_first(chains: &[Chain]) -> Vec<&Chain> {
    let (up, down): (Vec<_>, Vec<_>) = chains.iter().partition(|chain| is_chain_up(chain));
    for chain in &down {
        debug!(peers = %names(chain), "chain is down, others come first");
    }
    [up, down].concat()
}

/// Maximum bytes of the first write to a pooled connection. With TLS, this is one record, which the
/// peer gets whole or not at all.
const FIRST_WRITE_MAX: usize = 16 * 1024;

/// Writes the first bytes to a pooled connection. Returns the number of bytes that it took; `None`
/// if it took none.
fn try_first_write(leg: &Leg, first: &[u8]) -> Option<usize> {
    let most = first.len().min(FIRST_WRITE_MAX);
    let slices = [io::IoSlice::new(&first[..most])];
    leg.try_write_vectored(&slices)
        .ok()
        .filter(|taken| *taken > 0)
}

/// Returns the addresses of all relays of a chain but the first. The request to the first relay
/// names them.
async fn resolve_later_hops(
    chain: &[Arc<Peer>],
    limit: Duration,
) -> Result<Vec<SocketAddr>, Fault> {
    let mut hops = Vec::new();
    for peer in chain.iter().skip(1) {
        let found = Box::pin(with_timeout(limit, peer.address.resolve())).await;
        hops.push(found.map_err(|failure| Fault::at_relay(failure, &peer.config.name))?);
    }
    Ok(hops)
}

fn next_target(
    chain: &[Arc<Peer>],
    hops: Vec<SocketAddr>,
    request: &Request,
) -> Result<NextTarget, Fault> {
    let Some(next) = chain.first() else {
        return Ok(NextTarget::Destination(request.destination.clone()));
    };
    let looped = || Fault::at_relay(Failure::Loop, &relay_name(next, request.hops.first()));
    let hop_limit = request.hop_limit.checked_sub(1).ok_or_else(looped)?;
    let onward = convert::Request {
        destination: request.destination.clone(),
        hops,
        hop_limit,
        reply_delay: request.reply_delay,
        timeout: Duration::ZERO,
        stripes: None,
        is_client_remote: false,
        dscp: 0,
    };
    Ok(NextTarget::Peer(next.clone(), onward))
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

    fn choose_chains(
        config: &Config,
        hops: &[&str],
        destination: &str,
    ) -> Result<ChainChoice, Fault> {
        let addresses = ListenAddresses::default();
        let route = Route {
            config,
            peers: &Peers::new(config, &Peers::default()),
            peer_pools: &PeerPools::default(),
            listener: "l",
            client: [127, 0, 0, 1].into(),
            lookup_quota: None,
            direct_fallback: false,
            local: LocalAccess::new(Origin::Remote, false, &addresses),
        };
        route.choose_chains(&Request {
            hops: hops.iter().map(|p| p.parse().unwrap()).collect(),
            ..Request::to(destination.parse().unwrap(), Vec::new())
        })
    }

    #[test]
    fn connects_directly_without_peers() {
        let leg = next_target(&[], Vec::new(), &request(0)).unwrap();
        assert_eq!(
            leg,
            NextTarget::Destination("host.test:80".parse().unwrap())
        );
    }

    #[tokio::test]
    async fn removes_first_relay_from_chain() {
        let chain = chain(&["10.0.0.1:1", "10.0.0.2:2"]);
        let hops = resolve_later_hops(&chain, Duration::from_secs(1))
            .await
            .unwrap();
        let NextTarget::Peer(peer, onward) = next_target(&chain, hops, &request(16)).unwrap()
        else {
            panic!("straight");
        };
        assert_eq!(peer, chain[0]);
        assert_eq!(onward.hops, [chain[1].address.preferred()]);
        assert_eq!(onward.hop_limit, 15);
    }

    #[test]
    fn hop_limit_ends_loop() {
        let chain = chain(&["10.0.0.1:1"]);
        assert!(next_target(&chain, Vec::new(), &request(1)).is_ok());
        let looped = next_target(&chain, Vec::new(), &request(0));
        assert_eq!(looped, Err(Fault::at_relay(Failure::Loop, "10.0.0.1:1")));
    }

    #[test]
    fn tries_chains_of_down_peers_last() {
        let chains = [chain(&["10.0.0.1:1"]), chain(&["10.0.0.2:2"]), chain(&[])];
        let die = |n: usize| {
            chains[n][0]
                .state
                .health
                .record_failure(Instant::now(), 0.5)
        };
        let [first, second, direct] = chains.each_ref();
        assert_eq!(sort_up_first(&chains), [first, second, direct]);
        die(0);
        assert_eq!(sort_up_first(&chains), [second, direct, first]);
        die(1);
        assert_eq!(sort_up_first(&chains), [direct, first, second]);
        first[0].state.health.record_success(Instant::now());
        assert_eq!(sort_up_first(&chains), [first, direct, second]);
    }

    #[test]
    fn hops_of_request_override_rules() {
        let config = config("[peer.p]\naddress = '10.0.0.1'\n[[route]]\nvia = ['p']");
        let named = choose_chains(&config, &["10.0.0.9:9"], "host.test:80").unwrap();
        assert_eq!(
            named.chains[0][0].address.preferred().to_string(),
            "10.0.0.9:9"
        );
        let ours = choose_chains(&config, &[], "host.test:80").unwrap();
        assert_eq!(ours.chains[0][0].config.name, "p");
    }

    #[test]
    fn applies_deny_rules_to_hops_too() {
        let config = config("[[route]]\nto = ['10.0.0.0/8']\ndeny = true");
        for (hops, destination, allowed) in [
            (&[][..], "10.1.2.3:80", false),
            (&["10.1.2.3:80"], "host.test:80", false),
            (&["192.0.2.1:80"], "10.1.2.3:80", false),
            (&["192.0.2.1:80"], "host.test:80", true),
        ] {
            let outcome = choose_chains(&config, hops, destination);
            assert_eq!(outcome.is_ok(), allowed, "{hops:?} {destination}");
        }
    }
}
