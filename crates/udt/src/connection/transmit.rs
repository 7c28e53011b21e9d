// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a connection says, and when.

use super::{Connection, End};
use crate::{
    halves::receiving::Acking,
    packet::{
        Body, Data, Losses, Message, Packet,
        handshake::{Handshake, Step},
    },
};
use longhaul_units::Time;

/// How often the other end is told that it is over, if it says nothing to that, as libudt does; it is told again after a long
/// round trip, or this.
const FAREWELLS: u32 = 5;
const FAREWELL_AGAIN: Time = Time::from_millis(50);

impl Connection {
    /// Appends the next datagram, if one is to go now.
    pub fn transmit(&mut self, now: Time, to: &mut Vec<u8>) -> bool {
        if std::mem::take(&mut self.tells) {
            self.say_over(now, to);
            return true;
        }
        if self.end.is_none() {
            self.look(now);
        }
        self.end.is_none() && (self.say(now, to) || self.probe(now, to) || self.send(now, to))
    }

    /// All but data.
    fn say(&mut self, now: Time, to: &mut Vec<u8>) -> bool {
        let (peer, timestamp_us) = (self.peer, self.timestamp(now));
        let packet = |body| Packet {
            timestamp_us,
            destination: peer,
            body,
        };
        if let Some(cookie) = self.answers.take() {
            let answer = Handshake {
                cookie,
                ..self.answer
            };
            packet(Body::Handshake(answer)).write(to);
        } else if let Some(number) = self.ack2.take() {
            packet(Body::Ack2(number)).write(to);
        } else if let Some(acking) = self.receiver.ack(now) {
            let body = match acking {
                Acking::Full(ack) => Body::Ack(ack),
                Acking::Light(next) => Body::LightAck(next),
            };
            packet(body).write(to);
        } else if let Some(runs) = self.receiver.losses(now) {
            self.report.clear();
            Losses::encode(runs, self.payload_max, &mut self.report);
            packet(Body::Nak(Losses::of(&self.report))).write(to);
        } else if std::mem::take(&mut self.keep_alive) || self.asks_for_ack(now) {
            packet(Body::KeepAlive).write(to);
        } else if self.is_over() {
            return self.bid_farewell(now, to);
        } else {
            return false;
        }
        true
    }

    fn asks_for_ack(&mut self, now: Time) -> bool {
        self.sender.is_waiting() && self.ack_request.take(now)
    }

    fn bid_farewell(&mut self, now: Time, to: &mut Vec<u8>) -> bool {
        let (told, again_at) = self.farewells.unwrap_or_default();
        if now < again_at {
            return false;
        }
        if told == FAREWELLS {
            self.end = Some(End::Here);
            return false;
        }
        let pause = self.sender.rtt().long().max(FAREWELL_AGAIN);
        self.farewells = Some((told + 1, now + pause));
        self.say_over(now, to);
        true
    }

    fn say_over(&self, now: Time, to: &mut Vec<u8>) {
        let packet = Packet {
            timestamp_us: self.timestamp(now),
            destination: self.peer,
            body: Body::Shutdown(Some(self.receiver.buffer.next())),
        };
        packet.write(to);
    }

    /// A packet that says nothing and is as long as others may be, while there is data to send.
    fn probe(&mut self, now: Time, to: &mut Vec<u8>) -> bool {
        if self.probe_due().is_none_or(|due| due > now) {
            return false;
        }
        let probed = self.path.probe(now, self.sender.rtt().long());
        // A search may have come to its end, or lower.
        self.cut();
        let Some(length) = probed else {
            return false;
        };
        let asks = Handshake {
            step: Step::Request,
            cookie: length as u32,
            ..self.answer
        };
        let packet = Packet {
            timestamp_us: self.timestamp(now),
            destination: self.peer,
            body: Body::Handshake(asks),
        };
        let begin = to.len();
        packet.write(to);
        to.resize(begin + length, 0);
        true
    }

    fn probe_due(&self) -> Option<Time> {
        self.path.due().filter(|_| !self.is_flushed())
    }

    fn send(&mut self, now: Time, to: &mut Vec<u8>) -> bool {
        if self.aborted {
            return false;
        }
        let Some(seq) = self.sender.next(now) else {
            return false;
        };
        self.ack_request.sent(now);
        let data = Data {
            seq,
            message: Message::alone(seq),
            payload: self.sender.buffer.packet(seq),
        };
        let packet = Packet {
            timestamp_us: self.timestamp(now),
            destination: self.peer,
            body: Body::Data(data),
        };
        packet.write(to);
        true
    }

    /// When [`Self::transmit`] may have something next; `None` after the end.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.end.is_some() {
            return self.tells.then_some(Time::ZERO);
        }
        let at_once = self.ack2.is_some() || self.answers.is_some() || self.keep_alive;
        let farewell = self.farewells.map_or(Time::ZERO, |(_, again_at)| again_at);
        let ack_request = self.ack_request.due();
        let expiry = self.expiry.due(self.sender.rtt().long());
        [
            at_once.then_some(Time::ZERO),
            self.is_over().then_some(farewell),
            self.receiver.due(),
            self.sender.due().filter(|_| !self.aborted),
            self.probe_due(),
            self.sender.repeat_due().filter(|_| !self.aborted),
            ack_request.filter(|_| self.sender.is_waiting()),
            Some(expiry),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn timestamp(&self, now: Time) -> u32 {
        (now.since(self.began).as_nanos() / 1000) as u32
    }
}
