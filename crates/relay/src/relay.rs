// SPDX-License-Identifier: MIT OR Apache-2.0
//! State that all workers share: configuration, counters, the phase of the shutdown, and the signal
//! that a serving thread has exited.

use crate::{
    config::Config,
    listeners::Listeners,
    peers::current::{CurrentSetup, Setup},
    records::{
        history::History, journal::Journal, reload_state::ReloadState, sampling::ConnectionSampler,
    },
    stripe::incoming_groups::IncomingGroups,
};
use jiff::Timestamp;
use longhaul_admin::relay_record::{LimitCounts, Limits, RelayRecord};
use longhaul_admission::{
    accounts::{Accounts, ClientNetwork},
    descriptors::DescriptorBudget,
    exhaustion,
    idle_clients::IdleClients,
    lookups::Lookups,
    memory::Memory,
    shared_limit::SharedLimit,
};
use longhaul_interception::heartbeat::Heartbeats;
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore, watch},
    time::timeout,
};

/// Time in which workers accept the connections in the accept queues when the relay begins to
/// drain.
pub(crate) const ACCEPT_TIME: Duration = Duration::from_millis(50);

/// Connections that a client may have for each connection that is left for others.
const CLIENT_SHARE: usize = 3;

/// State that all workers share.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) current: CurrentSetup,
    pub(crate) listeners: Listeners,
    pub(crate) lifecycle: Lifecycle,
    /// Counters and connection records.
    pub(crate) journal: Journal,
    /// Connection records alone.
    pub(crate) access_log: Journal,
    /// Client connections that other relays send over several legs.
    pub(crate) groups: Arc<IncomingGroups>,
    pub(crate) accounts: Accounts,
    pub(crate) lookups: Lookups,
    pub(crate) memory: Memory,
    pub(crate) sampler: ConnectionSampler,
    pub(crate) history: History,
    pub(crate) started: tokio::time::Instant,
    pub(crate) reloads: ReloadState,
    /// One permit for each connection that may be open.
    pub(crate) connection_permits: Arc<Semaphore>,
    /// HTTP clients whose connections a full relay may close.
    pub(crate) idle_clients: IdleClients,
    /// Number of permits, used or not. A reload may change it.
    pub(crate) permits_total: AtomicU32,
    /// State of the limit on connections.
    pub(crate) connection_limit: SharedLimit,
    /// State of the limit on descriptors and kernel memory.
    pub(crate) descriptor_limit: SharedLimit,
    /// Division of the file descriptors at the start.
    pub(crate) budget: DescriptorBudget,
    /// Set when a serving thread has exited.
    pub(crate) thread_exit: ThreadExitSignal,
    /// Heartbeats of all serving threads.
    pub(crate) heartbeats: Arc<Heartbeats>,
    /// Unique name of this relay in Via fields (RFC 9110 §7.6.3).
    pub(crate) pseudonym: String,
}

impl Relay {
    /// Returns the configuration for connections that begin now.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.setup().config
    }

    /// Returns the number of connections that `client_network` may have at a time while `permits_left`
    /// permits are free. The default is a multiple of what is left for others. A single client gets
    /// three quarters of all permits, and some permits are left however many clients are greedy.
    /// Programs of this machine and other relays act for many clients and have no limit by default.
    pub(crate) fn connections_max(
        config: &Config,
        client_network: ClientNetwork,
        permits_left: usize,
    ) -> usize {
        match config.limits.connections_per_client {
            _ if client_network.is_relay => usize::MAX,
            Some(most) => most,
            None if client_network.address.is_loopback() => usize::MAX,
            None => CLIENT_SHARE * (permits_left + 1),
        }
    }

    /// Returns whether no further connection can be served.
    pub(crate) fn is_full(&self) -> bool {
        self.connection_permits.available_permits() == 0
    }

    /// Waits for a permit for one connection. Meanwhile idle HTTP clients are dismissed, one at a time.
    ///
    /// # Errors
    ///
    /// The relay stops.
    pub(crate) async fn acquire_permit(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        let permits = &self.connection_permits;
        if let Ok(permit) = permits.clone().try_acquire_owned() {
            return Ok(permit);
        }
        self.connection_limit.count_wait();
        let mut permit = pin!(permits.clone().acquire_owned());
        loop {
            self.idle_clients.dismiss_one();
            if let Ok(permit) = timeout(exhaustion::RETRY_INTERVAL, permit.as_mut()).await {
                return permit;
            }
        }
    }

    /// Returns the number of permits that are free, and of all.
    pub(crate) fn permits(&self) -> (usize, usize) {
        let all = self.permits_total.load(Relaxed) as usize;
        (self.connection_permits.available_permits().min(all), all)
    }

    /// Returns the limits that make new connections wait.
    fn limits(&self) -> Limits {
        Limits {
            connections: limit_counts(&self.connection_limit),
            descriptors: LimitCounts {
                waits: exhaustion::retries(),
                ..limit_counts(&self.descriptor_limit)
            },
            memory: limit_counts(&self.memory.limit),
        }
    }

    /// Returns the current configuration with its peers.
    pub(crate) fn setup(&self) -> Setup {
        self.current.get()
    }

    /// Returns the present values of all counters.
    pub(crate) fn counters(&self) -> RelayRecord {
        let (listeners, total) = self.listeners.counts();
        let (memory_bytes, memory_budget_bytes) = self.memory.read();
        let (permits_free, permits_all) = self.permits();
        RelayRecord {
            time: Timestamp::now(),
            total,
            listeners,
            records_lost: self.journal.lost() + self.access_log.lost(),
            memory_bytes,
            memory_budget_bytes,
            connections_taken: (permits_all - permits_free) as u64,
            connections_limit: permits_all as u64,
            limits: self.limits(),
            peers: self.setup().peers.all().map(|peer| peer.counts()).collect(),
        }
    }
}

fn limit_counts(limit: &SharedLimit) -> LimitCounts {
    LimitCounts {
        reached: limit.is_reached(),
        times_reached: limit.times_reached(),
        waits: limit.waits(),
    }
}

/// Phase of the relay from start to exit. Phases only advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Serving.
    Run,
    /// No new connections; the open ones continue.
    Drain,
    /// Open connections are reset.
    Cut,
    /// Workers exit.
    Stop,
}

/// Publishes the phase to all tasks: the relay stops accepting, waits, cuts, stops.
#[derive(Debug)]
pub(crate) struct Lifecycle(watch::Sender<Phase>);

impl Lifecycle {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Phase::Run))
    }

    /// Advances to `phase`.
    pub(crate) fn enter(&self, phase: Phase) {
        self.0.send_if_modified(|now| {
            let later = phase > *now;
            *now = phase.max(*now);
            later
        });
    }

    /// Returns the present phase.
    pub(crate) fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Waits until `phase` or a later one is reached.
    pub(crate) async fn wait_for(&self, phase: Phase) {
        // An error would mean that the sender is gone, but `self` is the sender.
        let _ = self.0.subscribe().wait_for(|now| *now >= phase).await;
    }
}

/// Signal that a serving thread has exited, by an error, a panic or a normal return. A relay that
/// has lost a thread must shut down.
#[derive(Debug)]
pub(crate) struct ThreadExitSignal(watch::Sender<bool>);

impl ThreadExitSignal {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Runs `work` and sets the signal when it ends, also by a panic.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let _guard = SetOnDrop(&self.0);
        work()
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the signal is set.
    pub(crate) async fn wait(&self) {
        // An error would mean that the sender is gone, but `self` is the sender.
        let _ = self.0.subscribe().wait_for(|is_set| *is_set).await;
    }
}

struct SetOnDrop<'a>(&'a watch::Sender<bool>);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn signals_thread_exit_after_error_and_panic() {
        let failed = ThreadExitSignal::new();
        assert!(!failed.is_set());
        assert_eq!(
            failed.run(|| Err::<(), _>("no descriptors")),
            Err("no descriptors")
        );
        assert!(failed.is_set());
        let panicked = ThreadExitSignal::new();
        let work = || panicked.run(|| panic!("a bug"));
        assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
        assert!(panicked.is_set());
    }
}
