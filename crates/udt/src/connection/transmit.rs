// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transmission: the order in which a connection sends its packets, and their deadlines.

use super::{CloseReason, Connection};
use crate::{
    halves::receiver::OutgoingAck,
    packet::{
        Body, Data, LossReport, Message, Packet,
        handshake::{Handshake, Step},
    },
};
use longhaul_units::Time;

/// Maximum number of shutdowns, for a peer that does not reply to them, as libudt. The interval is the upper bound of
/// the round-trip time, but at least [`SHUTDOWN_INTERVAL_MIN`].
const SHUTDOWNS_MAX: u32 = 5;
const SHUTDOWN_INTERVAL_MIN: Time = Time::from_millis(50);

impl Connection {
    /// Appends the next datagram if one is due. Returns whether one was.
    pub fn transmit(&mut self, now: Time, to: &mut Vec<u8>) -> bool {
        if std::mem::take(&mut self.shutdown_pending) {
            self.send_shutdown(now, to);
            return true;
        }
        if self.close_reason.is_none() {
            self.run_timers(now);
        }
        self.close_reason.is_none()
            && (self.send_control(now, to) || self.send_probe(now, to) || self.send_data(now, to))
    }

    /// Appends a control packet if one is due.
    fn send_control(&mut self, now: Time, to: &mut Vec<u8>) -> bool {
        let (peer, timestamp_us) = (self.peer_id, self.timestamp(now));
        let packet = |body| Packet {
            timestamp_us,
            destination: peer,
            body,
        };
        if let Some(cookie) = self.reply_cookie.take() {
            let answer = Handshake {
                cookie,
                ..self.reply
            };
            packet(Body::Handshake(answer)).write(to);
        } else if let Some(number) = self.pending_ack2.take() {
            packet(Body::Ack2(number)).write(to);
        } else if let Some(acking) = self.receiver.next_ack(now) {
            let body = match acking {
                OutgoingAck::Full(ack) => Body::Ack(ack),
                OutgoingAck::Light(next) => Body::LightAck(next),
            };
            packet(body).write(to);
        } else if let Some(runs) = self.receiver.next_loss_report(now) {
            self.loss_report.clear();
            LossReport::encode(runs, self.payload_max, &mut self.loss_report);
            packet(Body::Nak(LossReport::from_encoded(&self.loss_report))).write(to);
        } else if std::mem::take(&mut self.keep_alive_pending) || self.take_ack_request(now) {
            packet(Body::KeepAlive).write(to);
        } else if self.is_shutdown_due() {
            return self.repeat_shutdown(now, to);
        } else {
            return false;
        }
        true
    }

    fn take_ack_request(&mut self, now: Time) -> bool {
        self.sender.has_unacked() && self.ack_request.take(now)
    }

    fn repeat_shutdown(&mut self, now: Time, to: &mut Vec<u8>) -> bool {
        let (sent, next_at) = self.shutdowns.unwrap_or_default();
        if now < next_at {
            return false;
        }
        if sent == SHUTDOWNS_MAX {
            self.close_reason = Some(CloseReason::Local);
            return false;
        }
        let interval = self.sender.rtt().upper_bound().max(SHUTDOWN_INTERVAL_MIN);
        self.shutdowns = Some((sent + 1, now + interval));
        self.send_shutdown(now, to);
        true
    }

    fn send_shutdown(&self, now: Time, to: &mut Vec<u8>) {
        let packet = Packet {
            timestamp_us: self.timestamp(now),
            destination: self.peer_id,
            body: Body::Shutdown(Some(self.receiver.buffer.next())),
        };
        packet.write(to);
    }

    /// Appends a path MTU probe if one is due. Probes are sent only while there is unacknowledged data.
    fn send_probe(&mut self, now: Time, to: &mut Vec<u8>) -> bool {
        if self.probe_deadline().is_none_or(|due| due > now) {
            return false;
        }
        let probe_len = self
            .path_mtu
            .next_probe(now, self.sender.rtt().upper_bound());
        // The search may have ended, or lowered the length.
        self.apply_packet_len();
        let Some(length) = probe_len else {
            return false;
        };
        let request = Handshake {
            step: Step::Request,
            cookie: length as u32,
            ..self.reply
        };
        let packet = Packet {
            timestamp_us: self.timestamp(now),
            destination: self.peer_id,
            body: Body::Handshake(request),
        };
        let begin = to.len();
        packet.write(to);
        to.resize(begin + length, 0);
        true
    }

    fn probe_deadline(&self) -> Option<Time> {
        self.path_mtu.deadline().filter(|_| !self.is_flushed())
    }

    fn send_data(&mut self, now: Time, to: &mut Vec<u8>) -> bool {
        if self.aborted {
            return false;
        }
        let Some(seq) = self.sender.next_packet(now) else {
            return false;
        };
        self.ack_request.on_data_sent(now);
        let data = Data {
            seq,
            message: Message::for_stream(seq),
            payload: self.sender.buffer.packet(seq),
        };
        let packet = Packet {
            timestamp_us: self.timestamp(now),
            destination: self.peer_id,
            body: Body::Data(data),
        };
        packet.write(to);
        true
    }

    /// Returns the time at which [`Self::transmit`] may have the next datagram; `None` after the close.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.close_reason.is_some() {
            return self.shutdown_pending.then_some(Time::ZERO);
        }
        let is_due_now =
            self.pending_ack2.is_some() || self.reply_cookie.is_some() || self.keep_alive_pending;
        let shutdown = self.shutdowns.map_or(Time::ZERO, |(_, next_at)| next_at);
        let ack_request = self.ack_request.deadline();
        let expiry = self.expiry.deadline(self.sender.rtt().upper_bound());
        [
            is_due_now.then_some(Time::ZERO),
            self.is_shutdown_due().then_some(shutdown),
            self.receiver.deadline(),
            self.sender.deadline().filter(|_| !self.aborted),
            self.probe_deadline(),
            self.sender.retransmit_deadline().filter(|_| !self.aborted),
            ack_request.filter(|_| self.sender.has_unacked()),
            Some(expiry),
            self.refusal.deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn timestamp(&self, now: Time) -> u32 {
        (now.since(self.started_at).as_nanos() / 1000) as u32
    }
}
