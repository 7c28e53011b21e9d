// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open connection: packets and the time go in, packets and deadlines come out (draft-gg-udt-03 §6).

mod ack_request;
mod expiry;
pub(crate) mod listening;
pub(crate) mod opening;
mod path_mtu;
mod transmit;

use crate::{
    config::{Agreed, Config, IP_AND_UDP},
    congestion::Control,
    halves::{
        receive_buffer::ReceiveBuffer,
        receiving::Receiver,
        send_buffer::SendBuffer,
        sending::{Counts, Sender},
    },
    packet::{
        Body, HEADER, Packet,
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
pub enum End {
    /// Here, with [`Connection::close`], after all was acknowledged, and the other end has heard so or was told often enough.
    Here,
    /// Over there. What had arrived can still be read.
    There,
    /// Nothing was heard any more.
    Silence,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    own: u32,
    peer: u32,
    began: Time,
    payload_max: usize,
    sender: Sender,
    receiver: Receiver,
    expiry: Expiry,
    /// To be said next.
    ack2: Option<u32>,
    /// What this end says of itself, to whom it says that, and with which cookie next.
    answer: Handshake,
    answers_to: AnswersTo,
    answers: Option<u32>,
    path: PathMtu,
    keep_alive: bool,
    ack_request: AckRequest,
    closing: bool,
    /// What is not acknowledged is given up.
    aborted: bool,
    read_bytes: u64,
    end: Option<End>,
    /// How often the other end was told that it is over, and when it is told again.
    farewells: Option<(u32, Time)>,
    /// It is told once more, whatever the end.
    tells: bool,
    /// Loss reports are put together here.
    report: Vec<u8>,
}

/// How a connection fares. Sizes are of what programs write and read, without headers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Report {
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
    pub under_way: u32,
    /// Packets that may be.
    pub window: u32,
    /// Packets that the other end has room for.
    pub flow_window: u32,
    /// Packets that there is room for here.
    pub room: u32,
    /// Packets that wait to be read.
    pub unread: u32,
    /// Packets a second that the congestion control asks for.
    pub rate: f64,
    /// Packets a second that arrive over there; 0 while that is not known.
    pub arrival: f64,
    /// Packets a second that the link could carry, as pairs say that arrived over there; 0 while nothing is said.
    pub capacity: f64,
}

/// Who is told once more that the connection is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswersTo {
    /// Whoever probes the path: this end has asked for the connection itself.
    Probes,
    /// And who asks for it, because the answer was lost.
    All,
}

/// Of a rendezvous answers still come when it is open, and tell nothing of the path.
const RENDEZVOUS_ANSWERS: Time = Time::from_secs(1);

impl Connection {
    /// `answer` is said again when the other end asks.
    pub(crate) fn new(
        config: &Config,
        agreed: &Agreed,
        (answer, answers_to): (Handshake, AnswersTo),
        control: Box<dyn Control>,
        now: Time,
    ) -> Self {
        let payload_max = agreed.payload_max();
        let sending = SendBuffer::new(agreed.first, config.send_packets, payload_max);
        let receiving = ReceiveBuffer::new(agreed.peer_first, config.receive_packets, payload_max);
        let probed_from = match answer.step {
            Step::Agreement => now + RENDEZVOUS_ANSWERS,
            _ => now,
        };
        let mut connection = Self {
            own: agreed.own,
            peer: agreed.peer,
            began: now,
            payload_max,
            sender: Sender::new(sending, agreed.flight, agreed.mss, control),
            receiver: Receiver::new(agreed.peer_first, receiving, payload_max, now),
            expiry: Expiry::new(config.silence, now),
            ack2: None,
            answer,
            answers_to,
            answers: None,
            path: PathMtu::new(payload_max + HEADER, probed_from),
            keep_alive: false,
            ack_request: AckRequest::new(),
            closing: false,
            aborted: false,
            read_bytes: 0,
            end: None,
            farewells: None,
            tells: false,
            report: Vec::new(),
        };
        connection.cut();
        connection
    }

    /// Data goes in packets that pass.
    fn cut(&mut self) {
        let payload = self.path.datagram_max() - HEADER;
        self.sender.buffer.cut(payload);
    }

    /// Bytes of the longest packet that goes now, with the headers of IPv4 and UDP (IPv6: 20 more).
    #[must_use]
    pub fn packet_len(&self) -> usize {
        self.path.datagram_max() + IP_AND_UDP as usize
    }

    /// Our name for it, by which the other end's packets say that they are its.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.own
    }

    /// How it ended, if it did.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// The smoothed round trip, as the sending half knows it.
    #[must_use]
    pub fn rtt(&self) -> Time {
        self.sender.rtt().mean.min(self.receiver.rtt().mean)
    }

    /// What the sending half has done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.sender.counts
    }

    /// Packets a second that the congestion control asks for.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.sender.rate()
    }

    /// How it fares.
    #[must_use]
    pub fn report(&self) -> Report {
        let (sending, receiving) = (&self.sender.buffer, &self.receiver.buffer);
        Report {
            rtt: self.rtt(),
            rtt_min: self.sender.rtt_min(),
            busy: self.sender.busy(),
            payload_max: self.payload_max,
            counts: self.counts(),
            acked_bytes: sending.acked_bytes(),
            read_bytes: self.read_bytes,
            unsent: sending.unsent_packets(),
            under_way: sending.under_way(),
            window: self.sender.window(),
            flow_window: self.sender.flow_window(),
            room: receiving.room(),
            unread: receiving.capacity() - receiving.room(),
            rate: self.rate(),
            arrival: self.sender.arrival(),
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
    pub fn room(&self) -> u32 {
        self.sender.buffer.room()
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
        self.end.is_some() || self.can_read()
    }

    /// Whether who waits for room finds enough of it, or that none is needed any more.
    pub(crate) fn is_worth_writing(&self) -> bool {
        self.end.is_some() || self.sender.buffer.is_worth_writing()
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
    fn is_over(&self) -> bool {
        self.closing && (self.aborted || self.is_flushed())
    }

    fn is_open(&self) -> bool {
        !self.closing && self.end.is_none()
    }

    /// A packet of the other end came.
    pub fn handle(&mut self, packet: &Packet<'_>, now: Time) {
        if packet.destination != self.own {
            return;
        }
        if let Some(end) = self.end {
            self.tells |= answers_after(end, &packet.body);
            return;
        }
        let believed = match packet.body {
            Body::Data(data) => {
                self.receiver.on_data(&data, packet.timestamp_us, now);
                true
            }
            Body::Ack(ack) => {
                let believed = self.sender.on_ack(&ack, now);
                self.ack2 = believed.then_some(ack.number).or(self.ack2);
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
                self.hear_farewell(arrived);
                true
            }
            Body::Handshake(asked) => {
                self.hear_answer(&asked, now);
                self.ask_again(&asked);
                true
            }
            Body::KeepAlive | Body::CongestionWarning | Body::Error(_) | Body::User(_) => true,
        };
        if believed {
            self.expiry.heard(now, self.answers_data(&packet.body));
        }
    }

    /// Whether it says something of what is under way, or nothing is. (UDT4 takes anything for an answer: where all data vanishes,
    /// keep-alives kept it waiting.)
    fn answers_data(&self, body: &Body<'_>) -> bool {
        let says = matches!(body, Body::Ack(_) | Body::LightAck(_) | Body::Nak(_));
        says || !self.sender.is_waiting()
    }

    /// The name of the other end, if it may ask for the connection again.
    pub(crate) fn answers(&self) -> Option<u32> {
        (self.answers_to == AnswersTo::All).then_some(self.peer)
    }

    /// The other end has not heard that it is open, or probes the path: it is answered again, unless that is an answer itself.
    pub fn ask_again(&mut self, asked: &Handshake) {
        let asks = match self.answers_to {
            AnswersTo::Probes => asked.step == Step::Request,
            AnswersTo::All => asked.step != Step::Agreement,
        };
        if asks && asked.socket == self.peer {
            self.answers = Some(asked.cookie);
        }
    }

    /// It may be the answer to a probe.
    fn hear_answer(&mut self, answer: &Handshake, now: Time) {
        let answers = matches!(answer.step, Step::Response | Step::Agreement);
        if answers && answer.socket == self.peer {
            let repeats = self.path.passed(answer.cookie, now);
            if repeats {
                self.ack_request.stop();
                self.sender.reports_come_again();
            }
            self.cut();
        }
    }

    /// It is the answer to ours, or it gets one. (UDT4 says once that it is over, and answers nothing.)
    fn hear_farewell(&mut self, arrived: Option<Seq>) {
        if let Some(next) = arrived {
            // Of what was never sent nobody has heard.
            let _new = self.sender.buffer.acknowledge(next);
        }
        match self.farewells {
            Some(_) => self.end = Some(End::Here),
            None => (self.end, self.tells) = (Some(End::There), true),
        }
    }

    /// Time went by: what was to happen until `now` does.
    fn look(&mut self, now: Time) {
        if self.end.is_none() && self.expiry.due(self.sender.rtt().long()) <= now {
            self.expire(now);
        }
        if self.sender.repeat_due().is_some_and(|due| due <= now) {
            self.sender.repeat(now);
        }
    }

    fn expire(&mut self, now: Time) {
        let expiry = &mut self.expiry;
        // Where the other end has no room nothing arrives, either.
        let stalled = now >= expiry.stalled_until() && self.sender.has_window();
        if stalled || now >= expiry.broken_at() {
            self.end = Some(End::Silence);
            return;
        }
        expiry.expired(now);
        match self.sender.is_waiting() {
            true => {
                self.path.doubt(now);
                self.cut();
                self.sender.on_timeout(now);
            }
            false => self.keep_alive = true,
        }
    }

    /// The name that the other end has for it.
    pub(crate) fn peer(&self) -> u32 {
        self.peer
    }
}

/// Whether a packet that comes after the end gets the answer that it is over: of an end that has not heard so, or has not heard
/// that we have. Never what would be answered itself.
pub(crate) fn answers_after(end: End, body: &Body<'_>) -> bool {
    match end {
        End::Here => !matches!(body, Body::Shutdown(_)),
        End::There => matches!(body, Body::Shutdown(_)),
        End::Silence => false,
    }
}
