// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state machines on a UDP socket: what a program uses, with tokio's traits of reading and writing.
//!
//! One thread drives all connections of a socket. It wakes once a millisecond, or each 64 KB and sends what is due in one
//! piece, which the kernel or the network card cuts into packets (UDP GSO), and takes what came in pieces as large (GRO):
//! that is what makes it cheap, where libudt makes a system call for each packet and waits between two in a loop.

mod arrival;
mod driver;
mod lull;
mod path;
mod stream;
mod train;
mod wakeup;

use crate::{
    config::Config,
    congestion::Control,
    endpoint::{Endpoint, Event},
    number::Seq,
};
use longhaul_units::Time;
use std::{
    collections::{HashMap, VecDeque},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    time::Instant,
};
use wakeup::Wakeup;

pub use stream::Stream;

/// Makes a congestion control for each connection, from its first packet and the packets that may be under way.
pub type MakeControl = Box<dyn Fn(Seq, u32) -> Box<dyn Control> + Send>;

type Random = fn() -> u32;

/// A UDP port and all its connections. Dropped, it takes no more, and those that are open go on.
#[derive(Debug)]
pub struct Socket {
    shared: Arc<Shared>,
}

/// What the driver and all handles have.
struct Shared {
    state: Mutex<State>,
    /// Something is to be sent.
    wakeup: Wakeup,
    began: Instant,
    local: SocketAddr,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

struct State {
    endpoint: Endpoint<MakeControl, Random>,
    /// Who waits for something of a connection.
    waiting: HashMap<u32, Waiting>,
    /// Connections that nobody has taken yet, and who waits for one.
    accepted: VecDeque<u32>,
    acceptor: Option<Waker>,
    /// What became of those that were asked for here.
    asked: HashMap<u32, io::Result<()>>,
    /// Why nothing goes any more.
    broken: Option<io::ErrorKind>,
}

#[derive(Default)]
struct Waiting {
    reader: Wakers,
    writer: Wakers,
    opener: Wakers,
    /// Nobody has it any more: it is forgotten once it has come to its end.
    left: bool,
}

impl Waiting {
    fn wake(&mut self) {
        let all = [&mut self.reader, &mut self.writer, &mut self.opener];
        all.into_iter().for_each(Wakers::wake);
    }
}

/// Tasks that wait for the same: mostly one, for a while two where a connection moves from one to another.
#[derive(Default)]
struct Wakers(Vec<Waker>);

impl Wakers {
    fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|one| one.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    fn wake(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}

impl Socket {
    /// Takes a UDP port.
    pub fn bind(at: SocketAddr, config: Config, control: MakeControl) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(at)?;
        let local = socket.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                endpoint: Endpoint::new(config, control, random as Random),
                waiting: HashMap::new(),
                accepted: VecDeque::new(),
                acceptor: None,
                asked: HashMap::new(),
                broken: None,
            }),
            wakeup: Wakeup::new()?,
            began: Instant::now(),
            local,
        });
        driver::start(socket, &shared)?;
        Ok(Self { shared })
    }

    /// Where it is bound.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local
    }

    /// Takes connections from now on.
    pub fn listen(&self) {
        self.shared.lock().endpoint.listen();
    }

    /// The next connection that another host opened.
    pub async fn accept(&self) -> io::Result<Stream> {
        let id = std::future::poll_fn(|context| {
            let mut state = self.shared.lock();
            if let Some(broken) = state.broken {
                return Poll::Ready(Err(io::Error::from(broken)));
            }
            match state.accepted.pop_front() {
                Some(id) => Poll::Ready(Ok(id)),
                None => {
                    state.acceptor = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        });
        Ok(Stream::new(id.await?, self.shared.clone()))
    }

    /// Opens a connection to a host that listens.
    pub async fn connect(&self, peer: SocketAddr) -> io::Result<Stream> {
        self.open(|endpoint, now| endpoint.connect(peer, now)).await
    }

    /// Opens a connection to a host that does the same at the same time.
    pub async fn rendezvous(&self, peer: SocketAddr) -> io::Result<Stream> {
        self.open(|endpoint, now| endpoint.rendezvous(peer, now))
            .await
    }

    async fn open(
        &self,
        ask: impl FnOnce(&mut Endpoint<MakeControl, Random>, Time) -> Option<u32>,
    ) -> io::Result<Stream> {
        let now = self.shared.now();
        let asked = {
            let mut state = self.shared.lock();
            let id = ask(&mut state.endpoint, now);
            // Before anybody else has the lock: the other end of a rendezvous may have asked already.
            id.inspect(|id| drop(state.waiting.insert(*id, Waiting::default())))
        };
        let id = asked.ok_or_else(|| io::Error::other("too many connections"))?;
        // Dropped before it is open, it is forgotten.
        let stream = Stream::new(id, self.shared.clone());
        self.shared.wakeup.call();
        std::future::poll_fn(|context| {
            let mut state = self.shared.lock();
            if let Some(outcome) = state.asked.remove(&id) {
                return Poll::Ready(outcome);
            }
            if let Some(broken) = state.broken {
                return Poll::Ready(Err(broken.into()));
            }
            let waiting = state.waiting.entry(id).or_default();
            waiting.opener.add(context.waker());
            Poll::Pending
        })
        .await?;
        Ok(stream)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.shared.lock().take_no_more();
        self.shared.wakeup.call();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.began.elapsed().as_nanos() as u64)
    }
}

impl State {
    /// Says what became of connections.
    fn tell(&mut self) {
        while let Some(event) = self.endpoint.event() {
            self.happened(event);
        }
    }

    fn happened(&mut self, event: Event) {
        let (id, outcome) = match event {
            Event::Accepted(id) => {
                self.accepted.push_back(id);
                return self.acceptor.take().into_iter().for_each(Waker::wake);
            }
            Event::Opened(id) => (id, Ok(())),
            Event::Refused(id, code) => {
                let why = format!("the other end refuses the connection ({code})");
                (
                    id,
                    Err(io::Error::new(io::ErrorKind::ConnectionRefused, why)),
                )
            }
            Event::Unanswered(id) => (id, Err(io::ErrorKind::TimedOut.into())),
            Event::Ended(id, _) => return self.ended(id),
        };
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.wake();
            self.asked.insert(id, outcome);
        }
    }

    /// Something of a connection came or went: who waits for what that brought is woken, and nobody else.
    fn look(&mut self, id: u32) {
        let (Some(connection), Some(waiting)) =
            (self.endpoint.connection(id), self.waiting.get_mut(&id))
        else {
            return;
        };
        if connection.is_worth_reading() {
            waiting.reader.wake();
        }
        if connection.is_worth_writing() {
            waiting.writer.wake();
        }
    }

    /// Who waits for something of a connection looks again.
    fn wake(&mut self, id: u32) {
        self.waiting.entry(id).and_modify(Waiting::wake);
    }

    /// One that nobody has is forgotten.
    fn ended(&mut self, id: u32) {
        match self.waiting.get(&id) {
            Some(waiting) if waiting.left => self.forget(id),
            _ => self.wake(id),
        }
    }

    /// Nobody has it any more.
    fn leave(&mut self, id: u32) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.left = true;
        }
        self.endpoint.wake(id);
    }

    /// Those who have come and whom nobody will take any more hear that it is over.
    fn take_no_more(&mut self) {
        self.endpoint.deafen();
        for id in std::mem::take(&mut self.accepted) {
            self.waiting.entry(id).or_default();
            if let Some(connection) = self.endpoint.connection(id) {
                connection.abort();
            }
            self.leave(id);
        }
    }

    fn forget(&mut self, id: u32) {
        self.endpoint.forget(id);
        self.waiting.remove(&id);
        self.asked.remove(&id);
        self.accepted.retain(|accepted| *accepted != id);
    }

    /// Whether there is no connection that somebody has, or that has something to say yet.
    fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Nothing goes any more.
    fn break_all(&mut self, why: io::ErrorKind) {
        self.broken = Some(why);
        self.waiting.values_mut().for_each(Waiting::wake);
        self.acceptor.take().into_iter().for_each(Waker::wake);
    }
}

/// Of the system's.
fn random() -> u32 {
    let mut bytes = [0; 4];
    // It has some since it booted, and gives so few at once.
    let _all = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u32::from_ne_bytes(bytes)
}
