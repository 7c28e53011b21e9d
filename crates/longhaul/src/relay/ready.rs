// SPDX-License-Identifier: MIT OR Apache-2.0
//! Legs to peers that stand before a client needs them: connected, TLS handshake done, nothing
//! asked yet. A request leaves over one of them without waiting for a round trip.
//!
//! Each worker keeps its own. One costs a descriptor and about 4 KiB of kernel memory at each end
//! (with TLS 20 KiB more), and one of the places of the peer's `--max-connections`.

use super::{Relay, leg::Leg, peer::Peer};
use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    task::Poll,
    time::{Duration, Instant},
};
use tokio::{
    select,
    sync::Notify,
    task::{JoinHandle, JoinSet},
    time::sleep,
};

/// One worker's ready legs, by peer.
#[derive(Debug, Default)]
pub(crate) struct Ready(Mutex<HashMap<String, Tended>>);

/// A stock, and the task that looks after it.
#[derive(Debug)]
struct Tended {
    stock: Arc<Stock>,
    task: JoinHandle<()>,
}

impl Drop for Tended {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How often the stocks are looked at without a reason: for their age, a changed configuration,
/// and a peer that is back.
const PERIOD: Duration = Duration::from_secs(1);

impl Ready {
    /// A leg that nothing has come over yet. `None`: connect.
    pub(crate) fn take(&self, peer: &Arc<Peer>) -> Option<Leg> {
        if peer.pool == 0 {
            return None;
        }
        let stock = self.stocks().get(&peer.name).map(|t| t.stock.clone());
        let stock = stock.filter(|stock| Arc::ptr_eq(&stock.peer, peer));
        let leg = stock.and_then(|stock| stock.take());
        peer.count_taken(leg.is_some());
        leg
    }

    /// Keeps what the configuration of the moment asks for, until the relay stops accepting.
    pub(crate) async fn keep(&self, relay: &Relay) {
        loop {
            let config = relay.config();
            let wanted = config.peers.values().filter(|peer| peer.pool > 0);
            self.follow(wanted.cloned().collect(), config.limits.connect_timeout);
            drop(config);
            sleep(PERIOD).await;
        }
    }

    /// Closes all of them.
    pub(crate) fn clear(&self) {
        self.stocks().clear();
    }

    fn follow(&self, wanted: Vec<Arc<Peer>>, limit: Duration) {
        let mut stocks = self.stocks();
        stocks.retain(|_, tended| wanted.iter().any(|w| Arc::ptr_eq(w, &tended.stock.peer)));
        for peer in wanted {
            let tended = || Tended::new(peer.clone(), limit);
            stocks.entry(peer.name.clone()).or_insert_with(tended);
        }
    }

    fn stocks(&self) -> MutexGuard<'_, HashMap<String, Tended>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tended {
    fn new(peer: Arc<Peer>, limit: Duration) -> Self {
        let stock = Arc::new(Stock {
            peer,
            limit,
            idle: Mutex::default(),
            taken: Notify::new(),
        });
        let task = tokio::spawn(tend(stock.clone()));
        Self { stock, task }
    }
}

/// Ready legs to one peer; at most `peer.pool`.
#[derive(Debug)]
struct Stock {
    peer: Arc<Peer>,
    /// For connecting.
    limit: Duration,
    idle: Mutex<Vec<Idle>>,
    taken: Notify,
}

#[derive(Debug)]
struct Idle {
    leg: Leg,
    since: Instant,
    _counted: Counted,
}

/// One of the peer's ready legs, for as long as this lives.
#[derive(Debug)]
struct Counted(Arc<Peer>);

impl Counted {
    fn new(peer: &Arc<Peer>) -> Self {
        peer.stock.ready.fetch_add(1, Relaxed);
        Self(peer.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.stock.ready.fetch_sub(1, Relaxed);
    }
}

impl Stock {
    /// The youngest that is still quiet: the peer's patience with it lasts longest.
    fn take(&self) -> Option<Leg> {
        let mut idle = self.idle();
        let leg = std::iter::from_fn(|| idle.pop()).find(|idle| idle.leg.is_quiet());
        drop(idle);
        self.taken.notify_one();
        leg.map(|idle| idle.leg)
    }

    fn put(&self, leg: Leg) {
        self.idle().push(Idle {
            leg,
            since: Instant::now(),
            _counted: Counted::new(&self.peer),
        });
    }

    /// Drops what has ended, and what the peer may lose patience with.
    fn sort_out(&self, now: Instant) {
        let age_max = self.peer.pool_age;
        let young = |since: Instant| now.duration_since(since) < age_max;
        self.idle()
            .retain(|idle| young(idle.since) && idle.leg.is_quiet());
    }

    /// Waits until one of them is no longer quiet.
    async fn disturbed(&self) {
        poll_fn(|cx| {
            let idle = self.idle();
            let ready = idle.iter().map(|idle| idle.leg.poll_read_ready(cx));
            // Every one must be asked, or it would not wake this task.
            match ready.fold(false, |any, poll| any | poll.is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    fn missing(&self) -> usize {
        self.peer.pool.saturating_sub(self.idle().len())
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fills the stock and keeps it full. What is missing is opened at once, since one after the other
/// would take a round trip each; a peer that is down is left to [`super::peer::watch`].
async fn tend(stock: Arc<Stock>) {
    let mut opening = JoinSet::new();
    loop {
        stock.sort_out(Instant::now());
        while stock.peer.health.is_up() && opening.len() < stock.missing() {
            let (peer, limit) = (stock.peer.clone(), stock.limit);
            opening.spawn(async move { peer.reach(limit).await });
        }
        select! {
            Some(Ok(Ok(leg))) = opening.join_next() => stock.put(leg),
            () = stock.taken.notified() => {}
            // Not at once: a peer that ends every ready leg must not be asked without a pause.
            () = stock.disturbed() => sleep(PERIOD).await,
            () = sleep(PERIOD) => {}
        }
    }
}
