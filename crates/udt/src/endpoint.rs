// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that share one UDP port: maps datagrams to connections, and connections to their deadlines.

use crate::{
    config::Config,
    congestion::Control,
    connection::{
        CloseReason, Connection,
        connector::{ConnectOutcome, Connector},
        listener::{HandshakeOutcome, Listener},
        needs_shutdown_reply,
    },
    packet::{Body, Packet, handshake::Handshake, number::Seq},
};
use longhaul_units::Time;
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    net::SocketAddr,
};

/// Maximum number of connections, including those that are opening. Each takes 256 bytes until data arrives.
const CONNECTIONS_MAX: usize = 4096;

/// Maximum number of closed connections that are remembered to answer late packets. Older ones are forgotten.
const CLOSED_MAX: usize = 1024;

/// All connections of a UDP port.
#[derive(Debug)]
pub struct Endpoint<M, R> {
    config: Config,
    listener: Option<Listener>,
    /// Creates the congestion control of a connection.
    new_control: M,
    /// Source of unpredictable random numbers.
    random: R,
    entries: HashMap<u32, Entry>,
    /// Connections that accept handshakes without a destination ID. The key is the peer's address and its connection
    /// ID; a rendezvous accepts any ID, `None`.
    by_handshake: HashMap<(SocketAddr, Option<u32>), u32>,
    /// Deadline of each connection, and its ID.
    timers: BTreeSet<(Time, u32)>,
    /// Datagrams to send that belong to no open connection.
    replies: Vec<(SocketAddr, Vec<u8>)>,
    events: VecDeque<Event>,
    /// Closed connections whose peers may still send.
    closed: VecDeque<ClosedConnection>,
    /// ID of the connection that the last transmitted datagram belongs to; 0 if none.
    last_sent: u32,
}

/// State kept for each closed connection.
#[derive(Debug)]
struct ClosedConnection {
    peer: SocketAddr,
    own_id: u32,
    peer_id: u32,
    close_reason: CloseReason,
}

/// Connection that is opening or open.
#[derive(Debug)]
struct Entry {
    peer: SocketAddr,
    deadline: Option<Time>,
    state: State,
    /// Whether [`Event::Closed`] was emitted.
    close_reported: bool,
}

#[derive(Debug)]
enum State {
    Connecting(Box<Connector>),
    Open(Box<Connection>),
}

impl State {
    /// Key by which repeated handshakes find the connection: those of the peer's ID, of any ID (`None` inside), or
    /// none at all.
    fn handshake_key(&self) -> Option<Option<u32>> {
        match self {
            Self::Open(connection) => connection.repeat_request_peer().map(Some),
            Self::Connecting(connector) => connector.is_rendezvous().then_some(None),
        }
    }
}

/// Change of a connection's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A peer opened the connection with this ID.
    Accepted(u32),
    /// The connection with this ID, which this endpoint opened, is established.
    Connected(u32),
    /// The peer refused the connection with this code.
    Refused(u32, u32),
    /// No answer came before the deadline.
    TimedOut(u32),
    /// The peer's host reports that no socket is bound to the port (ICMP port unreachable).
    Unreachable(u32),
    /// The connection closed. Data that had arrived can be read until it is [removed](Endpoint::remove).
    Closed(u32, CloseReason),
}

impl<M, R> Endpoint<M, R>
where
    M: Fn(Seq, u32) -> Box<dyn Control>,
    R: FnMut() -> u32,
{
    /// Creates an endpoint without connections that does not listen.
    pub fn new(config: Config, controls: M, random: R) -> Self {
        Self {
            config,
            listener: None,
            new_control: controls,
            random,
            entries: HashMap::new(),
            by_handshake: HashMap::new(),
            timers: BTreeSet::new(),
            replies: Vec::new(),
            events: VecDeque::new(),
            closed: VecDeque::new(),
            last_sent: 0,
        }
    }

    /// Accepts connections from now on.
    pub fn listen(&mut self) {
        let mut key = [0; 32];
        for chunk in key.as_chunks_mut().0 {
            *chunk = (self.random)().to_be_bytes();
        }
        self.listener = Some(Listener::new(self.config, key));
    }

    /// Stops accepting connections.
    pub fn stop_listening(&mut self) {
        self.listener = None;
    }

    /// Starts a connection to a listener. Returns its ID, or `None` if there are too many.
    pub fn connect(&mut self, peer: SocketAddr, now: Time) -> Option<u32> {
        let (own, first) = (self.unused_id()?, Seq::new((self.random)()));
        let connector = Connector::to_listener(self.config, peer.ip(), own, first, now);
        Some(self.add_connector(own, peer, connector))
    }

    /// Starts a rendezvous with a peer that does the same. Returns the connection's ID, or `None` if there are too
    /// many.
    pub fn rendezvous(&mut self, peer: SocketAddr, now: Time) -> Option<u32> {
        let (own, first) = (self.unused_id()?, Seq::new((self.random)()));
        let connector = Connector::rendezvous(self.config, peer.ip(), own, first, now);
        Some(self.add_connector(own, peer, connector))
    }

    fn add_connector(&mut self, own: u32, peer: SocketAddr, connector: Connector) -> u32 {
        self.insert(own, peer, State::Connecting(connector.into()));
        own
    }

    /// Returns an ID that no connection has, or `None` if there are too many connections.
    fn unused_id(&mut self) -> Option<u32> {
        let has_free_slot = self.entries.len() < CONNECTIONS_MAX;
        let ids = std::iter::from_fn(|| Some((self.random)() & 0x7fff_ffff));
        let entries = &self.entries;
        has_free_slot.then(|| {
            ids.into_iter()
                .find(|id| *id != 0 && !entries.contains_key(id))
        })?
    }

    fn insert(&mut self, own: u32, peer: SocketAddr, state: State) {
        self.by_handshake
            .extend(state.handshake_key().map(|key| ((peer, key), own)));
        let entry = Entry {
            peer,
            deadline: None,
            state,
            close_reported: false,
        };
        self.entries.insert(own, entry);
        self.wake(own);
    }

    /// Returns an open connection. After a write, a read or a close, call [`Self::wake`].
    pub fn connection(&mut self, id: u32) -> Option<&mut Connection> {
        match &mut self.entries.get_mut(&id)?.state {
            State::Open(connection) => Some(connection),
            State::Connecting(_) => None,
        }
    }

    /// Returns the peer's address.
    #[must_use]
    pub fn peer_addr(&self, id: u32) -> Option<SocketAddr> {
        self.entries.get(&id).map(|entry| entry.peer)
    }

    /// Updates the deadline of a connection whose state changed, and emits [`Event::Closed`] if it closed.
    pub fn wake(&mut self, id: u32) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let (due, reason) = match &entry.state {
            State::Connecting(connector) => (Some(connector.deadline()), None),
            State::Open(connection) => (connection.deadline(), connection.close_reason()),
        };
        if let Some(reason) = reason
            && !std::mem::replace(&mut entry.close_reported, true)
        {
            self.events.push_back(Event::Closed(id, reason));
        }
        if let Some(before) = std::mem::replace(&mut entry.deadline, due) {
            self.timers.remove(&(before, id));
        }
        self.timers.extend(due.map(|due| (due, id)));
    }

    /// Removes a connection, whatever its state.
    pub fn remove(&mut self, id: u32) {
        let Some(entry) = self.entries.remove(&id) else {
            return;
        };
        if let Some(due) = entry.deadline {
            self.timers.remove(&(due, id));
        }
        if let Some(key) = entry.state.handshake_key() {
            self.by_handshake.remove(&(entry.peer, key));
        }
        if let State::Open(connection) = entry.state
            && let Some(reason) = connection.close_reason()
        {
            if self.closed.len() == CLOSED_MAX {
                self.closed.pop_front();
            }
            self.closed.push_back(ClosedConnection {
                peer: entry.peer,
                own_id: id,
                peer_id: connection.peer_id(),
                close_reason: reason,
            });
        }
    }

    /// Handles a received datagram. A datagram that is not a packet of UDT4 is ignored.
    pub fn handle(&mut self, datagram: &[u8], from: SocketAddr, now: Time) {
        match Packet::read(datagram) {
            Some(packet) if packet.destination == 0 => {
                self.handle_handshake(&packet, datagram, from, now);
            }
            Some(packet) => self.handle_packet(packet.destination, &packet, from, now),
            None => {}
        }
    }

    /// Handles an ICMP port unreachable for a datagram that was sent to `to` and begins with `quoted`. Third parties can
    /// forge it, but do not know the connection IDs in the datagram. A datagram that is quoted without them is ignored.
    pub fn handle_port_unreachable(&mut self, quoted: &[u8], to: SocketAddr, now: Time) {
        match Packet::read(quoted) {
            Some(Packet {
                destination: 0,
                body: Body::Handshake(request),
                ..
            }) => self.refuse_request(request.socket, to),
            Some(packet) => self.refuse_packet(packet.destination, to, now),
            None => {}
        }
    }

    /// Ends the connection that is being opened with this ID. A rendezvous continues, because its peer may start later.
    fn refuse_request(&mut self, id: u32, to: SocketAddr) {
        let is_refused = self.entries.get(&id).is_some_and(|entry| {
            let is_request =
                matches!(&entry.state, State::Connecting(connector) if !connector.is_rendezvous());
            is_request && entry.peer == to
        });
        if is_refused {
            self.remove(id);
            self.events.push_back(Event::Unreachable(id));
        }
    }

    /// Tells the connection whose peer has this ID.
    fn refuse_packet(&mut self, peer_id: u32, to: SocketAddr, now: Time) {
        let is_open = |entry: &Entry| match &entry.state {
            State::Open(connection) => connection.peer_id() == peer_id && entry.peer == to,
            State::Connecting(_) => false,
        };
        let found = self.entries.iter().find(|(_, entry)| is_open(entry));
        let Some(id) = found.map(|(id, _)| *id) else {
            return;
        };
        if let Some(connection) = self.connection(id) {
            connection.on_port_unreachable(now);
        }
        self.wake(id);
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn handle_packet(&mut self, id: u32, packet: &Packet<'_>, from: SocketAddr, now: Time) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.peer == from) else {
            return self.reply_closed(id, packet, from);
        };
        match &mut entry.state {
            State::Open(connection) => connection.handle(packet, now),
            State::Connecting(connector) => {
                match connector.handle(packet, now, &self.new_control) {
                    ConnectOutcome::Pending => {}
                    ConnectOutcome::Established(connection) => {
                        let before = entry.state.handshake_key();
                        entry.state = State::Open(connection);
                        // The rendezvous is established: from now on handshakes must name the peer's ID.
                        if let Some(key) = before {
                            self.by_handshake.remove(&(from, key));
                        }
                        let after = entry.state.handshake_key();
                        self.by_handshake.extend(after.map(|key| ((from, key), id)));
                        self.events.push_back(Event::Connected(id));
                    }
                    ConnectOutcome::Refused(code) => {
                        self.remove(id);
                        self.events.push_back(Event::Refused(id, code));
                    }
                }
            }
        }
        self.wake(id);
    }

    /// Replies to a packet of a closed connection with a shutdown.
    fn reply_closed(&mut self, id: u32, packet: &Packet<'_>, from: SocketAddr) {
        let matches = |closed: &&ClosedConnection| (closed.peer, closed.own_id) == (from, id);
        let Some(closed) = self.closed.iter().find(matches) else {
            return;
        };
        if !needs_shutdown_reply(closed.close_reason, &packet.body)
            || self.replies.len() >= CONNECTIONS_MAX
        {
            return;
        }
        let shutdown = Packet {
            timestamp_us: 0,
            destination: closed.peer_id,
            body: Body::Shutdown(None),
        };
        let mut reply = Vec::new();
        shutdown.write(&mut reply);
        self.replies.push((from, reply));
    }

    /// Handles a packet without a destination ID: a new or repeated request, or a rendezvous of the peer.
    fn handle_handshake(
        &mut self,
        packet: &Packet<'_>,
        datagram: &[u8],
        from: SocketAddr,
        now: Time,
    ) {
        let Body::Handshake(handshake) = packet.body else {
            return;
        };
        if let Some(id) = self.find_by_handshake(&handshake, from) {
            return self.handle_repeated_handshake(id, packet, &handshake, now);
        }
        let (Some(own), Some(listener)) = (self.unused_id(), &self.listener) else {
            return;
        };
        let mut reply = Vec::new();
        let outcome = listener.handle(datagram, from, own, now, &self.new_control, &mut reply);
        if !reply.is_empty() && self.replies.len() < CONNECTIONS_MAX {
            self.replies.push((from, reply));
        }
        if let HandshakeOutcome::Established(connection) = outcome {
            self.insert(own, from, State::Open(connection));
            self.events.push_back(Event::Accepted(own));
        }
    }

    fn handle_repeated_handshake(
        &mut self,
        id: u32,
        packet: &Packet<'_>,
        handshake: &Handshake,
        now: Time,
    ) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        match &mut entry.state {
            State::Open(connection) => connection.on_repeated_request(handshake),
            State::Connecting(_) => {
                let addressed = Packet {
                    destination: id,
                    ..*packet
                };
                let peer = entry.peer;
                return self.handle_packet(id, &addressed, peer, now);
            }
        }
        self.wake(id);
    }

    /// Finds the connection that a repeated request or the handshake of a rendezvous belongs to.
    fn find_by_handshake(&self, handshake: &Handshake, from: SocketAddr) -> Option<u32> {
        let keys = [Some(handshake.socket), None];
        keys.iter()
            .find_map(|key| self.by_handshake.get(&(from, *key)).copied())
    }

    /// Appends the next datagram that is due. Returns its destination, or `None` if none is due.
    pub fn transmit(&mut self, now: Time, to: &mut Vec<u8>) -> Option<SocketAddr> {
        if let Some((peer, reply)) = self.replies.pop() {
            to.extend_from_slice(&reply);
            self.last_sent = 0;
            return Some(peer);
        }
        while let Some(&(due, id)) = self.timers.first()
            && due <= now
        {
            let entry = self.entries.get_mut(&id)?;
            let (sent, timed_out) = match &mut entry.state {
                State::Connecting(connector) => {
                    (connector.transmit(now, to), connector.expires_at() <= now)
                }
                State::Open(connection) => (connection.transmit(now, to), false),
            };
            if sent {
                self.last_sent = id;
                return Some(entry.peer);
            }
            if timed_out {
                self.remove(id);
                self.events.push_back(Event::TimedOut(id));
            } else {
                self.wake(id);
            }
        }
        None
    }

    /// Returns the ID of the connection whose datagram [`Self::transmit`] appended last: 0 if it belongs to none.
    #[must_use]
    pub fn last_sent(&self) -> u32 {
        self.last_sent
    }

    /// Returns the time at which [`Self::transmit`] may have the next datagram.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.replies.is_empty() {
            self.timers.first().map(|(due, _)| *due)
        } else {
            Some(Time::ZERO)
        }
    }
}
