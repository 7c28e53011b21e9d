// SPDX-License-Identifier: MIT OR Apache-2.0
//! State that the driver thread of a socket shares with its users: connections, and the tasks that wait for them.

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

/// Creates the congestion control of each connection, from its initial sequence number and the maximum window in
/// packets.
pub type BoxedControlFactory = Box<dyn Fn(Seq, u32) -> Box<dyn Control> + Send>;

pub(super) type Random = fn() -> u32;

/// State shared by the driver and all handles of a socket.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// Wakes the driver when a deadline moves to an earlier time.
    pub(super) wakeup: Wakeup,
    /// Zero of [`Self::now`].
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
    /// Tasks that wait for a connection, by its ID.
    pub(super) waiters: HashMap<u32, Waiters>,
    /// Accepted connections that no task has taken yet, and the task that waits for one.
    pub(super) accepted: VecDeque<u32>,
    pub(super) accept_waker: Option<Waker>,
    /// Results of the connections that were opened here.
    pub(super) connect_results: HashMap<u32, io::Result<()>>,
    /// Error that broke the socket.
    pub(super) failure: Option<io::ErrorKind>,
}

#[derive(Default)]
pub(super) struct Waiters {
    pub(super) readers: Wakers,
    pub(super) writers: Wakers,
    pub(super) connectors: Wakers,
    /// Whether the stream was dropped: the connection is removed once it is closed.
    pub(super) detached: bool,
}

impl Waiters {
    fn wake_all(&mut self) {
        let all = [&mut self.readers, &mut self.writers, &mut self.connectors];
        all.into_iter().for_each(Wakers::wake);
    }
}

/// Tasks that wait for one event: usually one, briefly two when a connection moves from one task to another.
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

/// Wakes the driver thread from other threads: eventfd(2), with a system call only for the first of several
/// notifications.
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

    /// Wakes the driver.
    pub(super) fn notify(&self) {
        if !self.is_notified.swap(true, SeqCst) {
            // A write to a full counter fails, but then the driver is already notified.
            let _already_notified = write(&self.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// Clears the notification after a wake-up. The eventfd is read before the flag is cleared. A thread that notifies
    /// in between finds the flag set and writes nothing. The driver processes its change all the same, after this call.
    pub(super) fn clear(&self) {
        let _count = read(&self.eventfd, &mut [0; 8]);
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

    /// Passes the events of the endpoint to the waiting tasks.
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
                let message = format!("the peer refused the connection ({code})");
                (
                    id,
                    Err(io::Error::new(io::ErrorKind::ConnectionRefused, message)),
                )
            }
            Event::TimedOut(id) => (id, Err(io::ErrorKind::TimedOut.into())),
            Event::Unreachable(id) => {
                let message = "no UDT listener there (ICMP port unreachable)";
                (
                    id,
                    Err(io::Error::new(io::ErrorKind::ConnectionRefused, message)),
                )
            }
            Event::Closed(id, _) => return self.on_closed(id),
        };
        if let Some(waiters) = self.waiters.get_mut(&id) {
            waiters.wake_all();
            self.connect_results.insert(id, outcome);
        }
    }

    /// Wakes the readers of a connection if there is data to read, and its writers if the send buffer has free space.
    pub(super) fn wake_ready(&mut self, id: u32) {
        let (Some(connection), Some(waiters)) =
            (self.endpoint.connection(id), self.waiters.get_mut(&id))
        else {
            return;
        };
        if connection.is_worth_reading() {
            waiters.readers.wake();
        }
        if connection.is_worth_writing() {
            waiters.writers.wake();
        }
    }

    /// Wakes all tasks that wait for a connection.
    fn wake_all(&mut self, id: u32) {
        self.waiters.entry(id).and_modify(Waiters::wake_all);
    }

    /// Handles a closed connection: removes it if its stream was dropped, else wakes its tasks.
    fn on_closed(&mut self, id: u32) {
        match self.waiters.get(&id) {
            Some(waiters) if waiters.detached => self.remove(id),
            _ => self.wake_all(id),
        }
    }

    /// Marks a connection whose stream was dropped.
    pub(super) fn detach(&mut self, id: u32) {
        if let Some(waiters) = self.waiters.get_mut(&id) {
            waiters.detached = true;
        }
        self.endpoint.wake(id);
    }

    /// Stops accepting, and aborts the connections that no task has taken.
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

    pub(super) fn remove(&mut self, id: u32) {
        self.endpoint.remove(id);
        self.waiters.remove(&id);
        self.connect_results.remove(&id);
        self.accepted.retain(|accepted| *accepted != id);
    }

    /// Whether no connection has a stream or data to send.
    pub(super) fn is_idle(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Fails all connections with this error.
    pub(super) fn fail_all(&mut self, error: io::ErrorKind) {
        self.failure = Some(error);
        self.waiters.values_mut().for_each(Waiters::wake_all);
        self.accept_waker.take().into_iter().for_each(Waker::wake);
    }
}
