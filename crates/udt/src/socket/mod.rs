// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP sockets that drive the state machines: the interface for applications, with tokio's traits for reading and
//! writing.
//!
//! One thread drives all connections of a socket. It wakes up once a millisecond, or each 64 KB. It sends the due
//! packets as one buffer, which the kernel or the network card segments (UDP GSO), and receives packets merged into
//! buffers as large (GRO). This saves CPU time: libudt makes a system call for each packet, and waits between two in
//! a loop.

mod batching;
mod driver;
mod gso_batch;
mod rx_timestamp;
mod state;
mod stream;

pub use state::BoxedControlFactory;
pub use stream::Stream;

use crate::{config::Config, endpoint::Endpoint};
use longhaul_linux::random::random_bytes;
use longhaul_units::Time;
use state::{Random, Shared, State, Waiters, Wakeup};
use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    task::Poll,
    time::Instant,
};

/// UDP socket and all its connections. After a drop it accepts no more connections; open ones continue.
#[derive(Debug)]
pub struct Socket {
    shared: Arc<Shared>,
}

impl Socket {
    /// Binds a UDP port and starts the driver thread.
    pub fn bind(at: SocketAddr, config: Config, control: BoxedControlFactory) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(at)?;
        let local = socket.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(Endpoint::new(config, control, random as Random))),
            wakeup: Wakeup::new()?,
            epoch: Instant::now(),
            local_addr: local,
        });
        driver::start(socket, &shared)?;
        Ok(Self { shared })
    }

    /// Returns the local address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local_addr
    }

    /// Accepts connections from now on.
    pub fn listen(&self) {
        self.shared.lock().endpoint.listen();
    }

    /// Returns the next connection that a peer opened.
    pub async fn accept(&self) -> io::Result<Stream> {
        let id = std::future::poll_fn(|context| {
            let mut state = self.shared.lock();
            if let Some(broken) = state.failure {
                return Poll::Ready(Err(io::Error::from(broken)));
            }
            match state.accepted.pop_front() {
                Some(id) => Poll::Ready(Ok(id)),
                None => {
                    state.accept_waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        });
        Ok(Stream::new(id.await?, self.shared.clone()))
    }

    /// Opens a connection to a listening peer.
    pub async fn connect(&self, peer: SocketAddr) -> io::Result<Stream> {
        self.open(|endpoint, now| endpoint.connect(peer, now)).await
    }

    /// Opens a connection to a peer that does the same at the same time.
    pub async fn rendezvous(&self, peer: SocketAddr) -> io::Result<Stream> {
        self.open(|endpoint, now| endpoint.rendezvous(peer, now))
            .await
    }

    async fn open(
        &self,
        start: impl FnOnce(&mut Endpoint<BoxedControlFactory, Random>, Time) -> Option<u32>,
    ) -> io::Result<Stream> {
        let now = self.shared.now();
        let connected = {
            let mut state = self.shared.lock();
            let id = start(&mut state.endpoint, now);
            // Register while the lock is held: the peer of a rendezvous may already have sent its handshake.
            id.inspect(|id| drop(state.waiters.insert(*id, Waiters::default())))
        };
        let id = connected.ok_or_else(|| io::Error::other("too many connections"))?;
        // If the stream is dropped before the connection is open, the connection is removed.
        let stream = Stream::new(id, self.shared.clone());
        self.shared.wakeup.notify();
        std::future::poll_fn(|context| {
            let mut state = self.shared.lock();
            if let Some(outcome) = state.connect_results.remove(&id) {
                return Poll::Ready(outcome);
            }
            if let Some(broken) = state.failure {
                return Poll::Ready(Err(broken.into()));
            }
            let waiting = state.waiters.entry(id).or_default();
            waiting.connectors.add(context.waker());
            Poll::Pending
        })
        .await?;
        Ok(stream)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.shared.lock().stop_accepting();
        self.shared.wakeup.notify();
    }
}

/// Returns a random number of the system.
fn random() -> u32 {
    // Predictable numbers would let others inject packets.
    u32::from_ne_bytes(random_bytes().expect("the kernel has random bytes"))
}
