// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end that connects, and both ends of a rendezvous (draft-gg-udt-03 §5).

use crate::{
    config::{Agreed, Config, STREAM},
    congestion::Control,
    connection::{AnswersTo, Connection},
    packet::{
        Body, Packet,
        handshake::{Handshake, Step},
        number::Seq,
    },
};
use longhaul_units::Time;
use std::net::IpAddr;

/// From one request to the next (UDT4's code).
const REPEAT: Time = Time::from_millis(250);
/// How many times longer a rendezvous may take (UDT4's code: ten times).
const RENDEZVOUS: u64 = 3;

/// A connection that is being opened.
#[derive(Debug)]
pub struct Opening {
    config: Config,
    own: u32,
    first: Seq,
    peer: IpAddr,
    step: Step,
    cookie: u32,
    /// What a rendezvous' other end said.
    heard: Option<Handshake>,
    next_at: Time,
    until: Time,
}

/// What became of it.
#[derive(Debug)]
pub enum Opened {
    /// Nothing yet.
    Waiting,
    /// It is open.
    Open(Box<Connection>),
    /// The other end does not want it: the code that it gave (1002: another version or mode).
    Refused(u32),
}

/// Makes a congestion control for a connection, from its first packet and the packets that may be under way.
pub type Controls<'a> = &'a dyn Fn(Seq, u32) -> Box<dyn Control>;

impl Opening {
    /// Asks a listener at `peer`. `own` is our name for the connection, not 0, and `first` its first packet: both
    /// at random, so that nobody elsewhere can guess them.
    #[must_use]
    pub fn to_listener(config: Config, peer: IpAddr, own: u32, first: Seq, now: Time) -> Self {
        Self::new(
            config,
            peer,
            (own, first),
            Step::Request,
            now,
            config.patience,
        )
    }

    /// Meets an end that does the same.
    #[must_use]
    pub fn rendezvous(config: Config, peer: IpAddr, own: u32, first: Seq, now: Time) -> Self {
        let patience = Time::from_nanos(config.patience.as_nanos().saturating_mul(RENDEZVOUS));
        Self::new(config, peer, (own, first), Step::Rendezvous, now, patience)
    }

    fn new(
        config: Config,
        peer: IpAddr,
        (own, first): (u32, Seq),
        step: Step,
        now: Time,
        patience: Time,
    ) -> Self {
        Self {
            config: config.towards(peer),
            own,
            first,
            peer,
            step,
            cookie: 0,
            heard: None,
            next_at: now,
            until: now + patience,
        }
    }

    /// Our name for it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.own
    }

    /// When the next request goes; after [`Self::until`] none does.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.next_at.min(self.until)
    }

    /// How long it is tried.
    #[must_use]
    pub fn until(&self) -> Time {
        self.until
    }

    /// Appends a request, if one is to go now.
    pub fn transmit(&mut self, now: Time, to: &mut Vec<u8>) -> bool {
        if now < self.next_at || now >= self.until {
            return false;
        }
        self.next_at = now + REPEAT;
        let packet = Packet {
            timestamp_us: 0,
            destination: self.heard.map_or(0, |heard| heard.socket),
            body: Body::Handshake(self.offer(self.step)),
        };
        packet.write(to);
        true
    }

    fn offer(&self, step: Step) -> Handshake {
        Handshake {
            version: Handshake::VERSION,
            mode: STREAM,
            first: self.first,
            mss: self.config.mss,
            flight_max: self.config.receive_packets,
            step,
            socket: self.own,
            cookie: self.cookie,
            peer: self.peer,
        }
    }

    /// A packet for it came.
    pub fn handle(&mut self, packet: &Packet<'_>, now: Time, control: Controls<'_>) -> Opened {
        if packet.destination != self.own {
            return Opened::Waiting;
        }
        match (&packet.body, self.step) {
            (Body::Handshake(theirs), Step::Request | Step::Response) if !self.is_rendezvous() => {
                self.hear_listener(theirs, now, control)
            }
            (Body::Handshake(theirs), _) => self.hear_other(theirs, now, control),
            // Who sends that has heard us.
            (Body::Data(_) | Body::KeepAlive, Step::Response) => match self.heard {
                Some(theirs) => self.open(&theirs, now, control),
                None => Opened::Waiting,
            },
            _ => Opened::Waiting,
        }
    }

    pub(crate) fn is_rendezvous(&self) -> bool {
        self.step == Step::Rendezvous || self.heard.is_some()
    }

    fn hear_listener(&mut self, theirs: &Handshake, now: Time, control: Controls<'_>) -> Opened {
        match theirs.step {
            Step::Request => {
                (self.cookie, self.step, self.next_at) = (theirs.cookie, Step::Response, now);
                Opened::Waiting
            }
            // It repeats our number, which nobody else knows.
            Step::Response if self.step == Step::Response && theirs.first == self.first => {
                self.open(theirs, now, control)
            }
            Step::Refusal(code) => Opened::Refused(code),
            _ => Opened::Waiting,
        }
    }

    fn hear_other(&mut self, theirs: &Handshake, now: Time, control: Controls<'_>) -> Opened {
        match (theirs.step, self.step) {
            (Step::Refusal(code), _) => return Opened::Refused(code),
            // Of one that asks a listener.
            (Step::Request, _) => return Opened::Waiting,
            (Step::Rendezvous, _) | (_, Step::Rendezvous) => {
                self.step = Step::Response;
                self.next_at = now;
                self.heard = Some(*theirs);
                return Opened::Waiting;
            }
            _ => {}
        }
        self.open(theirs, now, control)
    }

    fn open(&self, theirs: &Handshake, now: Time, control: Controls<'_>) -> Opened {
        let Some(agreed) = Agreed::with(&self.config, self.own, self.first, theirs) else {
            return Opened::Refused(Handshake::REFUSED);
        };
        // The other end of a rendezvous may not have heard the last word.
        let answer = match self.is_rendezvous() {
            true => (self.offer(Step::Agreement), AnswersTo::All),
            false => (self.offer(Step::Response), AnswersTo::Probes),
        };
        let control = control(self.first, agreed.flight.min(self.config.send_packets));
        let connection = Connection::new(&self.config, &agreed, answer, control, now);
        Opened::Open(connection.into())
    }
}
