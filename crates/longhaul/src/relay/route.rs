// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way out: straight to the destination, or to the next relay of a chain with the rest of the
//! way in the preamble.

use super::{
    connect::connect,
    failure::Failure,
    profile::Profile,
    stream::{read_some, write_all},
};
use std::{
    net::SocketAddr,
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

/// How connections leave this relay.
#[derive(Debug)]
pub(crate) struct Route {
    /// Relays to pass, nearest first, unless the request names its own.
    pub(crate) peers: Vec<SocketAddr>,
    pub(crate) profile: Profile,
    /// Limit on a connect, and on a peer's answer.
    pub(crate) limit: Duration,
}

/// Where the outgoing leg goes.
#[derive(Debug, PartialEq, Eq)]
enum NextLeg {
    Destination(Destination),
    Peer(SocketAddr, convert::Request),
}

impl Route {
    fn next_leg(&self, request: &Request) -> Result<NextLeg, Failure> {
        let chain = match request.hops.is_empty() {
            true => &self.peers,
            false => &request.hops,
        };
        let Some((next, rest)) = chain.split_first() else {
            return Ok(NextLeg::Destination(request.destination.clone()));
        };
        let hop_limit = request.hop_limit.checked_sub(1).ok_or(Failure::Loop)?;
        let onward = convert::Request {
            destination: request.destination.clone(),
            hops: rest.to_vec(),
            hop_limit,
        };
        Ok(NextLeg::Peer(*next, onward))
    }

    /// Opens the outgoing leg and sends the client's early bytes. To a peer, they leave in one
    /// write with the preamble, and its answer is still to come: see [`Far::answer`].
    pub(crate) async fn open(&self, request: &Request) -> Result<Far, Failure> {
        let (leg, first) = match self.next_leg(request)? {
            NextLeg::Destination(destination) => (destination, Vec::new()),
            NextLeg::Peer(peer, onward) => (Destination::Address(peer), onward.encode()),
        };
        let stream = connect(&leg, request.source, &self.profile, self.limit).await?;
        let answer_due = AtomicBool::new(!first.is_empty());
        let first = [first, request.early.clone()].concat();
        write_all(&stream, &first)
            .await
            .map_err(|error| Failure::from_connect(&error))?;
        Ok(Far {
            stream: Arc::new(stream),
            answer_due,
            limit: self.limit,
        })
    }
}

/// An outgoing leg.
#[derive(Debug)]
pub(crate) struct Far {
    pub(crate) stream: Arc<TcpStream>,
    /// The peer's answer has not been read yet.
    answer_due: AtomicBool,
    limit: Duration,
}

impl Far {
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

    fn route(peers: &[&str]) -> Route {
        Route {
            peers: peers.iter().map(|p| p.parse().unwrap()).collect(),
            profile: Profile::default(),
            limit: Duration::from_secs(1),
        }
    }

    fn request(hops: &[&str], hop_limit: u8) -> Request {
        Request {
            hops: hops.iter().map(|p| p.parse().unwrap()).collect(),
            hop_limit,
            ..Request::to("host.test:80".parse().unwrap(), Vec::new())
        }
    }

    fn peer(leg: NextLeg) -> (String, Vec<String>, u8) {
        let NextLeg::Peer(peer, onward) = leg else {
            panic!("{leg:?}");
        };
        let hops = onward.hops.iter().map(ToString::to_string).collect();
        (peer.to_string(), hops, onward.hop_limit)
    }

    #[test]
    fn without_peers_it_goes_straight() {
        let leg = route(&[]).next_leg(&request(&[], 0)).unwrap();
        assert_eq!(leg, NextLeg::Destination("host.test:80".parse().unwrap()));
    }

    #[test]
    fn a_chain_is_stripped_from_the_near_end() {
        let leg = route(&["10.0.0.1:1", "10.0.0.2:2"])
            .next_leg(&request(&[], 16))
            .unwrap();
        assert_eq!(
            peer(leg),
            ("10.0.0.1:1".into(), vec!["10.0.0.2:2".into()], 15)
        );
    }

    #[test]
    fn the_request_s_hops_come_before_the_relay_s_own() {
        let leg = route(&["10.0.0.1:1"])
            .next_leg(&request(&["10.0.0.9:9"], 3))
            .unwrap();
        assert_eq!(peer(leg), ("10.0.0.9:9".into(), vec![], 2));
    }

    #[test]
    fn the_hop_limit_ends_a_loop() {
        let route = route(&["10.0.0.1:1"]);
        assert!(route.next_leg(&request(&[], 1)).is_ok());
        assert_eq!(route.next_leg(&request(&[], 0)), Err(Failure::Loop));
    }
}
