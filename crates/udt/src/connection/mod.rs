// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open connection: packets and the time go in, packets and deadlines come out (draft-gg-udt-03 §6).

mod ack_request;
pub(crate) mod connector;
mod expiry;
pub(crate) mod listener;
mod path_mtu;
mod transmit;

use crate::{
    config::{Config, IP_UDP_HEADERS_LEN, NegotiatedParams},
    congestion::Control,
    halves::{
        receive_buffer::ReceiveBuffer,
        receiver::Receiver,
        send_buffer::SendBuffer,
        sender::{Counts, Sender},
    },
    packet::{
        Body, HEADER_LEN, Packet,
        handshake::{Handshake, Step},
        number::Seq,
    },
};
use ack_request::AckRequest;
use expiry::Expiry;
use longhaul_units::Time;
use path_mtu::PathMtu;

/// How a connection came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// Here, with [`Connection::close`], after all was acknowledged, and the other end has heard so or was told often enough.
    Local,
    /// Over there. What had arrived can still be read.
    Remote,
    /// Nothing was heard any more.
    Timeout,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    own_id: u32,
    peer_id: u32,
    started_at: Time,
    payload_max: usize,
    sender: Sender,
    receiver: Receiver,
    expiry: Expiry,
    /// To be said next.
    pending_ack2: Option<u32>,
    /// What this end says of itself, to whom it says that, and with which cookie next.
    reply: Handshake,
    reply_policy: ReplyPolicy,
    reply_cookie: Option<u32>,
    path_mtu: PathMtu,
    keep_alive_pending: bool,
    ack_request: AckRequest,
    closing: bool,
    /// What is not acknowledged is given up.
    aborted: bool,
    read_bytes: u64,
    close_reason: Option<CloseReason>,
    /// How often the other end was told that it is over, and when it is told again.
    shutdowns: Option<(u32, Time)>,
    /// It is told once more, whatever the end.
    shutdown_pending: bool,
    /// Loss reports are put together here.
    loss_report: Vec<u8>,
}

/// How a connection fares. Sizes are of what programs write and read, without headers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stats {
    /// The smoothed round trip.
    pub rtt: Time,
    /// The least that it was, as far as it is known.
    pub rtt_min: Option<Time>,
    /// Time with something under way.
    pub busy: Time,
    /// Bytes that a packet carries at most.
    pub payload_max: usize,
    /// What its sending half has done.
    pub counts: Counts,
    /// Bytes that were written and acknowledged.
    pub acked_bytes: u64,
    /// Bytes that were read here.
    pub read_bytes: u64,
    /// Packets that were written and never sent.
    pub unsent: u32,
    /// Packets that were sent and are not acknowledged.
    pub unacked: u32,
    /// Packets that may be.
    pub window: u32,
    /// Packets that the other end has room for.
    pub flow_window: u32,
    /// Packets that there is room for here.
    pub receive_buffer_free: u32,
    /// Packets that wait to be read.
    pub unread: u32,
    /// Packets a second that the congestion control asks for.
    pub pacing_rate: f64,
    /// Packets a second that arrive over there; 0 while that is not known.
    pub arrival_rate: f64,
    /// Packets a second that the link could carry, as pairs say that arrived over there; 0 while nothing is said.
    pub capacity: f64,
}

/// Who is told once more that the connection is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyPolicy {
    /// Whoever probes the path: this end has asked for the connection itself.
    ProbesOnly,
    /// And who asks for it, because the answer was lost.
    AllRequests,
}

/// Of a rendezvous answers still come when it is open, and tell nothing of the path.
const RENDEZVOUS_REPLY_PERIOD: Time = Time::from_secs(1);

impl Connection {
    /// `answer` is said again when the other end asks.
    pub(crate) fn new(
        config: &Config,
        agreed: &NegotiatedParams,
        (answer, answers_to): (Handshake, ReplyPolicy),
        control: Box<dyn Control>,
        now: Time,
    ) -> Self {
        let payload_max = agreed.payload_max();
        let sending = SendBuffer::new(agreed.first, config.send_packets, payload_max);
        let receiving = ReceiveBuffer::new(agreed.peer_first, config.receive_packets, payload_max);
        let probed_from = match answer.step {
            Step::Agreement => now + RENDEZVOUS_REPLY_PERIOD,
            _ => now,
        };
        let mut connection = Self {
            own_id: agreed.own_id,
            peer_id: agreed.peer_id,
            started_at: now,
            payload_max,
            sender: Sender::new(sending, agreed.peer_window, agreed.mss, control),
            receiver: Receiver::new(agreed.peer_first, receiving, payload_max, now),
            expiry: Expiry::new(config.idle_timeout, now),
            pending_ack2: None,
            reply: answer,
            reply_policy: answers_to,
            reply_cookie: None,
            path_mtu: PathMtu::new(payload_max + HEADER_LEN, probed_from),
            keep_alive_pending: false,
            ack_request: AckRequest::new(),
            closing: false,
            aborted: false,
            read_bytes: 0,
            close_reason: None,
            shutdowns: None,
            shutdown_pending: false,
            loss_report: Vec::new(),
        };
        connection.apply_packet_len();
        connection
    }

    /// Data goes in packets that pass.
    fn apply_packet_len(&mut self) {
        let payload = self.path_mtu.datagram_max() - HEADER_LEN;
        self.sender.buffer.set_payload_max(payload);
    }

    /// Bytes of the longest packet that goes now, with the headers of IPv4 and UDP (IPv6: 20 more).
    #[must_use]
    pub fn packet_len(&self) -> usize {
        self.path_mtu.datagram_max() + IP_UDP_HEADERS_LEN as usize
    }

    /// Our name for it, by which the other end's packets say that they are its.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.own_id
    }

    /// How it ended, if it did.
    #[must_use]
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.close_reason
    }

    /// The smoothed round trip, as the sending half knows it.
    #[must_use]
    pub fn rtt(&self) -> Time {
        self.sender.rtt().smoothed.min(self.receiver.rtt().smoothed)
    }

    /// What the sending half has done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.sender.counts
    }

    /// Packets a second that the congestion control asks for.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.sender.pacing_rate()
    }

    /// How it fares.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (sending, receiving) = (&self.sender.buffer, &self.receiver.buffer);
        Stats {
            rtt: self.rtt(),
            rtt_min: self.sender.rtt_min(),
            busy: self.sender.busy(),
            payload_max: self.payload_max,
            counts: self.counts(),
            acked_bytes: sending.acked_bytes(),
            read_bytes: self.read_bytes,
            unsent: sending.unsent_packets(),
            unacked: sending.unacked_packets(),
            window: self.sender.window(),
            flow_window: self.sender.flow_window(),
            receive_buffer_free: receiving.free_packets(),
            unread: receiving.capacity() - receiving.free_packets(),
            pacing_rate: self.rate(),
            arrival_rate: self.sender.arrival_rate(),
            capacity: self.sender.capacity(),
        }
    }

    /// Takes bytes, as many as there is room for; how many. None after [`Self::close`].
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        match self.is_open() {
            true => self.sender.buffer.write(bytes),
            false => 0,
        }
    }

    /// Reads bytes; how many there were.
    pub fn read(&mut self, to: &mut [u8]) -> usize {
        let read = self.receiver.buffer.read(to);
        self.read_bytes += read as u64;
        read
    }

    /// Whether there is something to read.
    #[must_use]
    pub fn can_read(&self) -> bool {
        self.receiver.buffer.can_read()
    }

    /// Packets that may be written.
    #[must_use]
    pub fn send_buffer_free(&self) -> u32 {
        self.sender.buffer.free_packets()
    }

    /// Takes no more than so many packets that were not sent, from now on: for who would rather send on another
    /// connection what would have to wait in this one.
    pub fn limit_unsent(&mut self, packets: u32) {
        self.sender.buffer.limit_unsent(packets.max(1));
    }

    /// Whether all that was written was acknowledged.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.sender.buffer.is_empty()
    }

    /// Whether who waits for something to read finds it, or that there will be nothing.
    pub(crate) fn is_worth_reading(&self) -> bool {
        self.close_reason.is_some() || self.can_read()
    }

    /// Whether who waits for room finds enough of it, or that none is needed any more.
    pub(crate) fn is_worth_writing(&self) -> bool {
        self.close_reason.is_some() || self.sender.buffer.is_worth_writing()
    }

    /// Nothing more is written; once all is acknowledged the other end hears that it is over.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// The other end hears that it is over, whatever it lacks.
    pub fn abort(&mut self) {
        (self.closing, self.aborted) = (true, true);
    }

    /// Nothing is left to do but to say that it is over.
    fn is_shutdown_due(&self) -> bool {
        self.closing && (self.aborted || self.is_flushed())
    }

    fn is_open(&self) -> bool {
        !self.closing && self.close_reason.is_none()
    }

    /// A packet of the other end came.
    pub fn handle(&mut self, packet: &Packet<'_>, now: Time) {
        if packet.destination != self.own_id {
            return;
        }
        if let Some(end) = self.close_reason {
            self.shutdown_pending |= needs_shutdown_reply(end, &packet.body);
            return;
        }
        let believed = match packet.body {
            Body::Data(data) => {
                self.receiver.on_data(&data, packet.timestamp_us, now);
                true
            }
            Body::Ack(ack) => {
                let believed = self.sender.on_ack(&ack, now);
                self.pending_ack2 = believed.then_some(ack.number).or(self.pending_ack2);
                believed
            }
            Body::LightAck(next) => self.sender.on_light_ack(next, now),
            Body::Nak(losses) => self.sender.on_nak(losses, now),
            Body::Ack2(number) => {
                self.receiver.on_ack2(number, now);
                true
            }
            // Of a stream no sender says so: it would have a hole.
            Body::Drop { .. } => false,
            Body::Shutdown(arrived) => {
                self.on_shutdown(arrived);
                true
            }
            Body::Handshake(asked) => {
                self.on_probe_reply(&asked, now);
                self.on_repeated_request(&asked);
                true
            }
            Body::KeepAlive | Body::CongestionWarning | Body::Error(_) | Body::User(_) => true,
        };
        if believed {
            self.expiry.on_packet(now, self.confirms_data(&packet.body));
        }
    }

    /// Whether it says something of what is under way, or nothing is. (UDT4 takes anything for an answer: where all data vanishes,
    /// keep-alives kept it waiting.)
    fn confirms_data(&self, body: &Body<'_>) -> bool {
        let says = matches!(body, Body::Ack(_) | Body::LightAck(_) | Body::Nak(_));
        says || !self.sender.has_unacked()
    }

    /// The name of the other end, if it may ask for the connection again.
    pub(crate) fn repeat_request_peer(&self) -> Option<u32> {
        (self.reply_policy == ReplyPolicy::AllRequests).then_some(self.peer_id)
    }

    /// The other end has not heard that it is open, or probes the path: it is answered again, unless that is an answer itself.
    pub fn on_repeated_request(&mut self, asked: &Handshake) {
        let asks = match self.reply_policy {
            ReplyPolicy::ProbesOnly => asked.step == Step::Request,
            ReplyPolicy::AllRequests => asked.step != Step::Agreement,
        };
        if asks && asked.socket == self.peer_id {
            self.reply_cookie = Some(asked.cookie);
        }
    }

    /// It may be the answer to a probe.
    fn on_probe_reply(&mut self, answer: &Handshake, now: Time) {
        let answers = matches!(answer.step, Step::Response | Step::Agreement);
        if answers && answer.socket == self.peer_id {
            let repeats = self.path_mtu.on_reply(answer.cookie, now);
            if repeats {
                self.ack_request.disable();
                self.sender.disable_retransmit_timer();
            }
            self.apply_packet_len();
        }
    }

    /// It is the answer to ours, or it gets one. (UDT4 says once that it is over, and answers nothing.)
    fn on_shutdown(&mut self, arrived: Option<Seq>) {
        if let Some(next) = arrived {
            // Of what was never sent nobody has heard.
            let _new = self.sender.buffer.acknowledge(next);
        }
        match self.shutdowns {
            Some(_) => self.close_reason = Some(CloseReason::Local),
            None => (self.close_reason, self.shutdown_pending) = (Some(CloseReason::Remote), true),
        }
    }

    /// Time went by: what was to happen until `now` does.
    fn run_timers(&mut self, now: Time) {
        if self.close_reason.is_none()
            && self.expiry.deadline(self.sender.rtt().upper_bound()) <= now
        {
            self.on_expiry(now);
        }
        if self
            .sender
            .retransmit_deadline()
            .is_some_and(|due| due <= now)
        {
            self.sender.on_retransmit_timer(now);
        }
    }

    fn on_expiry(&mut self, now: Time) {
        let expiry = &mut self.expiry;
        // Where the other end has no room nothing arrives, either.
        let stalled = now >= expiry.stalled_at() && self.sender.has_receive_window();
        if stalled || now >= expiry.idle_expires_at() {
            self.close_reason = Some(CloseReason::Timeout);
            return;
        }
        expiry.on_expired(now);
        match self.sender.has_unacked() {
            true => {
                self.path_mtu.reset(now);
                self.apply_packet_len();
                self.sender.on_timeout(now);
            }
            false => self.keep_alive_pending = true,
        }
    }

    /// The name that the other end has for it.
    pub(crate) fn peer_id(&self) -> u32 {
        self.peer_id
    }
}

/// Whether a packet that comes after the end gets the answer that it is over: of an end that has not heard so, or has not heard
/// that we have. Never what would be answered itself.
pub(crate) fn needs_shutdown_reply(end: CloseReason, body: &Body<'_>) -> bool {
    match end {
        CloseReason::Local => !matches!(body, Body::Shutdown(_)),
        CloseReason::Remote => matches!(body, Body::Shutdown(_)),
        CloseReason::Timeout => false,
    }
}
