// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all workers share: what is counted and kept, how far the relay is on its way to its end, and whether a thread
//! that serves is gone.

use crate::{
    config::Config,
    doors::Doors,
    peers::current::{Current, Setup},
    records::{history::History, journal::Journal, reload_state::ReloadState, survey::Survey},
    stripe::groups::Groups,
};
use jiff::Timestamp;
use longhaul_admin::relay_record::RelayRecord;
use longhaul_admission::{
    accounts::{Accounts, Holder},
    descriptors::DescriptorBudget,
    lookups::Lookups,
    memory::Memory,
};
use longhaul_interception::heartbeat::Heartbeats;
use std::{
    sync::{Arc, atomic::AtomicU32},
    time::Duration,
};
use tokio::sync::{Semaphore, watch};

/// Time in which workers accept what is in the accept queues when the relay begins to drain.
pub(crate) const ACCEPT_TIME: Duration = Duration::from_millis(50);

/// Connections that a client may have for each one that is left for others.
const CLIENT_PARTS: usize = 3;

/// What all workers share.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) current: Current,
    pub(crate) doors: Doors,
    pub(crate) drain: Drain,
    pub(crate) journal: Journal,
    /// Connections that other relays carry by several legs.
    pub(crate) groups: Arc<Groups>,
    pub(crate) accounts: Accounts,
    pub(crate) lookups: Lookups,
    pub(crate) memory: Memory,
    pub(crate) survey: Survey,
    pub(crate) history: History,
    pub(crate) started: tokio::time::Instant,
    pub(crate) reloads: ReloadState,
    /// A permit for each connection that may be open.
    pub(crate) places: Arc<Semaphore>,
    /// All of them, taken or not; a reload may change it.
    pub(crate) places_all: AtomicU32,
    /// How the descriptors were shared out at the start.
    pub(crate) budget: DescriptorBudget,
    /// Raised when a thread that serves is gone.
    pub(crate) alarm: Alarm,
    /// Of all threads that serve.
    pub(crate) heartbeats: Arc<Heartbeats>,
    /// This relay's name in Via fields, unlike any other's (RFC 9110 §7.6.3).
    pub(crate) pseudonym: String,
}

impl Relay {
    /// The configuration for whatever begins now.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.setup().config
    }

    /// Connections that `holder` may have at a time, while nobody has `left` places. By default it is so many times as many as
    /// are left for others: a client alone gets three quarters of all, and however many are greedy, some are left. This
    /// machine's own programs and other relays speak for many.
    pub(crate) fn connections_max(config: &Config, holder: Holder, left: usize) -> usize {
        match config.limits.connections_per_client {
            _ if holder.is_relay => usize::MAX,
            Some(most) => most,
            None if holder.address.is_loopback() => usize::MAX,
            None => CLIENT_PARTS * (left + 1),
        }
    }

    /// The same with its peers.
    pub(crate) fn setup(&self) -> Setup {
        self.current.get()
    }

    /// All counters now.
    pub(crate) fn counters(&self) -> RelayRecord {
        let (listeners, total) = self.doors.counts();
        let (memory_bytes, memory_budget_bytes) = self.memory.read();
        RelayRecord {
            time: Timestamp::now(),
            total,
            listeners,
            records_lost: self.journal.lost(),
            memory_bytes,
            memory_budget_bytes,
            peers: self.setup().peers.all().map(|peer| peer.read()).collect(),
        }
    }
}

/// Where the relay is on its way from start to exit; it only moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Serving.
    Run,
    /// No new connections; the open ones go on.
    Drain,
    /// Open connections are reset.
    Cut,
    /// Workers leave.
    Stop,
}

/// The phase, told to everyone: the relay stops accepting, waits, cuts, stops.
#[derive(Debug)]
pub(crate) struct Drain(watch::Sender<Phase>);

impl Drain {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Phase::Run))
    }

    /// Moves on to `phase`.
    pub(crate) fn enter(&self, phase: Phase) {
        self.0.send_if_modified(|now| {
            let later = phase > *now;
            *now = phase.max(*now);
            later
        });
    }

    /// Where the relay is now.
    pub(crate) fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Returns as soon as `phase` or a later one is reached.
    pub(crate) async fn reached(&self, phase: Phase) {
        // An error would mean that the sender is gone, but `self` is the sender.
        let _ = self.0.subscribe().wait_for(|now| *now >= phase).await;
    }
}

/// Raised as soon as a thread that serves has ended, by an error, a panic or in its time: a relay that has lost one must
/// not go on as if nothing had happened.
#[derive(Debug)]
pub(crate) struct Alarm(watch::Sender<bool>);

impl Alarm {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Does `work`, after which the alarm is raised, however it ends.
    pub(crate) fn over<T>(&self, work: impl FnOnce() -> T) -> T {
        let _raised = Raise(&self.0);
        work()
    }

    pub(crate) fn is_raised(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once it is raised.
    pub(crate) async fn raised(&self) {
        // An error would mean that the sender is gone, but `self` is the sender.
        let _ = self.0.subscribe().wait_for(|raised| *raised).await;
    }
}

struct Raise<'a>(&'a watch::Sender<bool>);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn an_end_is_heard_of_whatever_it_was() {
        let failed = Alarm::new();
        assert!(!failed.is_raised());
        assert_eq!(
            failed.over(|| Err::<(), _>("no descriptors")),
            Err("no descriptors")
        );
        assert!(failed.is_raised());
        let panicked = Alarm::new();
        let work = || panicked.over(|| panic!("a bug"));
        assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
        assert!(panicked.is_raised());
    }
}
