// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running listener.

use crate::{
    config::listener::ListenerConfig, faults::warnings::Warnings,
    listeners::preconnected::Preconnected, records::counters::Counters,
};
use longhaul_admin::relay_record::ListenerCounts;
use longhaul_admission::{
    penalties::Penalties,
    rate_limits::{ClientRateLimits, RateLimit, RateLimits},
};
use parking_lot::RwLock;
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};
use tokio::sync::watch;

/// Current settings of a listener, its counters, and state shared by its connections.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Bound address; the kernel chooses the port if the configured one is 0.
    pub(crate) address: SocketAddr,
    /// The service manager passed the sockets and keeps them. This process can neither open others
    /// there nor close them for good.
    pub(crate) is_passed: bool,
    settings: RwLock<CurrentConfig>,
    pub(crate) counters: Counters,
    pub(crate) warnings: Warnings,
    /// Penalties of clients with wrong passwords.
    pub(crate) penalties: Penalties,
    client_limits: ClientRateLimits,
    /// Generation of the newest set of sockets, from 1. Sockets of older generations are to be
    /// closed.
    generation: watch::Sender<u64>,
    /// Upstream connections opened before the client's handshake is complete.
    pub(crate) preconnected: Preconnected,
}

#[derive(Debug)]
struct CurrentConfig {
    listener: Arc<ListenerConfig>,
    rate: Option<Arc<RateLimit>>,
}

impl CurrentConfig {
    fn new(listener: ListenerConfig) -> Self {
        let rate = listener.rate;
        Self {
            listener: listener.into(),
            rate: rate.map(|rate| RateLimit::new(rate, Instant::now()).into()),
        }
    }
}

impl Listener {
    pub(crate) fn new(listener: ListenerConfig, address: SocketAddr) -> Self {
        Self {
            address,
            is_passed: false,
            settings: CurrentConfig::new(listener).into(),
            counters: Counters::default(),
            warnings: Warnings::default(),
            penalties: Penalties::default(),
            client_limits: ClientRateLimits::default(),
            generation: watch::Sender::new(0),
            preconnected: Preconnected::default(),
        }
    }

    /// Settings for new connections.
    pub(crate) fn config(&self) -> Arc<ListenerConfig> {
        self.settings.read().listener.clone()
    }

    /// Name of the listener. If the kernel chose the port and the configuration has no name, the
    /// bound address.
    pub(crate) fn name(&self) -> String {
        let listener = self.config();
        if listener.name == listener.address.to_string() {
            self.address.to_string()
        } else {
            listener.name.clone()
        }
    }

    /// Snapshot of the counters.
    pub(crate) fn counts(&self) -> ListenerCounts {
        ListenerCounts {
            name: self.name(),
            kind: self.config().kind.to_string(),
            address: self.address,
            counts: self.counters.read(),
        }
    }

    /// Applies new settings; open connections keep the old ones.
    pub(crate) fn set_config(&self, listener: ListenerConfig) {
        let mut settings = self.settings.write();
        if settings.listener.users != listener.users {
            self.penalties.clear();
        }
        if settings.listener.rate == listener.rate {
            settings.listener = listener.into();
        } else {
            *settings = CurrentConfig::new(listener);
        }
    }

    /// Whether the listener never had sockets.
    pub(crate) fn never_had_sockets(&self) -> bool {
        *self.generation.borrow() == 0
    }

    /// Starts a new generation of sockets and returns its number. All older sockets are closed,
    /// even if no new ones follow.
    pub(crate) fn new_generation(&self) -> u64 {
        self.generation.send_modify(|newest| *newest += 1);
        *self.generation.borrow()
    }

    /// Returns as soon as sockets of this generation are to be closed.
    pub(crate) async fn generation_closed(&self, generation: u64) {
        let mut newest = self.generation.subscribe();
        // An error would mean that the sender is gone, but `self` is the sender.
        let _ = newest.wait_for(|newest| *newest > generation).await;
    }

    /// Rate limits for a new connection from `client`.
    pub(crate) fn rate_limits(&self, listener: &ListenerConfig, client: IpAddr) -> RateLimits {
        let all = self.settings.read().rate.clone();
        let pair = |rate| {
            let client = client.to_canonical();
            self.client_limits.limit(client, rate, Instant::now())
        };
        RateLimits::new(all.into_iter().chain(listener.rate_per_client.map(pair)))
    }
}
