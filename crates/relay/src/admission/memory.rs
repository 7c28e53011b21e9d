// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory budget: what all legs hold in socket buffers and pipes is added up now and then, and
//! while it is over the budget no new connection is accepted, and those end that [`super::victims`] chooses.

use crate::admission::victims::{Bounds, Holding};
use longhaul_command::note;
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

/// What sockets may hold, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) bytes: u64,
    pub(crate) basis: Basis,
}

/// What a budget follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Basis {
    /// `limits.memory` or `--memory`.
    Configured,
    /// net.ipv4.tcp_mem's second value.
    TcpMem,
    /// The limit of a control group.
    Cgroup,
    /// The machine's memory.
    Machine,
}

/// What is configured, or the default.
pub(crate) fn budget(configured: Option<u64>) -> Option<Budget> {
    match configured {
        Some(bytes) => Some(Budget {
            bytes,
            basis: Basis::Configured,
        }),
        None => default_budget(),
    }
}

/// What is held, and whether there is room for more.
#[derive(Debug)]
pub(crate) struct Memory {
    /// `None` is no bound.
    budget: Option<u64>,
    held: AtomicU64,
    room: watch::Sender<bool>,
    /// Clients whose connections wait for room.
    waiting: Mutex<HashSet<IpAddr>>,
    /// Since when somebody has.
    waited_since: Mutex<Option<Instant>>,
    lines: Mutex<Lines>,
}

/// What was said on stderr: clients decide when the budget is used up, but not how often it is said.
#[derive(Debug, Default)]
struct Lines {
    /// When it was said last that new connections wait, and whether it was said that they don't.
    wait: Option<(Instant, bool)>,
    /// When it was said last that connections were cut.
    cut: Option<Instant>,
    /// Connections cut since.
    uncounted: usize,
}

/// Time between two lines on stderr about the same.
const LINES_PERIOD: Duration = Duration::from_secs(60);

/// Time between two sums; with many connections it grows, so that adding up takes about a
/// hundredth of one core at the most.
pub(crate) const PERIOD: Duration = Duration::from_millis(100);
impl Memory {
    pub(crate) fn new(budget: Option<u64>) -> Self {
        Self {
            budget,
            held: AtomicU64::new(0),
            room: watch::Sender::new(true),
            waiting: Mutex::default(),
            waited_since: Mutex::default(),
            lines: Mutex::default(),
        }
    }

    /// Returns once there is room for another connection of `client`.
    pub(crate) async fn room(&self, client: IpAddr) {
        let client = network(client);
        // Each sum takes those that wait, so that one that went away is not among them for long.
        while !*self.room.borrow() {
            self.waiting().insert(client);
            let mut room = self.room.subscribe();
            // An error would mean that the sender is gone, but `self` is the sender.
            let _ = timeout(PERIOD, room.wait_for(|room| *room)).await;
        }
    }

    pub(crate) fn waiting(&self) -> MutexGuard<'_, HashSet<IpAddr>> {
        self.waiting.lock()
    }

    /// How long somebody has waited without a break, if somebody `waits` now.
    pub(crate) fn have_waited(&self, waits: bool) -> Duration {
        let mut since = self.waited_since.lock();
        let begun = since.unwrap_or_else(Instant::now);
        *since = waits.then_some(begun);
        begun.elapsed()
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock()
    }

    /// Bytes held at the last sum, and the budget.
    pub(crate) fn read(&self) -> (u64, Option<u64>) {
        (self.held.load(Relaxed), self.budget)
    }

    /// Whether new connections wait.
    pub(crate) fn is_exhausted(&self) -> bool {
        !*self.room.borrow()
    }

    pub(crate) fn set(&self, held: u64) {
        self.held.store(held, Relaxed);
        let budget = self.budget.unwrap_or(u64::MAX);
        let room = self.budget.is_none() || held < budget;
        let changed = self
            .room
            .send_if_modified(|now| std::mem::replace(now, room) != room);
        if changed && self.lines().has_news(room, Instant::now()) {
            match room {
                true => note!("longhaul relay: memory below its budget: accepting again"),
                false => note!(
                    "longhaul relay: {held} bytes in buffers, budget {budget} (limits.memory): new \
                     connections wait"
                ),
            }
        }
    }

    /// What a client may hold once the budget is used up.
    pub(crate) fn bounds(&self, share: Option<u64>) -> Option<Bounds> {
        let budget = self.budget?;
        let share = share.unwrap_or(budget / SHARE_DEFAULT);
        Some(Bounds { budget, share })
    }

    pub(crate) fn note_cut(&self, cut: &[Holding]) {
        let now = Instant::now();
        let mut lines = self.lines();
        lines.uncounted += cut.len();
        let is_due = lines.cut.is_none_or(|at| now - at >= LINES_PERIOD);
        if let (Some(first), true) = (cut.first(), is_due) {
            note!(
                "longhaul relay: memory is short (limits.memory): cut {} connections of clients that \
                 hold most or take nothing, {} first",
                lines.uncounted,
                first.holder
            );
            lines.cut = Some(now);
            lines.uncounted = 0;
        }
    }
}

impl Lines {
    /// Whether to say that there is room, or none.
    fn has_news(&mut self, room: bool, now: Instant) -> bool {
        match (room, self.wait) {
            (true, Some((at, false))) => {
                self.wait = Some((at, true));
                true
            }
            (true, _) => false,
            (false, Some((at, _))) if now - at < LINES_PERIOD => false,
            (false, _) => {
                self.wait = Some((now, false));
                true
            }
        }
    }
}

/// The part of the budget that a client may hold for itself once it is used up.
const SHARE_DEFAULT: u64 = 4;

/// Half of the mark at which the kernel begins to press all of its TCP sockets
/// (net.ipv4.tcp_mem, second value, in pages). A network namespace of its own does not show it, but
/// is under it all the same: the kernel makes it a sixteenth of the machine's memory. Where a control
/// group has a limit, no more than a quarter of that, since sockets count there too.
/// `None` is no bound: nothing of it could be read.
fn default_budget() -> Option<Budget> {
    let page = rustix::param::page_size() as u64;
    let mark = longhaul_linux::sysctl::read_here("net.ipv4.tcp_mem").ok();
    let pages = mark.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    choose(
        pages.map(|pages| pages.saturating_mul(page)),
        longhaul_linux::memory::of_machine(),
        longhaul_linux::memory::of_cgroup(),
    )
}

/// What sockets may hold of a machine's memory: half of the kernel's own mark.
const MACHINE_SHARE: u64 = 32;
/// What sockets may hold of a control group's memory, which is for this program alone.
const CGROUP_SHARE: u64 = 4;

fn choose(mark: Option<u64>, machine: u64, cgroup: Option<u64>) -> Option<Budget> {
    let kernel = mark.map(|bytes| (bytes / 2, Basis::TcpMem));
    let machine = (machine > 0).then_some((machine / MACHINE_SHARE, Basis::Machine));
    let cgroup = cgroup.map(|bytes| (bytes / CGROUP_SHARE, Basis::Cgroup));
    let choices = [kernel.or(machine), cgroup].into_iter().flatten();
    let least = choices.min_by_key(|(bytes, _)| *bytes);
    least.map(|(bytes, basis)| Budget { bytes, basis })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(mark: Option<u64>, machine: u64, cgroup: Option<u64>) -> Option<(u64, Basis)> {
        choose(mark, machine, cgroup).map(|budget| (budget.bytes, budget.basis))
    }

    #[test]
    fn the_default_is_a_share_of_what_there_is() {
        let half = Some((50, Basis::TcpMem));
        assert_eq!(chosen(Some(100), 1 << 20, None), half);
        assert_eq!(chosen(None, 3200, None), Some((100, Basis::Machine)));
        assert_eq!(chosen(Some(100), 3200, Some(80)), Some((20, Basis::Cgroup)));
        assert_eq!(chosen(Some(100), 3200, Some(4000)), half);
        assert_eq!(chosen(None, 0, Some(400)), Some((100, Basis::Cgroup)));
        assert_eq!(chosen(None, 0, None), None);
    }

    #[test]
    fn without_a_bound_there_is_always_room() {
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
