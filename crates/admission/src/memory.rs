// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory budget. Every [`PERIOD`], the relay adds up the bytes of all connections in socket buffers and pipes.
//! While the sum reaches the budget, new connections wait, and the connections that [`crate::eviction`] chooses are
//! ended.

use crate::{
    eviction::{Bounds, ConnectionMemory},
    shared_limit::{LogLine, SharedLimit},
};
use longhaul_protocol::networks::network;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use std::{
    collections::HashSet,
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};
use tokio::{sync::watch, time::timeout};
use tracing::{info, warn};

/// The memory that sockets may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBudget {
    /// The number of bytes.
    pub bytes: u64,
    /// The source of the number.
    pub basis: Basis,
}

/// The source of a memory budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// `limits.memory` or `--memory`.
    Configured,
    /// The second value of net.ipv4.tcp_mem.
    TcpMem,
    /// The limit of a control group.
    Cgroup,
    /// The memory of the machine.
    Machine,
}

/// Returns the configured budget, or the default: see [`Basis`]. `None` means no bound: nothing is configured, and no
/// size of memory can be read.
pub fn budget(configured: Option<u64>) -> Option<MemoryBudget> {
    match configured {
        Some(bytes) => Some(MemoryBudget {
            bytes,
            basis: Basis::Configured,
        }),
        None => default_budget(),
    }
}

/// The memory in use, and the clients that wait for it.
#[derive(Debug)]
pub struct Memory {
    /// Budget in bytes; `None` means no bound.
    budget: Option<u64>,
    /// The last sum, in bytes.
    held: AtomicU64,
    /// Whether the last sum is below the budget.
    room: watch::Sender<bool>,
    /// Clients whose connections wait for room.
    waiting: Mutex<HashSet<IpAddr>>,
    /// Time since which at least one client has waited.
    waited_since: Mutex<Option<Instant>>,
    /// State of the budget, and counts of waits for it.
    pub limit: SharedLimit,
    eviction_log: Mutex<EvictionLog>,
}

/// Log of evictions. Clients can use up the budget as often as they like; the time bounds the number of lines.
#[derive(Debug, Default)]
struct EvictionLog {
    /// The time of the last line.
    last: Option<Instant>,
    /// Number of connections evicted since that line.
    unlogged: usize,
}

/// Shortest time between two log lines about evictions.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Shortest time between two such sums of memory. With many connections the relay waits longer, so that the sums take
/// about a hundredth of one core at most.
pub const PERIOD: Duration = Duration::from_millis(100);

impl Memory {
    /// Creates the state for a budget in bytes; `None` means no bound.
    pub fn new(budget: Option<u64>) -> Self {
        Self {
            budget,
            held: AtomicU64::new(0),
            room: watch::Sender::new(true),
            waiting: Mutex::default(),
            waited_since: Mutex::default(),
            limit: SharedLimit::default(),
            eviction_log: Mutex::default(),
        }
    }

    /// Waits until there is room for another connection of `client`.
    pub async fn wait_for_room(&self, client: IpAddr) {
        let client = network(client);
        if self.is_exhausted() {
            self.limit.count_wait();
        }
        // Each sum empties the set of waiting clients, so a client that went away does not stay in it for long.
        while !*self.room.borrow() {
            self.waiting().insert(client);
            let mut room = self.room.subscribe();
            // An error would mean that the sender is gone, but `self` is the sender.
            let _ = timeout(PERIOD, room.wait_for(|room| *room)).await;
        }
    }

    /// Returns the clients that have waited since the last sum. The caller empties the set at each sum.
    pub fn waiting(&self) -> MutexGuard<'_, HashSet<IpAddr>> {
        self.waiting.lock()
    }

    /// Returns the time for which clients have waited without a break. `is_waiting` tells whether a client waits now.
    pub fn time_waited(&self, is_waiting: bool) -> Duration {
        let mut since = self.waited_since.lock();
        let begun = since.unwrap_or_else(Instant::now);
        *since = is_waiting.then_some(begun);
        begun.elapsed()
    }

    /// Returns the last sum in bytes, and the budget.
    pub fn read(&self) -> (u64, Option<u64>) {
        (self.held.load(Relaxed), self.budget)
    }

    /// Returns whether new connections must wait.
    pub fn is_exhausted(&self) -> bool {
        !*self.room.borrow()
    }

    /// Sets the sum of the bytes that all connections hold.
    pub fn set(&self, held: u64) {
        self.held.store(held, Relaxed);
        let budget = self.budget.unwrap_or(u64::MAX);
        let room = self.budget.is_none() || held < budget;
        self.room
            .send_if_modified(|current| std::mem::replace(current, room) != room);
        match self.limit.set(!room, Instant::now()) {
            Some(LogLine::Over) => info!("memory below its budget: accepting again"),
            Some(LogLine::Reached) => warn!(
                "{held} bytes in buffers, budget {budget} (limits.memory): new \
                 connections wait"
            ),
            None => {}
        }
    }

    /// Returns the bounds for an eviction; `None` without a budget. `share` is the share of one client in bytes; by
    /// default, it is a quarter of the budget.
    pub fn bounds(&self, share: Option<u64>) -> Option<Bounds> {
        let budget = self.budget?;
        let share = share.unwrap_or(budget / CLIENT_SHARE_DIVISOR);
        Some(Bounds { budget, share })
    }

    /// Logs the number of evicted connections, at most one line a minute.
    pub fn log_eviction(&self, evicted: &[ConnectionMemory]) {
        let now = Instant::now();
        let mut log = self.eviction_log.lock();
        log.unlogged += evicted.len();
        let is_due = log.last.is_none_or(|at| now - at >= LOG_INTERVAL);
        if let (Some(first), true) = (evicted.first(), is_due) {
            warn!(
                "memory is short (limits.memory): closed {} connections that stall or whose clients \
                 hold most, first one of {}",
                log.unlogged, first.client_network
            );
            log.last = Some(now);
            log.unlogged = 0;
        }
    }
}

/// Divisor of the budget for the default share of one client: a quarter.
const CLIENT_SHARE_DIVISOR: u64 = 4;

/// Returns half of the threshold at which the kernel puts all TCP sockets under memory pressure (net.ipv4.tcp_mem,
/// second value, in pages). The threshold applies in network namespaces, too, but can't be read there. It is then taken
/// to be a sixteenth of the machine's memory. The budget is at most a quarter of a control group's limit, because this
/// limit also counts socket buffers.
fn default_budget() -> Option<MemoryBudget> {
    let page = rustix::param::page_size() as u64;
    let pressure = longhaul_linux::sysctl::read_here("net.ipv4.tcp_mem").ok();
    let pages = pressure.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    choose(
        pages.map(|pages| pages.saturating_mul(page)),
        longhaul_linux::memory::machine_bytes(),
        longhaul_linux::memory::cgroup_limit(),
    )
}

/// Divisor of the machine's memory for the default budget: a thirty-second is half of the kernel's own threshold.
const MACHINE_DIVISOR: u64 = 32;
/// Divisor of a control group's limit for the default budget. The group is taken to have only this program.
const CGROUP_DIVISOR: u64 = 4;

fn choose(pressure: Option<u64>, machine: u64, cgroup: Option<u64>) -> Option<MemoryBudget> {
    let kernel = pressure.map(|bytes| (bytes / 2, Basis::TcpMem));
    let machine = (machine > 0).then_some((machine / MACHINE_DIVISOR, Basis::Machine));
    let cgroup = cgroup.map(|bytes| (bytes / CGROUP_DIVISOR, Basis::Cgroup));
    let choices = [kernel.or(machine), cgroup].into_iter().flatten();
    let least = choices.min_by_key(|(bytes, _)| *bytes);
    least.map(|(bytes, basis)| MemoryBudget { bytes, basis })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose_budget(
        pressure: Option<u64>,
        machine: u64,
        cgroup: Option<u64>,
    ) -> Option<(u64, Basis)> {
        choose(pressure, machine, cgroup).map(|budget| (budget.bytes, budget.basis))
    }

    #[test]
    fn derives_the_default_from_the_least_limit() {
        let half = Some((50, Basis::TcpMem));
        assert_eq!(choose_budget(Some(100), 1 << 20, None), half);
        assert_eq!(choose_budget(None, 3200, None), Some((100, Basis::Machine)));
        assert_eq!(
            choose_budget(Some(100), 3200, Some(80)),
            Some((20, Basis::Cgroup))
        );
        assert_eq!(choose_budget(Some(100), 3200, Some(4000)), half);
        assert_eq!(
            choose_budget(None, 0, Some(400)),
            Some((100, Basis::Cgroup))
        );
        assert_eq!(choose_budget(None, 0, None), None);
    }

    #[test]
    fn has_room_below_the_budget_or_without_one() {
        let memory = Memory::new(None);
        memory.set(u64::MAX);
        assert!(!memory.is_exhausted());
        let memory = Memory::new(Some(10));
        memory.set(9);
        assert!(!memory.is_exhausted());
        memory.set(10);
        assert!(memory.is_exhausted());
    }
}
