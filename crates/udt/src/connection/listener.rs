// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listening side of the handshake (draft-gg-udt-03 §5.1). It keeps no state for a client that has not returned its
//! cookie, and replies with no more bytes than it received.

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

/// Period of a cookie. A cookie is valid in its period and the next (UDT4's code, whose check of the second never
/// matches).
const COOKIE_PERIOD: Time = Time::from_secs(60);

/// Accepts connections.
pub struct Listener {
    config: Config,
    /// Secret key of the cookies.
    cookie_key: [u8; 32],
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({:?})", self.config)
    }
}

/// Result of handling a handshake datagram.
#[derive(Debug)]
pub enum HandshakeOutcome {
    /// The datagram was ignored.
    Ignored,
    /// A reply was appended.
    Reply,
    /// A connection is established and the reply was appended. The connection repeats the reply if the request is
    /// repeated.
    Established(Box<Connection>),
}

impl Listener {
    /// Creates a listener. `key` is a random secret.
    #[must_use]
    pub fn new(config: Config, key: [u8; 32]) -> Self {
        Self {
            config,
            cookie_key: key,
        }
    }

    /// Handles a datagram without a destination ID. `own` is the ID for a new connection: random and not 0.
    pub fn handle(
        &self,
        datagram: &[u8],
        from: SocketAddr,
        own: u32,
        now: Time,
        control: ControlFactory<'_>,
        to: &mut Vec<u8>,
    ) -> HandshakeOutcome {
        let Some((0, request)) = read_request(datagram) else {
            return HandshakeOutcome::Ignored;
        };
        match request.step {
            Step::Request => {
                let cookie = self.cookie(from, now.as_nanos() / COOKIE_PERIOD.as_nanos());
                reply(&Handshake { cookie, ..request }, request.socket, to);
                HandshakeOutcome::Reply
            }
            Step::Response if self.is_valid_cookie(request.cookie, from, now) => {
                self.accept(&request, from, own, now, control, to)
            }
            _ => HandshakeOutcome::Ignored,
        }
    }

    fn accept(
        &self,
        request: &Handshake,
        from: SocketAddr,
        own: u32,
        now: Time,
        control: ControlFactory<'_>,
        to: &mut Vec<u8>,
    ) -> HandshakeOutcome {
        // Both endpoints use the same initial sequence number.
        let config = self.config.for_peer(from.ip());
        let Some(params) = NegotiatedParams::negotiate(&config, own, request.first, request) else {
            let step = Step::Refusal(Handshake::REFUSED);
            reply(&Handshake { step, ..*request }, request.socket, to);
            return HandshakeOutcome::Reply;
        };
        let answer = Handshake {
            mss: params.mss,
            flow_window_max: self.config.receive_packets,
            socket: own,
            peer: from.ip(),
            ..*request
        };
        reply(&answer, request.socket, to);
        let control = control(
            params.first,
            params.peer_window.min(self.config.send_packets),
        );
        let reply = (answer, ReplyPolicy::AllRequests);
        HandshakeOutcome::Established(
            Connection::new(&self.config, &params, reply, control, now).into(),
        )
    }

    fn is_valid_cookie(&self, cookie: u32, to: SocketAddr, now: Time) -> bool {
        let period = now.as_nanos() / COOKIE_PERIOD.as_nanos();
        [Some(period), period.checked_sub(1)]
            .into_iter()
            .flatten()
            .any(|period| self.cookie(to, period) == cookie)
    }

    /// Returns the cookie of this address in this period: a keyed hash.
    fn cookie(&self, of: SocketAddr, period: u64) -> u32 {
        let mut hasher = blake3::Hasher::new_keyed(&self.cookie_key);
        hasher.update(&period.to_be_bytes());
        hasher.update(of.to_string().as_bytes());
        let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}

/// Parses a request and its destination ID. The datagram must have the exact length of a request, so that no reply is
/// longer.
fn read_request(datagram: &[u8]) -> Option<(u32, Handshake)> {
    match Packet::read(datagram)? {
        Packet {
            destination,
            body: Body::Handshake(request),
            ..
        } if datagram.len() == HEADER_LEN + handshake::LEN => Some((destination, request)),
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
