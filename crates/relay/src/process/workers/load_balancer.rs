// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load of each worker, and the handover of accepted connections to less busy workers.
//!
//! The kernel spreads connections over the workers' sockets by a hash of their addresses. It
//! ignores the load, and often puts two long flows on one of two workers.

use crate::{
    listeners::listener::Listener, process::workers::registry::Registration, relay::Relay,
};
use longhaul_transport::transport::TransportStream;
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
pub(crate) struct AcceptedConnection {
    pub(crate) relay: Arc<Relay>,
    pub(crate) listener: Arc<Listener>,
    pub(crate) client: TransportStream,
    pub(crate) address: SocketAddr,
    pub(crate) registration: Registration,
    pub(crate) load: LoadGuard,
    /// Permit of the limit on connections.
    pub(crate) permit: OwnedSemaphorePermit,
}

impl AcceptedConnection {
    /// Moves the socket to the calling thread's event loop.
    pub(crate) fn move_to_current_runtime(self) -> io::Result<Self> {
        let client = self.client.rebind_to_current_runtime()?;
        Ok(Self { client, ..self })
    }
}

/// Loads of all workers.
#[derive(Debug)]
pub(crate) struct LoadBalancer(Box<[WorkerLoad]>);

#[derive(Debug)]
struct WorkerLoad {
    connections: AtomicUsize,
    handovers: Sender<AcceptedConnection>,
}

/// Capacity of a worker's handover queue, in connections.
const HANDOVER_QUEUE_LEN: usize = 1024;

/// Minimum imbalance for a handover, in connections: the accepting worker must exceed the other's
/// load by this number and by half of the other's load. A handover costs a wake-up, and small
/// differences do not matter.
const IMBALANCE_MIN: usize = 2;

impl LoadBalancer {
    /// Returns the balancer of `count` workers, and each worker's receiver of handovers.
    pub(crate) fn new(count: usize) -> (Self, Vec<Receiver<AcceptedConnection>>) {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..count).map(|_| channel(HANDOVER_QUEUE_LEN)).unzip();
        let new_load = |handovers| WorkerLoad {
            connections: AtomicUsize::new(0),
            handovers,
        };
        (Self(senders.into_iter().map(new_load).collect()), receivers)
    }

    /// Chooses a worker for a connection that worker `own` has accepted, and counts it there.
    pub(crate) fn assign(self: &Arc<Self>, own: usize) -> LoadGuard {
        let loads = self.0.iter().map(|worker| worker.connections.load(Relaxed));
        let worker = choose(own, loads);
        self.0[worker].connections.fetch_add(1, Relaxed);
        LoadGuard {
            balancer: self.clone(),
            worker,
        }
    }

    /// Sends the connection to its worker. Returns it if that worker's queue is full.
    pub(crate) fn hand_over(&self, connection: AcceptedConnection) -> Option<AcceptedConnection> {
        let load = &self.0[connection.load.worker];
        let sent = load.handovers.try_send(connection);
        sent.err().map(TrySendError::into_inner)
    }
}

/// Returns the least busy worker if `own` is busier by [`IMBALANCE_MIN`], and `own` otherwise.
fn choose(own: usize, loads: impl Iterator<Item = usize> + Clone) -> usize {
    let own_load = loads.clone().nth(own).unwrap_or(0);
    let least = loads.enumerate().min_by_key(|(_, load)| *load);
    match least {
        Some((worker, load)) if load + load / 2 + IMBALANCE_MIN <= own_load => worker,
        _ => own,
    }
}

/// Counts one connection of a worker until it is dropped.
#[derive(Debug)]
pub(crate) struct LoadGuard {
    balancer: Arc<LoadBalancer>,
    pub(crate) worker: usize,
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        self.balancer.0[self.worker]
            .connections
            .fetch_sub(1, Relaxed);
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
        let (balancer, _receivers) = LoadBalancer::new(2);
        let balancer = Arc::new(balancer);
        let flows: Vec<_> = (0..8).map(|_| balancer.assign(0)).collect();
        let on_first = flows.iter().filter(|flow| flow.worker == 0).count();
        assert_eq!(on_first, 5);
        drop(flows);
        assert!(
            balancer
                .0
                .iter()
                .all(|worker| worker.connections.load(Relaxed) == 0)
        );
    }
}
