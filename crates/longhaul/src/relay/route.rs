// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way out: straight to the destination, or to the next relay of a chain with the rest of the
//! way in the preamble.

use super::{
    args::Mode,
    config::Config,
    connect::connect,
    failure::Failure,
    peer::Peer,
    policy::{Question, WayOut},
    profile::Profile,
    stream::{read_some, write_all},
};
use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{net::TcpStream, time::timeout};
use wire::{
    convert::{self, Answer, HOPS_MAX},
    destination::Destination,
};

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
    /// What the client sent behind its request.
    pub(crate) early: Vec<u8>,
}

impl Request {
    /// From a client that knows nothing of relays.
    pub(crate) fn to(destination: Destination, early: Vec<u8>) -> Self {
        Self {
            destination,
            hops: Vec::new(),
            hop_limit: HOPS_MAX as u8,
            source: None,
            early,
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
            early,
        }
    }
}

/// How the connections of one client leave this relay.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route<'a> {
    pub(crate) config: &'a Config,
    /// The name of the listener that it came through.
    pub(crate) listener: &'a str,
    pub(crate) client: IpAddr,
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
    pub(crate) async fn open(&self, request: &Request) -> Result<Far, Failure> {
        let way = self.way_out(request)?;
        let mut outcome = Err(Failure::NotAllowed);
        for chain in &way.chains {
            outcome = self.open_by(chain, &way.profile, request).await;
            match &outcome {
                Err(failure) if failure.is_unreached() && !chain.is_empty() => {}
                _ => break,
            }
        }
        outcome
    }

    /// What the rules say; a request that names its own hops goes by those, and both its hop and
    /// its destination must be allowed.
    fn way_out(&self, request: &Request) -> Result<WayOut, Failure> {
        let allowed = self.decide(&request.destination)?;
        if request.hops.is_empty() {
            return Ok(allowed.clone());
        }
        self.decide(&Destination::Address(request.hops[0]))?;
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

    fn decide(&self, destination: &Destination) -> Result<&WayOut, Failure> {
        let question = Question {
            listener: self.listener,
            client: self.client,
            destination,
        };
        let way = self.config.policy.decide(question);
        way.ok_or(Failure::NotAllowed)
    }

    async fn open_by(
        &self,
        chain: &[Arc<Peer>],
        straight: &Profile,
        request: &Request,
    ) -> Result<Far, Failure> {
        let limit = self.config.limits.connect_timeout;
        let (leg, profile, first) = match next_leg(chain, request)? {
            NextLeg::Destination(destination) => (destination, straight, Vec::new()),
            NextLeg::Peer(peer, onward) => {
                let leg = Destination::Address(peer.address);
                (leg, &*peer.profile.clone(), onward.encode())
            }
        };
        // A name may lead where its rule did not look.
        let permits = |address| self.decide(&Destination::Address(address)).is_ok();
        let (stream, address) = connect(&leg, request.source, profile, limit, permits).await?;
        let answer_due = AtomicBool::new(!first.is_empty());
        let first = [first, request.early.clone()].concat();
        write_all(&stream, &first)
            .await
            .map_err(|error| Failure::from_connect(&error))?;
        Ok(Far {
            stream: Arc::new(stream),
            address,
            mode: profile.mode,
            answer_due,
            limit,
        })
    }
}

fn next_leg(chain: &[Arc<Peer>], request: &Request) -> Result<NextLeg, Failure> {
    let Some((next, rest)) = chain.split_first() else {
        return Ok(NextLeg::Destination(request.destination.clone()));
    };
    let hop_limit = request.hop_limit.checked_sub(1).ok_or(Failure::Loop)?;
    let onward = convert::Request {
        destination: request.destination.clone(),
        hops: rest.iter().map(|peer| peer.address).collect(),
        hop_limit,
    };
    Ok(NextLeg::Peer(next.clone(), onward))
}

/// An outgoing leg.
#[derive(Debug)]
pub(crate) struct Far {
    pub(crate) stream: Arc<TcpStream>,
    /// Where it goes: the destination's address or the peer's.
    pub(crate) address: SocketAddr,
    /// How its bytes move, if its profile says.
    pub(crate) mode: Option<Mode>,
    /// The peer's answer has not been read yet.
    answer_due: AtomicBool,
    limit: Duration,
}

impl Far {
    /// The same leg, driven by the calling thread's event loop from now on.
    pub(crate) fn at_home_here(mut self) -> Result<Self, Failure> {
        let moved = |stream: TcpStream| TcpStream::from_std(stream.into_std()?);
        self.stream = match Arc::try_unwrap(self.stream) {
            Ok(stream) => Arc::new(moved(stream).map_err(|_| Failure::Other)?),
            // Somebody else has it too: it stays where it is, which costs wake-ups only.
            Err(shared) => shared,
        };
        Ok(self)
    }

    /// A leg that the destination opened itself.
    pub(crate) fn standing(
        (stream, address): (TcpStream, SocketAddr),
        profile: &Profile,
        limit: Duration,
    ) -> Self {
        Self {
            stream: Arc::new(stream),
            address,
            mode: profile.mode,
            answer_due: AtomicBool::new(false),
            limit,
        }
    }

    /// Whether the destination is reached. A direct leg knows at once; over a peer, this reads the
    /// answer, and not one byte more. Call it before anything else is read; after the first call it
    /// does nothing.
    pub(crate) async fn answer(&self) -> Result<(), Failure> {
        if !self.answer_due.swap(false, Relaxed) {
            return Ok(());
        }
        let answer = timeout(self.limit, read_answer(&self.stream)).await;
        match answer.unwrap_or(Err(Failure::TimedOut))? {
            Answer::Accepted => Ok(()),
            Answer::Refused { code, detail } => Err(Failure::from_convert(code, detail)),
        }
    }
}

async fn read_answer(stream: &TcpStream) -> Result<Answer, Failure> {
    let mut bytes = Vec::new();
    loop {
        match Answer::missing(&bytes).map_err(|_| Failure::PeerProtocol)? {
            0 => break,
            missing => match read_some(stream, &mut bytes, missing).await {
                Ok(1..) => {}
                _ => return Err(Failure::PeerProtocol),
            },
        }
    }
    match Answer::parse(&bytes) {
        Ok(Some((answer, _))) => Ok(answer),
        _ => Err(Failure::PeerProtocol),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(peers: &[&str]) -> Vec<Arc<Peer>> {
        let peer = |text: &&str| Peer {
            name: (*text).to_owned(),
            address: text.parse().unwrap(),
            profile: Arc::default(),
        };
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

    fn way_out(config: &Config, hops: &[&str], destination: &str) -> Result<WayOut, Failure> {
        let route = Route {
            config,
            listener: "l",
            client: [127, 0, 0, 1].into(),
        };
        route.way_out(&Request {
            hops: hops.iter().map(|p| p.parse().unwrap()).collect(),
            ..Request::to(destination.parse().unwrap(), Vec::new())
        })
    }

    #[test]
    fn without_peers_it_goes_straight() {
        let leg = next_leg(&[], &request(0)).unwrap();
        assert_eq!(leg, NextLeg::Destination("host.test:80".parse().unwrap()));
    }

    #[test]
    fn a_chain_is_stripped_from_the_near_end() {
        let chain = chain(&["10.0.0.1:1", "10.0.0.2:2"]);
        let NextLeg::Peer(peer, onward) = next_leg(&chain, &request(16)).unwrap() else {
            panic!("straight");
        };
        assert_eq!(peer, chain[0]);
        assert_eq!(onward.hops, [chain[1].address]);
        assert_eq!(onward.hop_limit, 15);
    }

    #[test]
    fn the_hop_limit_ends_a_loop() {
        let chain = chain(&["10.0.0.1:1"]);
        assert!(next_leg(&chain, &request(1)).is_ok());
        assert_eq!(next_leg(&chain, &request(0)), Err(Failure::Loop));
    }

    #[test]
    fn the_request_s_hops_come_before_the_relay_s_own() {
        let config = config("[peer.p]\naddress = '10.0.0.1'\n[[route]]\nvia = ['p']");
        let way = way_out(&config, &["10.0.0.9:9"], "host.test:80").unwrap();
        assert_eq!(way.chains[0][0].address.to_string(), "10.0.0.9:9");
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
