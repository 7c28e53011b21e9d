// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any number of connections over one UDP port: whose a datagram is, and whose turn it is.

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

/// Connections at a time, and those that are being opened: 256 bytes each until data comes.
const CONNECTIONS_MAX: usize = 4096;

/// Connections after their end of whose other end something may still come, at most; of those before them nothing is kept.
const CLOSED_MAX: usize = 1024;

/// All connections of a port.
#[derive(Debug)]
pub struct Endpoint<M, R> {
    config: Config,
    listener: Option<Listener>,
    /// Makes a congestion control.
    new_control: M,
    /// Random numbers, which nobody else can tell.
    random: R,
    entries: HashMap<u32, Entry>,
    /// Those that may be asked for again: by whom and his name for it; one that is met, whatever his name is.
    by_handshake: HashMap<(SocketAddr, Option<u32>), u32>,
    /// Who wants to say something when.
    timers: BTreeSet<(Time, u32)>,
    /// What a listener has answered, and to whom.
    replies: Vec<(SocketAddr, Vec<u8>)>,
    events: VecDeque<Event>,
    /// Connections that are forgotten here after their end.
    closed: VecDeque<ClosedConnection>,
    /// Whose the last datagram was.
    last_sent: u32,
}

/// What is kept of one.
#[derive(Debug)]
struct ClosedConnection {
    peer: SocketAddr,
    own_id: u32,
    peer_id: u32,
    close_reason: CloseReason,
}

#[derive(Debug)]
struct Entry {
    peer: SocketAddr,
    deadline: Option<Time>,
    state: State,
    /// Its end was said.
    close_reported: bool,
}

#[derive(Debug)]
enum State {
    Connecting(Box<Connector>),
    Open(Box<Connection>),
}

impl State {
    /// Whose requests it answers: those of one name, of anybody who is met, or nobody's.
    fn handshake_key(&self) -> Option<Option<u32>> {
        match self {
            Self::Open(connection) => connection.repeat_request_peer().map(Some),
            Self::Connecting(opening) => opening.is_rendezvous().then_some(None),
        }
    }
}

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Another host asked for it, and it is open.
    Accepted(u32),
    /// It was asked for here, and is open.
    Connected(u32),
    /// The other end does not want it, and says this code.
    Refused(u32, u32),
    /// Nobody answers.
    TimedOut(u32),
    /// It came to its end. What had arrived can be read until it is [forgotten](Endpoint::forget).
    Closed(u32, CloseReason),
}

impl<M, R> Endpoint<M, R>
where
    M: Fn(Seq, u32) -> Box<dyn Control>,
    R: FnMut() -> u32,
{
    /// With no connections; it listens if it is told to.
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

    /// Takes connections from now on.
    pub fn listen(&mut self) {
        let mut key = [0; 32];
        for four in key.chunks_exact_mut(4) {
            four.copy_from_slice(&(self.random)().to_be_bytes());
        }
        self.listener = Some(Listener::new(self.config, key));
    }

    /// Takes none any more.
    pub fn stop_listening(&mut self) {
        self.listener = None;
    }

    /// Asks a listener for a connection; its name, unless there are too many.
    pub fn connect(&mut self, peer: SocketAddr, now: Time) -> Option<u32> {
        let (own, first) = (self.unused_id()?, Seq::new((self.random)()));
        let opening = Connector::to_listener(self.config, peer.ip(), own, first, now);
        Some(self.add_connector(own, peer, opening))
    }

    /// Meets an end that does the same.
    pub fn rendezvous(&mut self, peer: SocketAddr, now: Time) -> Option<u32> {
        let (own, first) = (self.unused_id()?, Seq::new((self.random)()));
        let opening = Connector::rendezvous(self.config, peer.ip(), own, first, now);
        Some(self.add_connector(own, peer, opening))
    }

    fn add_connector(&mut self, own: u32, peer: SocketAddr, opening: Connector) -> u32 {
        self.insert(own, peer, State::Connecting(opening.into()));
        own
    }

    /// A name that no connection has.
    fn unused_id(&mut self) -> Option<u32> {
        let room = self.entries.len() < CONNECTIONS_MAX;
        let names = std::iter::from_fn(|| Some((self.random)() & 0x7fff_ffff));
        let all = &self.entries;
        room.then(|| {
            names
                .into_iter()
                .find(|name| *name != 0 && !all.contains_key(name))
        })?
    }

    fn insert(&mut self, own: u32, peer: SocketAddr, state: State) {
        self.by_handshake
            .extend(state.handshake_key().map(|by| ((peer, by), own)));
        let one = Entry {
            peer,
            deadline: None,
            state,
            close_reported: false,
        };
        self.entries.insert(own, one);
        self.wake(own);
    }

    /// An open connection. Who writes to it, reads from it or closes it [wakes](Self::wake) it then.
    pub fn connection(&mut self, id: u32) -> Option<&mut Connection> {
        match &mut self.entries.get_mut(&id)?.state {
            State::Open(connection) => Some(connection),
            State::Connecting(_) => None,
        }
    }

    /// Whose packets it takes.
    #[must_use]
    pub fn peer_addr(&self, id: u32) -> Option<SocketAddr> {
        self.entries.get(&id).map(|one| one.peer)
    }

    /// It may have something to say earlier than before.
    pub fn wake(&mut self, id: u32) {
        let Some(one) = self.entries.get_mut(&id) else {
            return;
        };
        let (due, end) = match &one.state {
            State::Connecting(opening) => (Some(opening.deadline()), None),
            State::Open(connection) => (connection.deadline(), connection.close_reason()),
        };
        if let Some(end) = end
            && !std::mem::replace(&mut one.close_reported, true)
        {
            self.events.push_back(Event::Closed(id, end));
        }
        if let Some(before) = std::mem::replace(&mut one.deadline, due) {
            self.timers.remove(&(before, id));
        }
        self.timers.extend(due.map(|due| (due, id)));
    }

    /// It is forgotten, whatever its state.
    pub fn remove(&mut self, id: u32) {
        let Some(one) = self.entries.remove(&id) else {
            return;
        };
        if let Some(due) = one.deadline {
            self.timers.remove(&(due, id));
        }
        if let Some(by) = one.state.handshake_key() {
            self.by_handshake.remove(&(one.peer, by));
        }
        if let State::Open(connection) = one.state
            && let Some(end) = connection.close_reason()
        {
            if self.closed.len() == CLOSED_MAX {
                self.closed.pop_front();
            }
            self.closed.push_back(ClosedConnection {
                peer: one.peer,
                own_id: id,
                peer_id: connection.peer_id(),
                close_reason: end,
            });
        }
    }

    /// A datagram came. What it is no packet of is passed over.
    pub fn handle(&mut self, datagram: &[u8], from: SocketAddr, now: Time) {
        match Packet::read(datagram) {
            Some(packet) if packet.destination == 0 => {
                self.handle_handshake(&packet, datagram, from, now);
            }
            Some(packet) => self.handle_packet(packet.destination, &packet, from, now),
            None => {}
        }
    }

    /// What became of connections.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn handle_packet(&mut self, id: u32, packet: &Packet<'_>, from: SocketAddr, now: Time) {
        let Some(one) = self.entries.get_mut(&id).filter(|one| one.peer == from) else {
            return self.reply_closed(id, packet, from);
        };
        match &mut one.state {
            State::Open(connection) => connection.handle(packet, now),
            State::Connecting(opening) => match opening.handle(packet, now, &self.new_control) {
                ConnectOutcome::Pending => {}
                ConnectOutcome::Established(connection) => {
                    let before = one.state.handshake_key();
                    one.state = State::Open(connection);
                    // A rendezvous has met: from now on it is asked for by name.
                    if let Some(by) = before {
                        self.by_handshake.remove(&(from, by));
                    }
                    let after = one.state.handshake_key();
                    self.by_handshake.extend(after.map(|by| ((from, by), id)));
                    self.events.push_back(Event::Connected(id));
                }
                ConnectOutcome::Refused(code) => {
                    self.remove(id);
                    self.events.push_back(Event::Refused(id, code));
                }
            },
        }
        self.wake(id);
    }

    /// Of a connection that is gone the other end hears so.
    fn reply_closed(&mut self, id: u32, packet: &Packet<'_>, from: SocketAddr) {
        let was = |gone: &&ClosedConnection| (gone.peer, gone.own_id) == (from, id);
        let Some(gone) = self.closed.iter().find(was) else {
            return;
        };
        if !needs_shutdown_reply(gone.close_reason, &packet.body)
            || self.replies.len() >= CONNECTIONS_MAX
        {
            return;
        }
        let over = Packet {
            timestamp_us: 0,
            destination: gone.peer_id,
            body: Body::Shutdown(None),
        };
        let mut answer = Vec::new();
        over.write(&mut answer);
        self.replies.push((from, answer));
    }

    /// A packet that names no connection: one is asked for, here or by the other end of a rendezvous.
    fn handle_handshake(
        &mut self,
        packet: &Packet<'_>,
        datagram: &[u8],
        from: SocketAddr,
        now: Time,
    ) {
        let Body::Handshake(asked) = packet.body else {
            return;
        };
        if let Some(id) = self.find_by_handshake(&asked, from) {
            return self.handle_repeated_handshake(id, packet, &asked, now);
        }
        let (Some(own), Some(listener)) = (self.unused_id(), &self.listener) else {
            return;
        };
        let mut answer = Vec::new();
        let heard = listener.handle(datagram, from, own, now, &self.new_control, &mut answer);
        if !answer.is_empty() && self.replies.len() < CONNECTIONS_MAX {
            self.replies.push((from, answer));
        }
        if let HandshakeOutcome::Established(connection) = heard {
            self.insert(own, from, State::Open(connection));
            self.events.push_back(Event::Accepted(own));
        }
    }

    fn handle_repeated_handshake(
        &mut self,
        id: u32,
        packet: &Packet<'_>,
        asked: &Handshake,
        now: Time,
    ) {
        let Some(one) = self.entries.get_mut(&id) else {
            return;
        };
        match &mut one.state {
            State::Open(connection) => connection.on_repeated_request(asked),
            State::Connecting(_) => {
                let named = Packet {
                    destination: id,
                    ..*packet
                };
                let peer = one.peer;
                return self.handle_packet(id, &named, peer, now);
            }
        }
        self.wake(id);
    }

    /// The connection that is asked for again, or the rendezvous that is.
    fn find_by_handshake(&self, asked: &Handshake, from: SocketAddr) -> Option<u32> {
        let by = [Some(asked.socket), None];
        by.iter()
            .find_map(|by| self.by_handshake.get(&(from, *by)).copied())
    }

    /// Appends the next datagram, if one is to go now; where to.
    pub fn transmit(&mut self, now: Time, to: &mut Vec<u8>) -> Option<SocketAddr> {
        if let Some((peer, answer)) = self.replies.pop() {
            to.extend_from_slice(&answer);
            self.last_sent = 0;
            return Some(peer);
        }
        while let Some(&(due, id)) = self.timers.first()
            && due <= now
        {
            let one = self.entries.get_mut(&id)?;
            let (sent, unanswered) = match &mut one.state {
                State::Connecting(opening) => {
                    (opening.transmit(now, to), opening.expires_at() <= now)
                }
                State::Open(connection) => (connection.transmit(now, to), false),
            };
            if sent {
                self.last_sent = id;
                return Some(one.peer);
            }
            match unanswered {
                true => {
                    self.remove(id);
                    self.events.push_back(Event::TimedOut(id));
                }
                false => self.wake(id),
            }
        }
        None
    }

    /// Whose the last datagram of [`Self::transmit`] was: 0 if it was no connection's.
    #[must_use]
    pub fn last_sent(&self) -> u32 {
        self.last_sent
    }

    /// When [`Self::transmit`] may have something next.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match self.replies.is_empty() {
            true => self.timers.first().map(|(due, _)| *due),
            false => Some(Time::ZERO),
        }
    }
}
