// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any number of connections over one UDP port: whose a datagram is, and whose turn it is.

use crate::{
    config::Config,
    congestion::Control,
    connection::{
        Connection, End, answers_after,
        listening::{Heard, Listener},
        opening::{Opened, Opening},
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
const GONE_MAX: usize = 1024;

/// All connections of a port.
#[derive(Debug)]
pub struct Endpoint<M, R> {
    config: Config,
    listener: Option<Listener>,
    /// Makes a congestion control.
    controls: M,
    /// Random numbers, which nobody else can tell.
    random: R,
    all: HashMap<u32, One>,
    /// Those that may be asked for again: by whom and his name for it; one that is met, whatever his name is.
    asked_for: HashMap<(SocketAddr, Option<u32>), u32>,
    /// Who wants to say something when.
    due: BTreeSet<(Time, u32)>,
    /// What a listener has answered, and to whom.
    answers: Vec<(SocketAddr, Vec<u8>)>,
    events: VecDeque<Event>,
    /// Connections that are forgotten here after their end.
    gone: VecDeque<Gone>,
    /// Whose the last datagram was.
    sent: u32,
}

/// What is kept of one.
#[derive(Debug)]
struct Gone {
    peer: SocketAddr,
    own_id: u32,
    peer_id: u32,
    end: End,
}

#[derive(Debug)]
struct One {
    peer: SocketAddr,
    due: Option<Time>,
    state: State,
    /// Its end was said.
    ended: bool,
}

#[derive(Debug)]
enum State {
    Opening(Box<Opening>),
    Open(Box<Connection>),
}

impl State {
    /// Whose requests it answers: those of one name, of anybody who is met, or nobody's.
    fn asked_by(&self) -> Option<Option<u32>> {
        match self {
            Self::Open(connection) => connection.answers().map(Some),
            Self::Opening(opening) => opening.is_rendezvous().then_some(None),
        }
    }
}

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Another host asked for it, and it is open.
    Accepted(u32),
    /// It was asked for here, and is open.
    Opened(u32),
    /// The other end does not want it, and says this code.
    Refused(u32, u32),
    /// Nobody answers.
    Unanswered(u32),
    /// It came to its end. What had arrived can be read until it is [forgotten](Endpoint::forget).
    Ended(u32, End),
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
            controls,
            random,
            all: HashMap::new(),
            asked_for: HashMap::new(),
            due: BTreeSet::new(),
            answers: Vec::new(),
            events: VecDeque::new(),
            gone: VecDeque::new(),
            sent: 0,
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
    pub fn deafen(&mut self) {
        self.listener = None;
    }

    /// Asks a listener for a connection; its name, unless there are too many.
    pub fn connect(&mut self, peer: SocketAddr, now: Time) -> Option<u32> {
        let (own, first) = (self.name()?, Seq::new((self.random)()));
        let opening = Opening::to_listener(self.config, peer.ip(), own, first, now);
        Some(self.begin(own, peer, opening))
    }

    /// Meets an end that does the same.
    pub fn rendezvous(&mut self, peer: SocketAddr, now: Time) -> Option<u32> {
        let (own, first) = (self.name()?, Seq::new((self.random)()));
        let opening = Opening::rendezvous(self.config, peer.ip(), own, first, now);
        Some(self.begin(own, peer, opening))
    }

    fn begin(&mut self, own: u32, peer: SocketAddr, opening: Opening) -> u32 {
        self.put(own, peer, State::Opening(opening.into()));
        own
    }

    /// A name that no connection has.
    fn name(&mut self) -> Option<u32> {
        let room = self.all.len() < CONNECTIONS_MAX;
        let names = std::iter::from_fn(|| Some((self.random)() & 0x7fff_ffff));
        let all = &self.all;
        room.then(|| {
            names
                .into_iter()
                .find(|name| *name != 0 && !all.contains_key(name))
        })?
    }

    fn put(&mut self, own: u32, peer: SocketAddr, state: State) {
        self.asked_for
            .extend(state.asked_by().map(|by| ((peer, by), own)));
        let one = One {
            peer,
            due: None,
            state,
            ended: false,
        };
        self.all.insert(own, one);
        self.wake(own);
    }

    /// An open connection. Who writes to it, reads from it or closes it [wakes](Self::wake) it then.
    pub fn connection(&mut self, id: u32) -> Option<&mut Connection> {
        match &mut self.all.get_mut(&id)?.state {
            State::Open(connection) => Some(connection),
            State::Opening(_) => None,
        }
    }

    /// Whose packets it takes.
    #[must_use]
    pub fn peer(&self, id: u32) -> Option<SocketAddr> {
        self.all.get(&id).map(|one| one.peer)
    }

    /// It may have something to say earlier than before.
    pub fn wake(&mut self, id: u32) {
        let Some(one) = self.all.get_mut(&id) else {
            return;
        };
        let (due, end) = match &one.state {
            State::Opening(opening) => (Some(opening.deadline()), None),
            State::Open(connection) => (connection.deadline(), connection.end()),
        };
        if let Some(end) = end
            && !std::mem::replace(&mut one.ended, true)
        {
            self.events.push_back(Event::Ended(id, end));
        }
        if let Some(before) = std::mem::replace(&mut one.due, due) {
            self.due.remove(&(before, id));
        }
        self.due.extend(due.map(|due| (due, id)));
    }

    /// It is forgotten, whatever its state.
    pub fn forget(&mut self, id: u32) {
        let Some(one) = self.all.remove(&id) else {
            return;
        };
        if let Some(due) = one.due {
            self.due.remove(&(due, id));
        }
        if let Some(by) = one.state.asked_by() {
            self.asked_for.remove(&(one.peer, by));
        }
        if let State::Open(connection) = one.state
            && let Some(end) = connection.end()
        {
            if self.gone.len() == GONE_MAX {
                self.gone.pop_front();
            }
            self.gone.push_back(Gone {
                peer: one.peer,
                own_id: id,
                peer_id: connection.peer(),
                end,
            });
        }
    }

    /// A datagram came. What it is no packet of is passed over.
    pub fn handle(&mut self, datagram: &[u8], from: SocketAddr, now: Time) {
        match Packet::read(datagram) {
            Some(packet) if packet.destination == 0 => {
                self.hear_stranger(&packet, datagram, from, now);
            }
            Some(packet) => self.hear(packet.destination, &packet, from, now),
            None => {}
        }
    }

    /// What became of connections.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn hear(&mut self, id: u32, packet: &Packet<'_>, from: SocketAddr, now: Time) {
        let Some(one) = self.all.get_mut(&id).filter(|one| one.peer == from) else {
            return self.say_gone(id, packet, from);
        };
        match &mut one.state {
            State::Open(connection) => connection.handle(packet, now),
            State::Opening(opening) => match opening.handle(packet, now, &self.controls) {
                Opened::Waiting => {}
                Opened::Open(connection) => {
                    let before = one.state.asked_by();
                    one.state = State::Open(connection);
                    // A rendezvous has met: from now on it is asked for by name.
                    if let Some(by) = before {
                        self.asked_for.remove(&(from, by));
                    }
                    let after = one.state.asked_by();
                    self.asked_for.extend(after.map(|by| ((from, by), id)));
                    self.events.push_back(Event::Opened(id));
                }
                Opened::Refused(code) => {
                    self.forget(id);
                    self.events.push_back(Event::Refused(id, code));
                }
            },
        }
        self.wake(id);
    }

    /// Of a connection that is gone the other end hears so.
    fn say_gone(&mut self, id: u32, packet: &Packet<'_>, from: SocketAddr) {
        let was = |gone: &&Gone| (gone.peer, gone.own_id) == (from, id);
        let Some(gone) = self.gone.iter().find(was) else {
            return;
        };
        if !answers_after(gone.end, &packet.body) || self.answers.len() >= CONNECTIONS_MAX {
            return;
        }
        let over = Packet {
            timestamp_us: 0,
            destination: gone.peer_id,
            body: Body::Shutdown(None),
        };
        let mut answer = Vec::new();
        over.write(&mut answer);
        self.answers.push((from, answer));
    }

    /// A packet that names no connection: one is asked for, here or by the other end of a rendezvous.
    fn hear_stranger(&mut self, packet: &Packet<'_>, datagram: &[u8], from: SocketAddr, now: Time) {
        let Body::Handshake(asked) = packet.body else {
            return;
        };
        if let Some(id) = self.known(&asked, from) {
            return self.hear_again(id, packet, &asked, now);
        }
        let (Some(own), Some(listener)) = (self.name(), &self.listener) else {
            return;
        };
        let mut answer = Vec::new();
        let heard = listener.hear(datagram, from, own, now, &self.controls, &mut answer);
        if !answer.is_empty() && self.answers.len() < CONNECTIONS_MAX {
            self.answers.push((from, answer));
        }
        if let Heard::Open(connection) = heard {
            self.put(own, from, State::Open(connection));
            self.events.push_back(Event::Accepted(own));
        }
    }

    fn hear_again(&mut self, id: u32, packet: &Packet<'_>, asked: &Handshake, now: Time) {
        let Some(one) = self.all.get_mut(&id) else {
            return;
        };
        match &mut one.state {
            State::Open(connection) => connection.ask_again(asked),
            State::Opening(_) => {
                let named = Packet {
                    destination: id,
                    ..*packet
                };
                let peer = one.peer;
                return self.hear(id, &named, peer, now);
            }
        }
        self.wake(id);
    }

    /// The connection that is asked for again, or the rendezvous that is.
    fn known(&self, asked: &Handshake, from: SocketAddr) -> Option<u32> {
        let by = [Some(asked.socket), None];
        by.iter()
            .find_map(|by| self.asked_for.get(&(from, *by)).copied())
    }

    /// Appends the next datagram, if one is to go now; where to.
    pub fn transmit(&mut self, now: Time, to: &mut Vec<u8>) -> Option<SocketAddr> {
        if let Some((peer, answer)) = self.answers.pop() {
            to.extend_from_slice(&answer);
            self.sent = 0;
            return Some(peer);
        }
        while let Some(&(due, id)) = self.due.first()
            && due <= now
        {
            let one = self.all.get_mut(&id)?;
            let (sent, unanswered) = match &mut one.state {
                State::Opening(opening) => (opening.transmit(now, to), opening.until() <= now),
                State::Open(connection) => (connection.transmit(now, to), false),
            };
            if sent {
                self.sent = id;
                return Some(one.peer);
            }
            match unanswered {
                true => {
                    self.forget(id);
                    self.events.push_back(Event::Unanswered(id));
                }
                false => self.wake(id),
            }
        }
        None
    }

    /// Whose the last datagram of [`Self::transmit`] was: 0 if it was no connection's.
    #[must_use]
    pub fn sent(&self) -> u32 {
        self.sent
    }

    /// When [`Self::transmit`] may have something next.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match self.answers.is_empty() {
            true => self.due.first().map(|(due, _)| *due),
            false => Some(Time::ZERO),
        }
    }
}
