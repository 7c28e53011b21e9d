// SPDX-License-Identifier: MIT OR Apache-2.0
//! How busy each worker is, and how a connection gets from the one that accepted it to one that has
//! less to do.
//!
//! The kernel spreads connections over the workers' sockets by a hash of their addresses: it takes
//! no notice of what a worker has to do already, and puts two long flows on one of two workers as
//! often as not.

use crate::{doors::door::Door, process::workers::registry::Entry, relay::Relay};
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

/// A connection that has its place, on its way to the worker that will serve it.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub(crate) relay: Arc<Relay>,
    pub(crate) door: Arc<Door>,
    pub(crate) client: Carrier,
    pub(crate) address: SocketAddr,
    pub(crate) entry: Entry,
    pub(crate) seated: Seated,
    /// Of those that the limit on connections has.
    pub(crate) place: OwnedSemaphorePermit,
}

impl Newcomer {
    /// The same, driven by the calling thread's event loop from now on.
    pub(crate) fn at_home_here(self) -> io::Result<Self> {
        let client = self.client.at_home_here()?;
        Ok(Self { client, ..self })
    }
}

/// All workers.
#[derive(Debug)]
pub(crate) struct Crew(Box<[Seat]>);

#[derive(Debug)]
struct Seat {
    connections: AtomicUsize,
    newcomers: Sender<Newcomer>,
}

/// Connections that may be on their way to one worker.
const NEWCOMERS_MAX: usize = 1024;

/// A worker takes what it accepted, unless it has this many connections more than another, and half
/// of the other's: to hand one over costs a wake-up, and a few do not matter among many.
const EDGE: usize = 2;

impl Crew {
    /// `count` workers, and where each finds its newcomers.
    pub(crate) fn new(count: usize) -> (Self, Vec<Receiver<Newcomer>>) {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..count).map(|_| channel(NEWCOMERS_MAX)).unzip();
        let seat = |newcomers| Seat {
            connections: AtomicUsize::new(0),
            newcomers,
        };
        (Self(senders.into_iter().map(seat).collect()), receivers)
    }

    /// Finds a worker for what worker `own` has accepted, and counts it there.
    pub(crate) fn place(self: &Arc<Self>, own: usize) -> Seated {
        let loads = self.0.iter().map(|seat| seat.connections.load(Relaxed));
        let worker = choose(own, loads);
        self.0[worker].connections.fetch_add(1, Relaxed);
        Seated {
            crew: self.clone(),
            worker,
        }
    }

    /// Gives `newcomer` to the worker that was found for it, or back if that has too many waiting.
    pub(crate) fn hand_over(&self, newcomer: Newcomer) -> Option<Newcomer> {
        let seat = &self.0[newcomer.seated.worker];
        let sent = seat.newcomers.try_send(newcomer);
        sent.err().map(TrySendError::into_inner)
    }
}

/// The least busy worker, if `own` is busier by the [`EDGE`].
fn choose(own: usize, loads: impl Iterator<Item = usize> + Clone) -> usize {
    let own_load = loads.clone().nth(own).unwrap_or(0);
    let least = loads.enumerate().min_by_key(|(_, load)| *load);
    match least {
        Some((worker, load)) if load + load / 2 + EDGE <= own_load => worker,
        _ => own,
    }
}

/// A connection's place with a worker, until dropped.
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
    fn goes_to_the_least_busy_if_that_is_worth_it() {
        let choose = |own, loads: &[usize]| choose(own, loads.iter().copied());
        assert_eq!(choose(0, &[1, 0]), 0);
        assert_eq!(choose(0, &[2, 0]), 1);
        assert_eq!(choose(1, &[0, 7, 3]), 0);
        assert_eq!(choose(0, &[8, 3]), 1);
        assert_eq!(choose(0, &[12, 8]), 0);
    }

    #[test]
    fn long_flows_end_up_side_by_side() {
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
