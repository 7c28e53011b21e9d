// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the thread of a socket and all who use it share: connections, and who waits for what of them.

use crate::{
    congestion::Control,
    endpoint::{Endpoint, Event},
    packet::number::Seq,
};
use longhaul_units::Time;
use rustix::{
    event::{EventfdFlags, eventfd},
    io::{read, write},
};
use std::{
    collections::{HashMap, VecDeque},
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::Waker,
    time::Instant,
};

/// Makes a congestion control for each connection, from its first packet and the packets that may be under way.
pub type MakeControl = Box<dyn Fn(Seq, u32) -> Box<dyn Control> + Send>;

pub(super) type Random = fn() -> u32;

/// What the driver and all handles have.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// Something is to be sent.
    pub(super) wakeup: Wakeup,
    pub(super) began: Instant,
    pub(super) local: SocketAddr,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

pub(super) struct State {
    pub(super) endpoint: Endpoint<MakeControl, Random>,
    /// Who waits for something of a connection.
    pub(super) waiting: HashMap<u32, Waiting>,
    /// Connections that nobody has taken yet, and who waits for one.
    pub(super) accepted: VecDeque<u32>,
    pub(super) acceptor: Option<Waker>,
    /// What became of those that were asked for here.
    pub(super) asked: HashMap<u32, io::Result<()>>,
    /// Why nothing goes any more.
    pub(super) broken: Option<io::ErrorKind>,
}

#[derive(Default)]
pub(super) struct Waiting {
    pub(super) reader: Wakers,
    pub(super) writer: Wakers,
    pub(super) opener: Wakers,
    /// Nobody has it any more: it is forgotten once it has come to its end.
    pub(super) left: bool,
}

impl Waiting {
    fn wake(&mut self) {
        let all = [&mut self.reader, &mut self.writer, &mut self.opener];
        all.into_iter().for_each(Wakers::wake);
    }
}

/// Tasks that wait for the same: mostly one, for a while two where a connection moves from one to another.
#[derive(Default)]
pub(super) struct Wakers(Vec<Waker>);

impl Wakers {
    pub(super) fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|one| one.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    fn wake(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Time {
        Time::from_nanos(self.began.elapsed().as_nanos() as u64)
    }
}

/// By which other threads wake the one that waits for packets: eventfd(2), with a system call only for the first of
/// several who call.
#[derive(Debug)]
pub(super) struct Wakeup {
    event: OwnedFd,
    called: AtomicBool,
}

impl Wakeup {
    pub(super) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self {
            event: eventfd(0, flags)?,
            called: AtomicBool::new(false),
        })
    }

    /// Whoever waits looks again.
    pub(super) fn call(&self) {
        if !self.called.swap(true, SeqCst) {
            // Full it would have been called, too.
            let _called_already = write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Whoever waits was woken: calls from now on are new ones. In this order, for who calls in between finds that it
    /// was called, and what he wants done is seen after this.
    pub(super) fn answer(&self) {
        let _one_at_least = read(&self.event, &mut [0; 8]);
        self.called.store(false, SeqCst);
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl State {
    pub(super) fn new(endpoint: Endpoint<MakeControl, Random>) -> Self {
        Self {
            endpoint,
            waiting: HashMap::new(),
            accepted: VecDeque::new(),
            acceptor: None,
            asked: HashMap::new(),
            broken: None,
        }
    }

    /// Says what became of connections.
    pub(super) fn tell(&mut self) {
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
    pub(super) fn look(&mut self, id: u32) {
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
    pub(super) fn leave(&mut self, id: u32) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.left = true;
        }
        self.endpoint.wake(id);
    }

    /// Those who have come and whom nobody will take any more hear that it is over.
    pub(super) fn take_no_more(&mut self) {
        self.endpoint.deafen();
        for id in std::mem::take(&mut self.accepted) {
            self.waiting.entry(id).or_default();
            if let Some(connection) = self.endpoint.connection(id) {
                connection.abort();
            }
            self.leave(id);
        }
    }

    pub(super) fn forget(&mut self, id: u32) {
        self.endpoint.forget(id);
        self.waiting.remove(&id);
        self.asked.remove(&id);
        self.accepted.retain(|accepted| *accepted != id);
    }

    /// Whether there is no connection that somebody has, or that has something to say yet.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Nothing goes any more.
    pub(super) fn break_all(&mut self, why: io::ErrorKind) {
        self.broken = Some(why);
        self.waiting.values_mut().for_each(Waiting::wake);
        self.acceptor.take().into_iter().for_each(Waker::wake);
    }
}
