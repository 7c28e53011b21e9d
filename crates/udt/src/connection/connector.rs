// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connecting side of the handshake, and both sides of a rendezvous (draft-gg-udt-03 §5).

use crate::{
    config::{Config, NegotiatedParams, STREAM_MODE},
    congestion::Control,
    connection::{Connection, ReplyPolicy},
    packet::{
        Body, Packet,
        handshake::{Handshake, Step},
        number::Seq,
    },
};
use longhaul_units::Time;
use std::net::IpAddr;

/// Interval between two requests (UDT4's code).
const RETRY_INTERVAL: Time = Time::from_millis(250);
/// Factor by which the timeout of a rendezvous is longer (UDT4's code: ten).
const RENDEZVOUS_TIMEOUT_FACTOR: u64 = 3;

/// Connection during its handshake.
#[derive(Debug)]
pub struct Connector {
    config: Config,
    own_id: u32,
    first_seq: Seq,
    peer_ip: IpAddr,
    step: Step,
    cookie: u32,
    /// Handshake that the peer of a rendezvous sent.
    peer_handshake: Option<Handshake>,
    next_at: Time,
    expires_at: Time,
}

/// Result of handling a packet during the handshake.
#[derive(Debug)]
pub enum ConnectOutcome {
    /// The handshake continues.
    Pending,
    /// The connection is established.
    Established(Box<Connection>),
    /// The peer refused with this code (1002: another version or mode).
    Refused(u32),
}

/// Creates a congestion control from the initial sequence number and the maximum window in packets.
pub type ControlFactory<'a> = &'a dyn Fn(Seq, u32) -> Box<dyn Control>;

impl Connector {
    /// Starts a handshake with a listener at `peer`. `own` is the connection's ID, not 0, and `first` its initial
    /// sequence number. Both are random, so that no third party can guess them.
    #[must_use]
    pub fn to_listener(config: Config, peer: IpAddr, own: u32, first: Seq, now: Time) -> Self {
        Self::new(
            config,
            peer,
            own,
            first,
            Step::Request,
            now,
            config.connect_timeout,
        )
    }

    /// Starts a rendezvous with a peer that does the same.
    #[must_use]
    pub fn rendezvous(config: Config, peer: IpAddr, own: u32, first: Seq, now: Time) -> Self {
        let timeout = Time::from_nanos(
            config
                .connect_timeout
                .as_nanos()
                .saturating_mul(RENDEZVOUS_TIMEOUT_FACTOR),
        );
        Self::new(config, peer, own, first, Step::Rendezvous, now, timeout)
    }

    fn new(
        config: Config,
        peer: IpAddr,
        own: u32,
        first: Seq,
        step: Step,
        now: Time,
        timeout: Time,
    ) -> Self {
        Self {
            config: config.for_peer(peer),
            own_id: own,
            first_seq: first,
            peer_ip: peer,
            step,
            cookie: 0,
            peer_handshake: None,
            next_at: now,
            expires_at: now + timeout,
        }
    }

    /// Returns the connection ID that this endpoint chose.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.own_id
    }

    /// Returns the time of the next request, at most [`Self::expires_at`].
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.next_at.min(self.expires_at)
    }

    /// Returns the time at which the handshake fails.
    #[must_use]
    pub fn expires_at(&self) -> Time {
        self.expires_at
    }

    /// Appends a request if one is due. Returns whether one was.
    pub fn transmit(&mut self, now: Time, to: &mut Vec<u8>) -> bool {
        if now < self.next_at || now >= self.expires_at {
            return false;
        }
        self.next_at = now + RETRY_INTERVAL;
        let packet = Packet {
            timestamp_us: 0,
            destination: self.peer_handshake.map_or(0, |handshake| handshake.socket),
            body: Body::Handshake(self.handshake(self.step)),
        };
        packet.write(to);
        true
    }

    fn handshake(&self, step: Step) -> Handshake {
        Handshake {
            version: Handshake::VERSION,
            mode: STREAM_MODE,
            first: self.first_seq,
            mss: self.config.mss,
            flow_window_max: self.config.receive_packets,
            step,
            socket: self.own_id,
            cookie: self.cookie,
            peer: self.peer_ip,
        }
    }

    /// Handles a packet of the peer.
    pub fn handle(
        &mut self,
        packet: &Packet<'_>,
        now: Time,
        control: ControlFactory<'_>,
    ) -> ConnectOutcome {
        if packet.destination != self.own_id {
            return ConnectOutcome::Pending;
        }
        match (&packet.body, self.step) {
            (Body::Handshake(theirs), Step::Request | Step::Response) if !self.is_rendezvous() => {
                self.handle_listener(theirs, now, control)
            }
            (Body::Handshake(theirs), _) => self.handle_rendezvous(theirs, now, control),
            // A peer that sends these has received our handshake.
            (Body::Data(_) | Body::KeepAlive, Step::Response) => match self.peer_handshake {
                Some(theirs) => self.establish(&theirs, now, control),
                None => ConnectOutcome::Pending,
            },
            _ => ConnectOutcome::Pending,
        }
    }

    pub(crate) fn is_rendezvous(&self) -> bool {
        self.step == Step::Rendezvous || self.peer_handshake.is_some()
    }

    fn handle_listener(
        &mut self,
        theirs: &Handshake,
        now: Time,
        control: ControlFactory<'_>,
    ) -> ConnectOutcome {
        match theirs.step {
            Step::Request => {
                (self.cookie, self.step, self.next_at) = (theirs.cookie, Step::Response, now);
                ConnectOutcome::Pending
            }
            // The response repeats our initial sequence number, which no third party knows.
            Step::Response if self.step == Step::Response && theirs.first == self.first_seq => {
                self.establish(theirs, now, control)
            }
            Step::Refusal(code) => ConnectOutcome::Refused(code),
            _ => ConnectOutcome::Pending,
        }
    }

    fn handle_rendezvous(
        &mut self,
        theirs: &Handshake,
        now: Time,
        control: ControlFactory<'_>,
    ) -> ConnectOutcome {
        match (theirs.step, self.step) {
            (Step::Refusal(code), _) => return ConnectOutcome::Refused(code),
            // A request is meant for a listener.
            (Step::Request, _) => return ConnectOutcome::Pending,
            (Step::Rendezvous, _) | (_, Step::Rendezvous) => {
                self.step = Step::Response;
                self.next_at = now;
                self.peer_handshake = Some(*theirs);
                return ConnectOutcome::Pending;
            }
            _ => {}
        }
        self.establish(theirs, now, control)
    }

    fn establish(
        &self,
        theirs: &Handshake,
        now: Time,
        control: ControlFactory<'_>,
    ) -> ConnectOutcome {
        let Some(params) =
            NegotiatedParams::negotiate(&self.config, self.own_id, self.first_seq, theirs)
        else {
            return ConnectOutcome::Refused(Handshake::REFUSED);
        };
        // The peer of a rendezvous may not have received the last handshake.
        let answer = if self.is_rendezvous() {
            (self.handshake(Step::Agreement), ReplyPolicy::AllRequests)
        } else {
            (self.handshake(Step::Response), ReplyPolicy::ProbesOnly)
        };
        let control = control(
            self.first_seq,
            params.peer_window.min(self.config.send_packets),
        );
        let connection = Connection::new(&self.config, &params, answer, control, now);
        ConnectOutcome::Established(connection.into())
    }
}
