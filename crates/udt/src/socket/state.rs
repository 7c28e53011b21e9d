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
pub type BoxedControlFactory = Box<dyn Fn(Seq, u32) -> Box<dyn Control> + Send>;

pub(super) type Random = fn() -> u32;

/// What the driver and all handles have.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// Something is to be sent.
    pub(super) wakeup: Wakeup,
    pub(super) epoch: Instant,
    pub(super) local_addr: SocketAddr,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

pub(super) struct State {
    pub(super) endpoint: Endpoint<BoxedControlFactory, Random>,
    /// Who waits for something of a connection.
    pub(super) waiters: HashMap<u32, Waiters>,
    /// Connections that nobody has taken yet, and who waits for one.
    pub(super) accepted: VecDeque<u32>,
    pub(super) accept_waker: Option<Waker>,
    /// What became of those that were asked for here.
    pub(super) connect_results: HashMap<u32, io::Result<()>>,
    /// Why nothing goes any more.
    pub(super) failure: Option<io::ErrorKind>,
}

#[derive(Default)]
pub(super) struct Waiters {
    pub(super) readers: Wakers,
    pub(super) writers: Wakers,
    pub(super) connectors: Wakers,
    /// Nobody has it any more: it is forgotten once it has come to its end.
    pub(super) detached: bool,
}

impl Waiters {
    fn wake_all(&mut self) {
        let all = [&mut self.readers, &mut self.writers, &mut self.connectors];
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
        Time::from_nanos(self.epoch.elapsed().as_nanos() as u64)
    }
}

/// By which other threads wake the one that waits for packets: eventfd(2), with a system call only for the first of
/// several who call.
#[derive(Debug)]
pub(super) struct Wakeup {
    eventfd: OwnedFd,
    is_notified: AtomicBool,
}

impl Wakeup {
    pub(super) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self {
            eventfd: eventfd(0, flags)?,
            is_notified: AtomicBool::new(false),
        })
    }

    /// Whoever waits looks again.
    pub(super) fn notify(&self) {
        if !self.is_notified.swap(true, SeqCst) {
            // Full it would have been called, too.
            let _called_already = write(&self.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// Whoever waits was woken: calls from now on are new ones. In this order, for who calls in between finds that it
    /// was called, and what he wants done is seen after this.
    pub(super) fn clear(&self) {
        let _one_at_least = read(&self.eventfd, &mut [0; 8]);
        self.is_notified.store(false, SeqCst);
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

impl State {
    pub(super) fn new(endpoint: Endpoint<BoxedControlFactory, Random>) -> Self {
        Self {
            endpoint,
            waiters: HashMap::new(),
            accepted: VecDeque::new(),
            accept_waker: None,
            connect_results: HashMap::new(),
            failure: None,
        }
    }

    /// Says what became of connections.
    pub(super) fn dispatch_events(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            self.dispatch(event);
        }
    }

    fn dispatch(&mut self, event: Event) {
        let (id, outcome) = match event {
            Event::Accepted(id) => {
                self.accepted.push_back(id);
                return self.accept_waker.take().into_iter().for_each(Waker::wake);
            }
            Event::Connected(id) => (id, Ok(())),
            Event::Refused(id, code) => {
                let why = format!("the other end refuses the connection ({code})");
                (
                    id,
                    Err(io::Error::new(io::ErrorKind::ConnectionRefused, why)),
                )
            }
            Event::TimedOut(id) => (id, Err(io::ErrorKind::TimedOut.into())),
            Event::Closed(id, _) => return self.on_closed(id),
        };
        if let Some(waiting) = self.waiters.get_mut(&id) {
            waiting.wake_all();
            self.connect_results.insert(id, outcome);
        }
    }

    /// Something of a connection came or went: who waits for what that brought is woken, and nobody else.
    pub(super) fn wake_ready(&mut self, id: u32) {
        let (Some(connection), Some(waiting)) =
            (self.endpoint.connection(id), self.waiters.get_mut(&id))
        else {
            return;
        };
        if connection.is_worth_reading() {
            waiting.readers.wake();
        }
        if connection.is_worth_writing() {
            waiting.writers.wake();
        }
    }

    /// Who waits for something of a connection looks again.
    fn wake_all(&mut self, id: u32) {
        self.waiters.entry(id).and_modify(Waiters::wake_all);
    }

    /// One that nobody has is forgotten.
    fn on_closed(&mut self, id: u32) {
        match self.waiters.get(&id) {
            Some(waiting) if waiting.detached => self.forget(id),
            _ => self.wake_all(id),
        }
    }

    /// Nobody has it any more.
    pub(super) fn detach(&mut self, id: u32) {
        if let Some(waiting) = self.waiters.get_mut(&id) {
            waiting.detached = true;
        }
        self.endpoint.wake(id);
    }

    /// Those who have come and whom nobody will take any more hear that it is over.
    pub(super) fn stop_accepting(&mut self) {
        self.endpoint.stop_listening();
        for id in std::mem::take(&mut self.accepted) {
            self.waiters.entry(id).or_default();
            if let Some(connection) = self.endpoint.connection(id) {
                connection.abort();
            }
            self.detach(id);
        }
    }

    pub(super) fn forget(&mut self, id: u32) {
        self.endpoint.remove(id);
        self.waiters.remove(&id);
        self.connect_results.remove(&id);
        self.accepted.retain(|accepted| *accepted != id);
    }

    /// Whether there is no connection that somebody has, or that has something to say yet.
    pub(super) fn is_idle(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Nothing goes any more.
    pub(super) fn fail_all(&mut self, why: io::ErrorKind) {
        self.failure = Some(why);
        self.waiters.values_mut().for_each(Waiters::wake_all);
        self.accept_waker.take().into_iter().for_each(Waker::wake);
    }
}
