// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pools of idle legs to peers, opened before a client needs them: connected, TLS handshake done,
//! no request sent yet. A request over such a leg saves a round trip.
//!
//! Each worker has its own pools. An idle leg costs one descriptor, about 4 KiB of kernel memory at
//! each end (20 KiB more with TLS), and one of the connections of the peer's `--max-connections`.

use crate::peers::{
    current::{Current, Setup},
    health::{doubled, jitter, jittered},
    peer::Peer,
};
use longhaul_command::errln;
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

/// Pools of one worker, by peer name.
#[derive(Debug, Default)]
pub(crate) struct Ready(Mutex<HashMap<String, Tended>>);

/// Pool of one peer, and the task that maintains it.
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

/// Interval of the maintenance without an event: for the age of legs, a changed configuration, and
/// a peer that is up again.
const PERIOD: Duration = Duration::from_secs(1);

/// Number of early closes in a row at which a line is logged. Restarts of the peer cause fewer.
const EXPLAINED_AT: u32 = 3;

impl Ready {
    /// Returns an idle leg over which nothing has been received. `None`: the caller must connect.
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

    /// Maintains the pools of the current configuration until the relay stops accepting.
    pub(crate) async fn keep(&self, current: &Current) {
        loop {
            let Setup { config, peers } = current.get();
            let wanted = peers.all().filter(|peer| peer.config.pool > 0);
            self.follow(wanted.cloned().collect(), config.limits.connect_timeout);
            drop((config, peers));
            sleep(PERIOD).await;
        }
    }

    /// Closes all idle legs.
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

/// Idle legs to one peer, `peer.pool` at most.
#[derive(Debug)]
struct Stock {
    peer: Arc<Peer>,
    /// Timeout for connecting.
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

/// Counts one idle leg of the peer until it is dropped.
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
    /// Takes the youngest leg that is still quiet: the peer's idle timeout is the furthest away.
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

    /// Drops legs that have ended, and legs that the peer may soon close as idle. Returns the age
    /// of the oldest leg that ended too early.
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

    /// Has the peer checked. A peer that does not serve this relay is marked as down. If it does
    /// serve, its listener's idle timeout is shorter than configured here, which is logged once.
    async fn explain(&self, pauses: &Pauses) {
        let down = self.peer.doubt(Instant::now(), self.limit).await;
        if !down && pauses.vain == EXPLAINED_AT {
            let name = &self.peer.config.name;
            let age = longhaul_units::Time::from(pauses.age);
            errln!(
                "longhaul relay: peer {name} ends ready connections after {age}: make pool_age \
                 shorter than idle_timeout of its listener, or pool smaller than its limit on \
                 connections; fewer are tried until they stay"
            );
        }
    }

    /// Waits until one of the legs is no longer quiet.
    async fn disturbed(&self) {
        poll_fn(|cx| {
            let idle = self.idle();
            let ready = idle.iter().map(|idle| idle.leg.poll_read_ready(cx));
            // Every leg must be polled, or it would not wake this task.
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

/// Fills the pool and keeps it full. Missing legs are opened in parallel, since one after the other
/// would take a round trip each. No leg is opened shortly after an early close. A peer that is down
/// is left to [`super::check::watch`].
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

/// Backoff for opening legs after one has ended. It grows while legs end early.
#[derive(Debug, Default)]
struct Pauses {
    /// Number of early closes in a row.
    vain: u32,
    /// Age of the last leg that ended.
    age: Duration,
    until: Option<Instant>,
}

impl Pauses {
    /// Records the age of a leg that has ended. Legs that end during one backoff count once.
    /// Returns whether the peer must be checked.
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
    fn early_closes_increase_backoff() {
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
            "it was open for long enough"
        );
        assert!(pauses.are_over(now + PERIOD.mul_f64(1.26)));
    }
}
