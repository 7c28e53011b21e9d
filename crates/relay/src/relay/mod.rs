// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all workers share.

pub(crate) mod drain;
pub(crate) mod threads;

use crate::{
    admission::{accounts::Accounts, budget::Budget, lookups::Lookups, memory::Memory},
    config::Config,
    doors::Doors,
    peers::current::{Current, Setup},
    records::{history::History, journal::Journal, reload_state::ReloadState, survey::Survey},
    relay::{
        drain::Drain,
        threads::{Alarm, Pulse},
    },
    stripe::groups::Groups,
};
use jiff::Timestamp;
use longhaul_admin::relay_record::RelayRecord;
use std::sync::{Arc, atomic::AtomicU32};
use tokio::{sync::Semaphore, time::Instant};

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
    pub(crate) started: Instant,
    pub(crate) reloads: ReloadState,
    /// A permit for each connection that may be open.
    pub(crate) places: Arc<Semaphore>,
    /// All of them, taken or not; a reload may change it.
    pub(crate) places_all: AtomicU32,
    /// How the descriptors were shared out at the start.
    pub(crate) budget: Budget,
    /// Raised when a thread that serves is gone.
    pub(crate) alarm: Alarm,
    /// Signs of life of all threads that serve.
    pub(crate) pulse: Arc<Pulse>,
    /// This relay's name in Via fields, unlike any other's (RFC 9110 §7.6.3).
    pub(crate) pseudonym: String,
}

impl Relay {
    /// The configuration for whatever begins now.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.setup().config
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
