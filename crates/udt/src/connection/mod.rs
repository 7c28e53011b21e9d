// SPDX-License-Identifier: MIT OR Apache-2.0
//! Established connection: packets and the time go in, packets and deadlines come out (draft-gg-udt-03 §6).

mod ack_request;
pub(crate) mod connector;
mod expiry;
pub(crate) mod listener;
mod path_mtu;
mod refusal;
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
use refusal::Refusal;

/// Reason why a connection closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// Closed here with [`Connection::close`] or [`Connection::abort`]. The peer confirmed the shutdown, or it was
    /// sent often enough.
    Local,
    /// Closed by the peer. Data that had arrived can still be read.
    Remote,
    /// No packet, or no acknowledgement of data, came for [`Config::idle_timeout`].
    Timeout,
    /// The peer's host reports that no socket is bound to the peer's port (ICMP port unreachable), and the peer sends
    /// nothing.
    Refused,
}

impl CloseReason {
    /// Whether the connection ended without a shutdown of either end.
    pub(crate) fn is_failure(self) -> bool {
        matches!(self, Self::Timeout | Self::Refused)
    }
}

/// Endpoint of an established connection.
#[derive(Debug)]
pub struct Connection {
    own_id: u32,
    peer_id: u32,
    started_at: Time,
    payload_max: usize,
    sender: Sender,
    receiver: Receiver,
    expiry: Expiry,
    refusal: Refusal,
    /// Number of the ACK2 to send next.
    pending_ack2: Option<u32>,
    /// Handshake to repeat, the requests that get it, and the cookie of the next one.
    reply: Handshake,
    reply_policy: ReplyPolicy,
    reply_cookie: Option<u32>,
    path_mtu: PathMtu,
    keep_alive_pending: bool,
    ack_request: AckRequest,
    closing: bool,
    /// Whether unacknowledged data is given up.
    aborted: bool,
    read_bytes: u64,
    close_reason: Option<CloseReason>,
    /// Number of shutdowns sent, and the time of the next one.
    shutdowns: Option<(u32, Time)>,
    /// Whether a shutdown must be sent once more, whatever the close reason.
    shutdown_pending: bool,
    /// Buffer in which loss reports are encoded.
    loss_report: Vec<u8>,
}

/// Statistics of a connection. Sizes are of application data, without headers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stats {
    /// Smoothed round-trip time.
    pub rtt: Time,
    /// Minimum round-trip time; `None` before a sample.
    pub rtt_min: Option<Time>,
    /// Time with unacknowledged data.
    pub busy: Time,
    /// Maximum payload of a packet, in bytes.
    pub payload_max: usize,
    /// Packet counters of the sender.
    pub counts: Counts,
    /// Acknowledged bytes.
    pub acked_bytes: u64,
    /// Bytes that the application read.
    pub read_bytes: u64,
    /// Packets that were written and never sent.
    pub unsent: u32,
    /// Packets that were sent and are not acknowledged.
    pub unacked: u32,
    /// Maximum number of packets in flight: the smaller of the congestion window and the flow window.
    pub window: u32,
    /// Free space of the peer's receive buffer, in packets.
    pub flow_window: u32,
    /// Free space of the receive buffer, in packets.
    pub receive_buffer_free: u32,
    /// Packets in the receive buffer.
    pub unread: u32,
    /// Sending rate of the congestion control, in packets per second.
    pub pacing_rate: f64,
    /// Arrival rate at the peer, in packets per second; 0 if unknown.
    pub arrival_rate: f64,
    /// Link capacity that the peer estimates from packet trains, in packets per second; 0 if unknown.
    pub capacity: f64,
}

/// Requests that get the handshake repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyPolicy {
    /// Path MTU probes only: this endpoint opened the connection itself.
    ProbesOnly,
    /// Probes, and requests of a peer that did not receive the response.
    AllRequests,
}

/// Delay of the first path MTU probe after a rendezvous. Handshakes that still arrive in that time would look like
/// replies to the probe.
const RENDEZVOUS_REPLY_PERIOD: Time = Time::from_secs(1);

impl Connection {
    /// Creates a connection. `answer` is repeated when the peer repeats its request.
    pub(crate) fn new(
        config: &Config,
        params: &NegotiatedParams,
        (answer, reply_policy): (Handshake, ReplyPolicy),
        control: Box<dyn Control>,
        now: Time,
    ) -> Self {
        let payload_max = params.payload_max();
        let sending = SendBuffer::new(params.first, config.send_packets, payload_max);
        let receiving = ReceiveBuffer::new(params.peer_first, config.receive_packets, payload_max);
        let probed_from = match answer.step {
            Step::Agreement => now + RENDEZVOUS_REPLY_PERIOD,
            _ => now,
        };
        let mut connection = Self {
            own_id: params.own_id,
            peer_id: params.peer_id,
            started_at: now,
            payload_max,
            sender: Sender::new(sending, params.peer_window, params.mss, control),
            receiver: Receiver::new(params.peer_first, receiving, payload_max, now),
            expiry: Expiry::new(config.idle_timeout, now),
            refusal: Refusal::default(),
            pending_ack2: None,
            reply: answer,
            reply_policy,
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

    /// Limits data packets to the length that the path carries.
    fn apply_packet_len(&mut self) {
        let payload = self.path_mtu.datagram_max() - HEADER_LEN;
        self.sender.buffer.set_payload_max(payload);
    }

    /// Returns the maximum length of a packet at present, in bytes with the headers of IPv4 and UDP (IPv6: 20 more).
    #[must_use]
    pub fn packet_len(&self) -> usize {
        self.path_mtu.datagram_max() + IP_UDP_HEADERS_LEN as usize
    }

    /// Returns the connection ID that this endpoint chose, which the peer's packets carry.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.own_id
    }

    /// Returns the reason why the connection closed, or `None` while it is open.
    #[must_use]
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.close_reason
    }

    /// Returns the smoothed round-trip time: the smaller of the sender's and the receiver's.
    #[must_use]
    pub fn rtt(&self) -> Time {
        self.sender.rtt().smoothed.min(self.receiver.rtt().smoothed)
    }

    /// Returns the packet counters of the sender.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.sender.counts
    }

    /// Returns the sending rate of the congestion control, in packets per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.sender.pacing_rate()
    }

    /// Returns the statistics of the connection.
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

    /// Writes as many bytes as the send buffer has space for. Returns how many; 0 after [`Self::close`].
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        if self.is_open() {
            self.sender.buffer.write(bytes)
        } else {
            0
        }
    }

    /// Reads bytes that arrived in order. Returns how many.
    pub fn read(&mut self, to: &mut [u8]) -> usize {
        let read = self.receiver.buffer.read(to);
        self.read_bytes += read as u64;
        read
    }

    /// Whether there are bytes to read.
    #[must_use]
    pub fn can_read(&self) -> bool {
        self.receiver.buffer.can_read()
    }

    /// Returns the free space of the send buffer, in packets.
    #[must_use]
    pub fn send_buffer_free(&self) -> u32 {
        self.sender.buffer.free_packets()
    }

    /// Limits the unsent packets of the send buffer. An application can then send over another connection what would
    /// wait in this one.
    pub fn limit_unsent(&mut self, packets: u32) {
        self.sender.buffer.limit_unsent(packets.max(1));
    }

    /// Whether all written data is acknowledged.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.sender.buffer.is_empty()
    }

    /// Whether to wake a reader: there are bytes to read, or the connection closed.
    pub(crate) fn is_worth_reading(&self) -> bool {
        self.close_reason.is_some() || self.can_read()
    }

    /// Whether to wake a writer: there is enough free space, or the connection closed.
    pub(crate) fn is_worth_writing(&self) -> bool {
        self.close_reason.is_some() || self.sender.buffer.is_worth_writing()
    }

    /// Closes the connection for writing. The peer gets a shutdown once all data is acknowledged.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Closes the connection and gives up unacknowledged data: the peer gets a shutdown at once.
    pub fn abort(&mut self) {
        (self.closing, self.aborted) = (true, true);
    }

    /// Whether only the shutdown remains to be sent.
    fn is_shutdown_due(&self) -> bool {
        self.closing && (self.aborted || self.is_flushed())
    }

    fn is_open(&self) -> bool {
        !self.closing && self.close_reason.is_none()
    }

    /// Handles a packet of the peer.
    pub fn handle(&mut self, packet: &Packet<'_>, now: Time) {
        if packet.destination != self.own_id {
            return;
        }
        if let Some(reason) = self.close_reason {
            self.shutdown_pending |= needs_shutdown_reply(reason, &packet.body);
            return;
        }
        self.refusal.on_packet();
        let is_valid = match packet.body {
            Body::Data(data) => {
                self.receiver.on_data(&data, packet.timestamp_us, now);
                true
            }
            Body::Ack(ack) => {
                let is_valid = self.sender.on_ack(&ack, now);
                self.pending_ack2 = is_valid.then_some(ack.number).or(self.pending_ack2);
                is_valid
            }
            Body::LightAck(next) => self.sender.on_light_ack(next, now),
            Body::Nak(losses) => self.sender.on_nak(losses, now),
            Body::Ack2(number) => {
                self.receiver.on_ack2(number, now);
                true
            }
            // No sender drops a part of a stream: the stream would have a hole.
            Body::Drop { .. } => false,
            Body::Shutdown(arrived) => {
                self.on_shutdown(arrived);
                true
            }
            Body::Handshake(request) => {
                self.on_probe_reply(&request, now);
                self.on_repeated_request(&request);
                true
            }
            Body::KeepAlive | Body::CongestionWarning | Body::Error(_) | Body::User(_) => true,
        };
        if is_valid {
            self.expiry.on_packet(now, self.confirms_data(&packet.body));
        }
    }

    /// Whether a packet confirms data in flight, or no data is in flight. (UDT4 counts any packet: where all data is
    /// lost, keep-alives kept it waiting.)
    fn confirms_data(&self, body: &Body<'_>) -> bool {
        let confirms = matches!(body, Body::Ack(_) | Body::LightAck(_) | Body::Nak(_));
        confirms || !self.sender.has_unacked()
    }

    /// Returns the peer's connection ID if its repeated requests are answered.
    pub(crate) fn repeat_request_peer(&self) -> Option<u32> {
        (self.reply_policy == ReplyPolicy::AllRequests).then_some(self.peer_id)
    }

    /// Schedules the reply to a repeated request or a path MTU probe. A reply gets no reply.
    pub fn on_repeated_request(&mut self, request: &Handshake) {
        let is_request = match self.reply_policy {
            ReplyPolicy::ProbesOnly => request.step == Step::Request,
            ReplyPolicy::AllRequests => request.step != Step::Agreement,
        };
        if is_request && request.socket == self.peer_id {
            self.reply_cookie = Some(request.cookie);
        }
    }

    /// Handles a handshake that may be the reply to a path MTU probe.
    fn on_probe_reply(&mut self, answer: &Handshake, now: Time) {
        let is_reply = matches!(answer.step, Step::Response | Step::Agreement);
        if is_reply && answer.socket == self.peer_id {
            let repeats = self.path_mtu.on_reply(answer.cookie, now);
            if repeats {
                self.ack_request.disable();
                self.sender.disable_retransmit_timer();
            }
            self.apply_packet_len();
        }
    }

    /// Handles a shutdown: it confirms our own, or gets one in reply. (UDT4 sends one shutdown, and replies to none.)
    fn on_shutdown(&mut self, arrived: Option<Seq>) {
        if let Some(next) = arrived {
            // An acknowledgement of unsent packets is ignored.
            let _new = self.sender.buffer.acknowledge(next);
        }
        match self.shutdowns {
            Some(_) => self.close_reason = Some(CloseReason::Local),
            None => (self.close_reason, self.shutdown_pending) = (Some(CloseReason::Remote), true),
        }
    }

    /// Handles an ICMP port unreachable for a packet of this connection.
    pub(crate) fn on_port_unreachable(&mut self, now: Time) {
        let [sender, receiver] = [self.sender.rtt(), self.receiver.rtt()];
        let rtt_bound = sender.upper_bound().min(receiver.upper_bound());
        if self.close_reason.is_none() && self.refusal.on_unreachable(rtt_bound, now) {
            self.receiver.request_ack2();
        }
    }

    /// Closes the connection if the peer is gone. A peer that is gone after a shutdown probably received it.
    fn check_refusal(&mut self, now: Time) {
        if self.refusal.deadline().is_some_and(|due| due <= now) {
            self.close_reason = Some(match self.shutdowns {
                Some(_) => CloseReason::Local,
                None => CloseReason::Refused,
            });
        }
    }

    /// Runs the timers that expired by `now`.
    fn run_timers(&mut self, now: Time) {
        self.check_refusal(now);
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
        // While the peer's receive buffer is full no data is confirmed either.
        let stalled = now >= expiry.stalled_at() && self.sender.has_receive_window();
        if stalled || now >= expiry.idle_expires_at() {
            self.close_reason = Some(CloseReason::Timeout);
            return;
        }
        expiry.on_expired(now);
        if self.sender.has_unacked() {
            self.path_mtu.reset(now);
            self.apply_packet_len();
            self.sender.on_timeout(now);
        } else {
            self.keep_alive_pending = true;
        }
    }

    /// Returns the connection ID that the peer chose.
    pub(crate) fn peer_id(&self) -> u32 {
        self.peer_id
    }
}

/// Whether a packet that arrives after the close gets a shutdown in reply: the peer has not received ours, or has not
/// received the reply to its own. Never replies to what would be answered itself.
pub(crate) fn needs_shutdown_reply(reason: CloseReason, body: &Body<'_>) -> bool {
    match reason {
        CloseReason::Local => !matches!(body, Body::Shutdown(_)),
        CloseReason::Remote => matches!(body, Body::Shutdown(_)),
        CloseReason::Timeout | CloseReason::Refused => false,
    }
}
