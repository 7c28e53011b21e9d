// SPDX-License-Identifier: MIT OR Apache-2.0
//! Supervises all connections: their memory, receivers that take nothing, and idle tunnels. One
//! task checks all of them, so that a connection needs no timer of its own.

use crate::{
    process::workers::registry::Registry,
    relay::Relay,
    session::{Session, WhyCut},
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

const PERIOD_PER_CONNECTION: Duration = Duration::from_micros(100);

/// Stall after which a connection is evicted first when memory is short.
const STILL: Duration = Duration::from_secs(10);

/// Time that a client may wait for its own connections to free memory. After that, other clients
/// may wait behind it in listen queues, which can't be inspected.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Interval of the checks for stalled receivers.
const LOOK_PERIOD: Duration = Duration::from_secs(2);

/// Connections that are checked before other tasks of the supervisor run.
const LOOKS_PER_TURN: usize = 64;

/// Sums up the memory of all connections, and evicts connections over the budget, without end.
pub(crate) async fn memory(relay: &Relay, registry: &Registry) {
    let mut looked = Instant::now();
    loop {
        let sessions = registry.all();
        let connections = sessions.len() as u32;
        let now = Instant::now();
        let holding = |session: &Arc<Session>| session.holding(now, STILL);
        let holdings = sessions.iter().map(holding).collect();
        drop(sessions);
        make_room(relay, registry, holdings);
        if now - looked >= LOOK_PERIOD {
            looked = now;
            look(registry).await;
        }
        sleep(PERIOD.max(PERIOD_PER_CONNECTION * connections)).await;
    }
}

fn make_room(relay: &Relay, registry: &Registry, holdings: Vec<ConnectionMemory>) {
    let held: u64 = holdings.iter().map(|holding| holding.bytes).sum();
    let addresses: Vec<IpAddr> = relay.memory.waiting().drain().collect();
    let waiting = WaitingClients {
        for_long: relay.memory.time_waited(!addresses.is_empty()) >= WAIT_MAX,
        addresses: &addresses,
    };
    let share = relay.config().limits.memory_per_client;
    let chosen = match relay.memory.bounds(share) {
        Some(bounds) => eviction::choose(holdings, bounds, waiting),
        None => Vec::new(),
    };
    let numbers: HashSet<u64> = chosen.iter().map(|chosen| chosen.number).collect();
    if !numbers.is_empty() {
        let sessions = registry.all().into_iter();
        let chosen = sessions.filter(|session| numbers.contains(&session.number));
        chosen.for_each(|session| registry.cut_one(&session, WhyCut::Memory));
    }
    relay.memory.log_eviction(&chosen);
    let freed: u64 = chosen.iter().map(|holding| holding.bytes).sum();
    relay.memory.set(held - freed);
}

/// Updates the stall of each connection, and cuts those stalled for too long.
async fn look(registry: &Registry) {
    let sessions = registry.all();
    // Weak references: a connection that ends in the meantime must close at once.
    let sessions: Vec<_> = sessions.iter().map(Arc::downgrade).collect();
    for (n, session) in sessions.into_iter().enumerate() {
        if n % LOOKS_PER_TURN == LOOKS_PER_TURN - 1 {
            yield_now().await;
        }
        if let Some(session) = session.upgrade() {
            let now = Instant::now();
            session.look(now);
            if session.stands_still(now) >= session.config.limits.stall_timeout {
                registry.cut_one(&session, WhyCut::TookNothing);
            }
        }
    }
}

/// Checks during the idle timeout of a tunnel. An idle tunnel is found at most a quarter of the
/// timeout late, and at most a minute.
const LOOKS: u32 = 4;
const TUNNEL_PERIOD_MIN: Duration = Duration::from_millis(50);
const TUNNEL_PERIOD_MAX: Duration = Duration::from_secs(60);

/// Cuts idle tunnels, without end.
pub(crate) async fn idle_tunnels(relay: &Relay, registry: &Registry) {
    loop {
        let limit = relay.config().limits.tunnel_idle_timeout;
        let period = limit.map_or(TUNNEL_PERIOD_MAX, |limit| limit / LOOKS);
        sleep(period.clamp(TUNNEL_PERIOD_MIN, TUNNEL_PERIOD_MAX)).await;
        let now = Instant::now();
        for session in registry.all() {
            if session.is_idle(now) {
                registry.cut_one(&session, WhyCut::Idle);
            }
        }
    }
}
