// SPDX-License-Identifier: MIT OR Apache-2.0
//! Supervises all connections: their memory, receivers that take nothing, and idle or long tunnels. One
//! task checks all of them, so that a connection needs no timer of its own.

use crate::{
    process::workers::registry::Registry,
    relay::Relay,
    session::{CutReason, Session},
};
use longhaul_admission::{
    eviction::{self, ConnectionMemory, WaitingClients},
    memory::PERIOD,
};
use std::{
    collections::HashSet,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{task::yield_now, time::sleep};

const INTERVAL_PER_CONNECTION: Duration = Duration::from_micros(100);

/// Time after which a stalled or idle connection is evicted first when memory is short.
const INACTIVE_AFTER: Duration = Duration::from_secs(10);

/// Time that a client may wait for its own connections to free memory. After that, other clients
/// may wait behind it in listen queues, which can't be inspected.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Interval of the checks for stalled receivers.
const STALL_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Connections that are checked before other tasks of the supervisor run.
const SESSIONS_PER_YIELD: usize = 64;

/// Sums up the memory of all connections, and evicts connections over the budget, without end.
pub(crate) async fn enforce_memory(relay: &Relay, registry: &Registry) {
    let mut last_stall_check = Instant::now();
    loop {
        let sessions = registry.all();
        let connections = sessions.len() as u32;
        let now = Instant::now();
        let usage_of = |session: &Arc<Session>| session.memory_usage(now, INACTIVE_AFTER);
        let usages = sessions.iter().map(usage_of).collect();
        drop(sessions);
        evict(relay, registry, usages);
        if now - last_stall_check >= STALL_CHECK_INTERVAL {
            last_stall_check = now;
            cut_stalled(registry).await;
        }
        sleep(PERIOD.max(INTERVAL_PER_CONNECTION * connections)).await;
    }
}

fn evict(relay: &Relay, registry: &Registry, usages: Vec<ConnectionMemory>) {
    let held: u64 = usages.iter().map(|holding| holding.bytes).sum();
    let addresses: Vec<IpAddr> = relay.memory.waiting().drain().collect();
    let waiting = WaitingClients {
        waited_long: relay.memory.time_waited(!addresses.is_empty()) >= WAIT_MAX,
        addresses: &addresses,
    };
    let share = relay.config().limits.memory_per_client;
    let chosen = match relay.memory.bounds(share) {
        Some(bounds) => eviction::choose(usages, bounds, waiting),
        None => Vec::new(),
    };
    let numbers: HashSet<u64> = chosen.iter().map(|chosen| chosen.number).collect();
    if !numbers.is_empty() {
        let sessions = registry.all().into_iter();
        let chosen = sessions.filter(|session| numbers.contains(&session.records.number));
        chosen.for_each(|session| registry.cut(&session, CutReason::Memory));
    }
    relay.memory.log_eviction(&chosen);
    let freed: u64 = chosen.iter().map(|holding| holding.bytes).sum();
    relay.memory.set(held - freed);
}

/// Updates the stall of each connection, and cuts those stalled for too long.
async fn cut_stalled(registry: &Registry) {
    visit(registry, |session| {
        let now = Instant::now();
        session.update_stalls(now);
        if session.stalled_for(now) >= session.setup.config.limits.stall_timeout {
            registry.cut(session, CutReason::Stalled);
        }
    })
    .await;
}

/// Calls `action` for each connection that is still open then. Other tasks of the supervisor run in between.
async fn visit(registry: &Registry, action: impl Fn(&Session)) {
    let sessions = registry.all();
    // Weak references: a connection that ends in the meantime must close at once.
    let sessions: Vec<_> = sessions.iter().map(Arc::downgrade).collect();
    for (n, session) in sessions.into_iter().enumerate() {
        if n % SESSIONS_PER_YIELD == SESSIONS_PER_YIELD - 1 {
            yield_now().await;
        }
        if let Some(session) = session.upgrade() {
            action(&session);
        }
    }
}

/// Time between two looks at the tunnels whose records may be due: a record is that late at most. Without an interval
/// of records, a reload may set one.
const RECORD_CHECK_INTERVAL: Duration = Duration::from_secs(1);
const RECORD_CHECK_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// Writes records of open tunnels to the access log, without end.
pub(crate) async fn record_open_tunnels(relay: &Relay, registry: &Registry) {
    loop {
        let interval = relay.config().access_log_interval;
        sleep(interval.map_or(RECORD_CHECK_INTERVAL_MAX, |_| RECORD_CHECK_INTERVAL)).await;
        if relay.access_log.is_enabled() {
            visit(registry, |session| session.record_if_due(Instant::now())).await;
        }
    }
}

/// Checks during the idle timeout of a tunnel. An idle tunnel is found at most a quarter of the
/// timeout late, and at most a minute.
const CHECKS_PER_TIMEOUT: u32 = 4;
const TUNNEL_CHECK_INTERVAL_MIN: Duration = Duration::from_millis(50);
const TUNNEL_CHECK_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Cuts idle tunnels, without end.
pub(crate) async fn cut_idle_tunnels(relay: &Relay, registry: &Registry) {
    loop {
        let limit = relay.config().limits.tunnel_idle_timeout;
        let period = limit.map_or(TUNNEL_CHECK_INTERVAL_MAX, |limit| {
            limit / CHECKS_PER_TIMEOUT
        });
        sleep(period.clamp(TUNNEL_CHECK_INTERVAL_MIN, TUNNEL_CHECK_INTERVAL_MAX)).await;
        let now = Instant::now();
        for session in registry.all() {
            if session.is_idle(now) {
                registry.cut(&session, CutReason::Idle);
            }
        }
    }
}
