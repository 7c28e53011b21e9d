// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pools of idle legs to peers, opened before a client needs them: connected, TLS handshake done,
//! no request sent yet. A request over such a leg saves a round trip.
//!
//! Each worker has its own pools. An idle leg costs one descriptor, about 4 KiB of kernel memory at
//! each end (20 KiB more with TLS), and one of the connections of the peer's `--max-connections`.

use crate::peers::{
    current::{CurrentSetup, Setup},
    health::{double_backoff, jitter, jittered},
    peer::Peer,
};
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
use tracing::{debug, warn};

/// Pools of one worker, by peer name.
#[derive(Debug, Default)]
pub(crate) struct PeerPools(Mutex<HashMap<String, PoolTask>>);

/// Pool of one peer, and the task that maintains it.
#[derive(Debug)]
struct PoolTask {
    pool: Arc<IdlePool>,
    task: JoinHandle<()>,
}

impl Drop for PoolTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Interval of the maintenance without an event: for the age of legs, a changed configuration, and
/// a peer that is up again.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);

/// Number of early closes in a row at which a line is logged. Restarts of the peer cause fewer.
const LOGGED_EARLY_CLOSES: u32 = 3;

impl PeerPools {
    /// Returns an idle leg over which nothing has been received. `None`: the caller must connect.
    pub(crate) fn take(&self, peer: &Arc<Peer>) -> Option<Leg> {
        if peer.config.pool == 0 {
            return None;
        }
        let name = &peer.config.name;
        let pool = self.pools().get(name).map(|t| t.pool.clone());
        let pool = pool.filter(|pool| Arc::ptr_eq(&pool.peer, peer));
        let leg = pool.and_then(|pool| pool.take());
        peer.count_pool_lookup(leg.is_some());
        leg
    }

    /// Maintains the pools of the current configuration until the relay stops accepting.
    pub(crate) async fn maintain(&self, current: &CurrentSetup) {
        loop {
            let Setup { config, peers } = current.get();
            let wanted = peers.all().filter(|peer| peer.config.pool > 0);
            self.update(wanted.cloned().collect(), config.limits.connect_timeout);
            drop((config, peers));
            sleep(MAINTENANCE_INTERVAL).await;
        }
    }

    /// Closes all idle legs.
    pub(crate) fn clear(&self) {
        self.pools().clear();
    }

    fn update(&self, wanted: Vec<Arc<Peer>>, connect_timeout: Duration) {
        let mut pools = self.pools();
        pools.retain(|_, task| wanted.iter().any(|w| Arc::ptr_eq(w, &task.pool.peer)));
        for peer in wanted {
            let name = peer.config.name.clone();
            let task = || PoolTask::new(peer, connect_timeout);
            pools.entry(name).or_insert_with(task);
        }
    }

    fn pools(&self) -> MutexGuard<'_, HashMap<String, PoolTask>> {
        self.0.lock()
    }
}

impl PoolTask {
    fn new(peer: Arc<Peer>, connect_timeout: Duration) -> Self {
        let pool = Arc::new(IdlePool {
            peer,
            connect_timeout,
            idle: Mutex::default(),
            taken: Notify::new(),
        });
        let task = tokio::spawn(maintain_pool(pool.clone()));
        Self { pool, task }
    }
}

/// Idle legs to one peer, `peer.pool` at most.
#[derive(Debug)]
struct IdlePool {
    peer: Arc<Peer>,
    /// Timeout for connecting.
    connect_timeout: Duration,
    idle: Mutex<Vec<IdleLeg>>,
    taken: Notify,
}

#[derive(Debug)]
struct IdleLeg {
    leg: Leg,
    since: Instant,
    _count: IdleCount,
}

/// Counts one idle leg of the peer until it is dropped.
#[derive(Debug)]
struct IdleCount(Arc<Peer>);

impl IdleCount {
    fn new(peer: &Arc<Peer>) -> Self {
        peer.state.pool.idle.fetch_add(1, Relaxed);
        Self(peer.clone())
    }
}

impl Drop for IdleCount {
    fn drop(&mut self) {
        self.0.state.pool.idle.fetch_sub(1, Relaxed);
    }
}

impl IdlePool {
    /// Takes the youngest leg that is still quiet: the peer's idle timeout is the furthest away.
    fn take(&self) -> Option<Leg> {
        let mut idle = self.idle();
        let leg = std::iter::from_fn(|| idle.pop()).find(|idle| idle.leg.is_idle());
        drop(idle);
        self.taken.notify_one();
        leg.map(|idle| idle.leg)
    }

    fn insert(&self, leg: Leg) {
        debug!(peer = self.peer.config.name, "pooled leg opened");
        self.idle().push(IdleLeg {
            leg,
            since: Instant::now(),
            _count: IdleCount::new(&self.peer),
        });
    }

    /// Drops legs that have ended, and legs that the peer may soon close as idle. Returns the age
    /// of the oldest leg that ended too early.
    fn evict_ended(&self, now: Instant) -> Option<Duration> {
        let mut ended = None;
        self.idle().retain(|idle| {
            let age = now.duration_since(idle.since);
            let (young, quiet) = (age < self.peer.config.pool_age, idle.leg.is_idle());
            if young && !quiet {
                debug!(peer = self.peer.config.name, age = %longhaul_units::Time::from(age), "pooled leg ended");
                ended = ended.max(Some(age));
            }
            young && quiet
        });
        ended
    }

    /// Has the peer checked. A peer that does not serve this relay is marked as down. If it does
    /// serve, its listener's idle timeout is shorter than configured here, which is logged once.
    async fn diagnose_early_close(&self, backoff: &OpenBackoff) {
        let down = self
            .peer
            .recheck(Instant::now(), self.connect_timeout)
            .await;
        if !down && backoff.early_closes == LOGGED_EARLY_CLOSES {
            let name = &self.peer.config.name;
            let age = longhaul_units::Time::from(backoff.age);
            warn!(
                "peer {name} ends pooled connections after {age}: make pool_age \
                 shorter than idle_timeout of its listener, or pool smaller than its limit on \
                 connections; fewer are opened until they stay open"
            );
        }
    }

    /// Waits until one of the legs is no longer quiet.
    async fn wait_for_event(&self) {
        poll_fn(|cx| {
            let idle = self.idle();
            let ready = idle.iter().map(|idle| idle.leg.poll_read_ready(cx));
            // Every leg must be polled, or it would not wake this task.
            if ready.fold(false, |any, poll| any | poll.is_ready()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    fn missing(&self) -> usize {
        self.peer.config.pool.saturating_sub(self.idle().len())
    }

    fn idle(&self) -> MutexGuard<'_, Vec<IdleLeg>> {
        self.idle.lock()
    }
}

/// Fills the pool and keeps it full. Missing legs are opened in parallel, since one after the other
/// would take a round trip each. No leg is opened shortly after an early close. A peer that is down
/// is left to [`super::check::run_checks`].
async fn maintain_pool(pool: Arc<IdlePool>) {
    let mut opening = JoinSet::new();
    let mut backoff = OpenBackoff::default();
    loop {
        let now = Instant::now();
        let ended = pool.evict_ended(now);
        if ended.is_some_and(|age| backoff.record_close(age, pool.peer.config.pool_age, now)) {
            pool.diagnose_early_close(&backoff).await;
        }
        let may_open = pool.peer.state.health.is_up() && backoff.is_over(now);
        while may_open && opening.len() < pool.missing() {
            let (peer, limit) = (pool.peer.clone(), pool.connect_timeout);
            opening.spawn(async move { peer.open_leg(limit).await });
        }
        select! {
            Some(Ok(Ok(leg))) = opening.join_next() => pool.insert(leg),
            () = pool.taken.notified() => {}
            () = pool.wait_for_event() => {}
            () = sleep(MAINTENANCE_INTERVAL) => {}
        }
    }
}

/// Backoff for opening legs after one has ended. It grows while legs end early.
#[derive(Debug, Default)]
struct OpenBackoff {
    /// Number of early closes in a row.
    early_closes: u32,
    /// Age of the last leg that ended.
    age: Duration,
    until: Option<Instant>,
}

impl OpenBackoff {
    /// Records the age of a leg that has ended. Legs that end during one backoff count once.
    /// Returns whether the peer must be checked.
    fn record_close(&mut self, age: Duration, age_max: Duration, now: Instant) -> bool {
        if !self.is_over(now) {
            return false;
        }
        let before = if age < age_max / 2 {
            self.early_closes
        } else {
            0
        };
        let delay = (0..before.min(5)).fold(MAINTENANCE_INTERVAL, |delay, _| double_backoff(delay));
        self.early_closes = before.saturating_add(1);
        self.age = age;
        self.until = Some(now + jittered(delay, jitter()));
        self.early_closes > 1
    }

    fn is_over(&self, now: Instant) -> bool {
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
        let (mut backoff, mut now) = (OpenBackoff::default(), Instant::now());
        for (round, seconds) in [1, 2, 4, 8, 16, 30, 30].into_iter().enumerate() {
            assert_eq!(backoff.record_close(MS, AGE_MAX, now), round > 0, "{round}");
            assert!(
                !backoff.record_close(MS, AGE_MAX, now + MS),
                "one burst is one round"
            );
            assert!(!backoff.is_over(now + Duration::from_secs(seconds).mul_f64(0.74)));
            now += Duration::from_secs(seconds).mul_f64(1.26);
            assert!(backoff.is_over(now), "{round}");
        }
        assert!(
            !backoff.record_close(AGE_MAX - MS, AGE_MAX, now),
            "it was open for long enough"
        );
        assert!(backoff.is_over(now + MAINTENANCE_INTERVAL.mul_f64(1.26)));
    }
}
