// SPDX-License-Identifier: MIT OR Apache-2.0
//! Legs to peers that stand before a client needs them: connected, TLS handshake done, nothing
//! asked yet. A request leaves over one of them without waiting for a round trip.
//!
//! Each worker keeps its own. One costs a descriptor and about 4 KiB of kernel memory at each end
//! (with TLS 20 KiB more), and one of the places of the peer's `--max-connections`.

use crate::peers::{
    current::{Current, Setup},
    health::{doubled, jitter, jittered},
    peer::Peer,
};
use longhaul_command::note;
use longhaul_transport::leg::Leg;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{Arc, atomic::Ordering::Relaxed},
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

/// The time in a row that legs end young at which it is said: restarts of the peer are none.
const EXPLAINED_AT: u32 = 3;

impl Ready {
    /// A leg that nothing has come over yet. `None`: connect.
    pub(crate) fn take(&self, peer: &Arc<Peer>) -> Option<Leg> {
        if peer.config.pool == 0 {
            return None;
        }
        let name = &peer.config.name;
        let stock = self.stocks().get(name).map(|t| t.stock.clone());
        let stock = stock.filter(|stock| Arc::ptr_eq(&stock.peer, peer));
        let leg = stock.and_then(|stock| stock.take());
        peer.count_taken(leg.is_some());
        leg
    }

    /// Keeps what the configuration of the moment asks for, until the relay stops accepting.
    pub(crate) async fn keep(&self, current: &Current) {
        loop {
            let Setup { config, peers } = current.get();
            let wanted = peers.all().filter(|peer| peer.config.pool > 0);
            self.follow(wanted.cloned().collect(), config.limits.connect_timeout);
            drop((config, peers));
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
            let name = peer.config.name.clone();
            let tended = || Tended::new(peer, limit);
            stocks.entry(name).or_insert_with(tended);
        }
    }

    fn stocks(&self) -> MutexGuard<'_, HashMap<String, Tended>> {
        self.0.lock()
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
        peer.state.stock.ready.fetch_add(1, Relaxed);
        Self(peer.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.state.stock.ready.fetch_sub(1, Relaxed);
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

    /// Drops what has ended, and what the peer may lose patience with. Returns the age of the oldest
    /// that has ended before its time.
    fn sort_out(&self, now: Instant) -> Option<Duration> {
        let mut ended = None;
        self.idle().retain(|idle| {
            let age = now.duration_since(idle.since);
            let (young, quiet) = (age < self.peer.config.pool_age, idle.leg.is_quiet());
            if young && !quiet {
                ended = ended.max(Some(age));
            }
            young && quiet
        });
        ended
    }

    /// Has the peer checked, which is down if it does not serve this relay. If it does, its listener
    /// has less patience than this side believes: that is said once.
    async fn explain(&self, pauses: &Pauses) {
        let down = self.peer.doubt(Instant::now(), self.limit).await;
        if !down && pauses.vain == EXPLAINED_AT {
            let name = &self.peer.config.name;
            let age = longhaul_units::Time::from(pauses.age);
            note!(
                "longhaul relay: peer {name} ends ready connections after {age}: make pool_age \
                 shorter than idle_timeout of its listener, or pool smaller than its limit on \
                 connections; fewer are tried until they stay"
            );
        }
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
        self.peer.config.pool.saturating_sub(self.idle().len())
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock()
    }
}

/// Fills the stock and keeps it full. What is missing is opened at once, since one after the other
/// would take a round trip each, but not while legs have just ended; a peer that is down is left to
/// [`super::check::watch`].
async fn tend(stock: Arc<Stock>) {
    let mut opening = JoinSet::new();
    let mut pauses = Pauses::default();
    loop {
        let now = Instant::now();
        let ended = stock.sort_out(now);
        if ended.is_some_and(|age| pauses.note(age, stock.peer.config.pool_age, now)) {
            stock.explain(&pauses).await;
        }
        let may_open = stock.peer.state.health.is_up() && pauses.are_over(now);
        while may_open && opening.len() < stock.missing() {
            let (peer, limit) = (stock.peer.clone(), stock.limit);
            opening.spawn(async move { peer.reach(limit).await });
        }
        select! {
            Some(Ok(Ok(leg))) = opening.join_next() => stock.put(leg),
            () = stock.taken.notified() => {}
            () = stock.disturbed() => {}
            () = sleep(PERIOD) => {}
        }
    }
}

/// How long no leg is opened after one has ended: longer each time, while legs don't get old.
#[derive(Debug, Default)]
struct Pauses {
    /// Times in a row that legs ended young.
    vain: u32,
    /// The age of the last one.
    age: Duration,
    until: Option<Instant>,
}

impl Pauses {
    /// Notes the age at which a leg has ended; those that end in one pause count once. Returns
    /// whether that must be looked into.
    fn note(&mut self, age: Duration, age_max: Duration, now: Instant) -> bool {
        if !self.are_over(now) {
            return false;
        }
        let before = match age < age_max / 2 {
            true => self.vain,
            false => 0,
        };
        let pause = (0..before.min(5)).fold(PERIOD, |pause, _| doubled(pause));
        self.vain = before.saturating_add(1);
        self.age = age;
        self.until = Some(now + jittered(pause, jitter()));
        self.vain > 1
    }

    fn are_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const AGE_MAX: Duration = Duration::from_secs(60);

    #[test]
    fn legs_that_end_young_are_replaced_more_and_more_rarely() {
        let (mut pauses, mut now) = (Pauses::default(), Instant::now());
        for (round, seconds) in [1, 2, 4, 8, 16, 30, 30].into_iter().enumerate() {
            assert_eq!(pauses.note(MS, AGE_MAX, now), round > 0, "{round}");
            assert!(
                !pauses.note(MS, AGE_MAX, now + MS),
                "one burst is one round"
            );
            assert!(!pauses.are_over(now + Duration::from_secs(seconds).mul_f64(0.74)));
            now += Duration::from_secs(seconds).mul_f64(1.26);
            assert!(pauses.are_over(now), "{round}");
        }
        assert!(
            !pauses.note(AGE_MAX - MS, AGE_MAX, now),
            "it stood long enough"
        );
        assert!(pauses.are_over(now + PERIOD.mul_f64(1.26)));
    }
}
