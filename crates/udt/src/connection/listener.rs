// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end that is connected to (draft-gg-udt-03 §5.1). It remembers nothing of who has not brought back its cookie, and
//! answers with no more bytes than came.

use crate::{
    config::{Config, NegotiatedParams},
    connection::{Connection, ReplyPolicy, connector::ControlFactory},
    packet::{
        Body, HEADER_LEN, Packet,
        handshake::{self, Handshake, Step},
    },
};
use longhaul_units::Time;
use std::net::SocketAddr;

/// How long a cookie is good: this period and the next (UDT4's code, whose second try never matches).
const COOKIE_PERIOD: Time = Time::from_secs(60);

/// Takes connections.
pub struct Listener {
    config: Config,
    /// Of the cookies.
    cookie_key: [u8; 32],
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({:?})", self.config)
    }
}

/// What is to be done about a datagram.
#[derive(Debug)]
pub enum HandshakeOutcome {
    /// Nothing.
    Ignored,
    /// The answer was appended.
    Reply,
    /// A connection is open; the answer was appended, and is said again by it if it is asked for again.
    Established(Box<Connection>),
}

impl Listener {
    /// For connections of this kind. `key` is random, and nobody else's.
    #[must_use]
    pub fn new(config: Config, key: [u8; 32]) -> Self {
        Self {
            config,
            cookie_key: key,
        }
    }

    /// Hears a datagram that names no connection. `own` will be our name for one, if it opens one: not 0, and at
    /// random.
    pub fn handle(
        &self,
        datagram: &[u8],
        from: SocketAddr,
        own: u32,
        now: Time,
        control: ControlFactory<'_>,
        to: &mut Vec<u8>,
    ) -> HandshakeOutcome {
        let Some((0, asked)) = read_request(datagram) else {
            return HandshakeOutcome::Ignored;
        };
        match asked.step {
            Step::Request => {
                let cookie = self.cookie(from, now.as_nanos() / COOKIE_PERIOD.as_nanos());
                reply(&Handshake { cookie, ..asked }, asked.socket, to);
                HandshakeOutcome::Reply
            }
            Step::Response if self.is_valid_cookie(asked.cookie, from, now) => {
                self.accept(&asked, from, own, now, control, to)
            }
            _ => HandshakeOutcome::Ignored,
        }
    }

    fn accept(
        &self,
        asked: &Handshake,
        from: SocketAddr,
        own: u32,
        now: Time,
        control: ControlFactory<'_>,
        to: &mut Vec<u8>,
    ) -> HandshakeOutcome {
        // Both ends count from the same number.
        let config = self.config.for_peer(from.ip());
        let Some(agreed) = NegotiatedParams::negotiate(&config, own, asked.first, asked) else {
            let step = Step::Refusal(Handshake::REFUSED);
            reply(&Handshake { step, ..*asked }, asked.socket, to);
            return HandshakeOutcome::Reply;
        };
        let answer = Handshake {
            mss: agreed.mss,
            flow_window_max: self.config.receive_packets,
            socket: own,
            peer: from.ip(),
            ..*asked
        };
        reply(&answer, asked.socket, to);
        let control = control(
            agreed.first,
            agreed.peer_window.min(self.config.send_packets),
        );
        let answers = (answer, ReplyPolicy::AllRequests);
        HandshakeOutcome::Established(
            Connection::new(&self.config, &agreed, answers, control, now).into(),
        )
    }

    fn is_valid_cookie(&self, cookie: u32, to: SocketAddr, now: Time) -> bool {
        let period = now.as_nanos() / COOKIE_PERIOD.as_nanos();
        [Some(period), period.checked_sub(1)]
            .into_iter()
            .flatten()
            .any(|period| self.cookie(to, period) == cookie)
    }

    /// Of this address in this period, and of no other: a hash with our key.
    fn cookie(&self, of: SocketAddr, period: u64) -> u32 {
        let mut hasher = blake3::Hasher::new_keyed(&self.cookie_key);
        hasher.update(&period.to_be_bytes());
        hasher.update(of.to_string().as_bytes());
        let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}

/// A request, and for which connection it is; of none else than one of its length, so that no answer is longer.
fn read_request(datagram: &[u8]) -> Option<(u32, Handshake)> {
    match Packet::read(datagram)? {
        Packet {
            destination,
            body: Body::Handshake(asked),
            ..
        } if datagram.len() == HEADER_LEN + handshake::LEN => Some((destination, asked)),
        _ => None,
    }
}

fn reply(handshake: &Handshake, destination: u32, to: &mut Vec<u8>) {
    let packet = Packet {
        timestamp_us: 0,
        destination,
        body: Body::Handshake(*handshake),
    };
    packet.write(to);
}
