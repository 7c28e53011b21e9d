// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load of each worker, and the handover of accepted connections to less busy workers.
//!
//! The kernel spreads connections over the workers' sockets by a hash of their addresses. It
//! ignores the load, and often puts two long flows on one of two workers.

use crate::{listeners::listener::Listener, process::workers::registry::Entry, relay::Relay};
use longhaul_transport::carrier::Carrier;
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use tokio::sync::{
    OwnedSemaphorePermit,
    mpsc::{Receiver, Sender, channel, error::TrySendError},
};

/// Accepted connection with its permit, on its way to the worker that will serve it.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub(crate) relay: Arc<Relay>,
    pub(crate) listener: Arc<Listener>,
    pub(crate) client: Carrier,
    pub(crate) address: SocketAddr,
    pub(crate) entry: Entry,
    pub(crate) seated: Seated,
    /// Permit of the limit on connections.
    pub(crate) place: OwnedSemaphorePermit,
}

impl Newcomer {
    /// Moves the socket to the calling thread's event loop.
    pub(crate) fn at_home_here(self) -> io::Result<Self> {
        let client = self.client.at_home_here()?;
        Ok(Self { client, ..self })
    }
}

/// Loads of all workers.
#[derive(Debug)]
pub(crate) struct Crew(Box<[Seat]>);

#[derive(Debug)]
struct Seat {
    connections: AtomicUsize,
    newcomers: Sender<Newcomer>,
}

/// Capacity of a worker's handover queue, in connections.
const NEWCOMERS_MAX: usize = 1024;

/// Minimum imbalance for a handover, in connections: the accepting worker must exceed the other's
/// load by this number and by half of the other's load. A handover costs a wake-up, and small
/// differences do not matter.
const EDGE: usize = 2;

impl Crew {
    /// Returns the balancer of `count` workers, and each worker's receiver of handovers.
    pub(crate) fn new(count: usize) -> (Self, Vec<Receiver<Newcomer>>) {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..count).map(|_| channel(NEWCOMERS_MAX)).unzip();
        let seat = |newcomers| Seat {
            connections: AtomicUsize::new(0),
            newcomers,
        };
        (Self(senders.into_iter().map(seat).collect()), receivers)
    }

    /// Chooses a worker for a connection that worker `own` has accepted, and counts it there.
    pub(crate) fn place(self: &Arc<Self>, own: usize) -> Seated {
        let loads = self.0.iter().map(|seat| seat.connections.load(Relaxed));
        let worker = choose(own, loads);
        self.0[worker].connections.fetch_add(1, Relaxed);
        Seated {
            crew: self.clone(),
            worker,
        }
    }

    /// Sends the connection to its worker. Returns it if that worker's queue is full.
    pub(crate) fn hand_over(&self, newcomer: Newcomer) -> Option<Newcomer> {
        let seat = &self.0[newcomer.seated.worker];
        let sent = seat.newcomers.try_send(newcomer);
        sent.err().map(TrySendError::into_inner)
    }
}

/// Returns the least busy worker if `own` is busier by [`EDGE`], and `own` otherwise.
fn choose(own: usize, loads: impl Iterator<Item = usize> + Clone) -> usize {
    let own_load = loads.clone().nth(own).unwrap_or(0);
    let least = loads.enumerate().min_by_key(|(_, load)| *load);
    match least {
        Some((worker, load)) if load + load / 2 + EDGE <= own_load => worker,
        _ => own,
    }
}

/// Counts one connection of a worker until it is dropped.
#[derive(Debug)]
pub(crate) struct Seated {
    crew: Arc<Crew>,
    pub(crate) worker: usize,
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.crew.0[self.worker].connections.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chooses_least_busy_worker_if_imbalance_is_large() {
        let choose = |own, loads: &[usize]| choose(own, loads.iter().copied());
        assert_eq!(choose(0, &[1, 0]), 0);
        assert_eq!(choose(0, &[2, 0]), 1);
        assert_eq!(choose(1, &[0, 7, 3]), 0);
        assert_eq!(choose(0, &[8, 3]), 1);
        assert_eq!(choose(0, &[12, 8]), 0);
    }

    #[test]
    fn spreads_long_flows_over_workers() {
        let (crew, _receivers) = Crew::new(2);
        let crew = Arc::new(crew);
        let flows: Vec<_> = (0..8).map(|_| crew.place(0)).collect();
        let on_first = flows.iter().filter(|flow| flow.worker == 0).count();
        assert_eq!(on_first, 5);
        drop(flows);
        assert!(
            crew.0
                .iter()
                .all(|seat| seat.connections.load(Relaxed) == 0)
        );
    }
}
