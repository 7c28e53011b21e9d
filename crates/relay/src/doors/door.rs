// SPDX-License-Identifier: MIT OR Apache-2.0
//! A listener at work.

use crate::{
    config::listener::Listener, doors::ready::Ready, faults::warnings::Warnings,
    records::counters::Counters,
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

/// A listener's settings of now, its counters, and what its connections share.
#[derive(Debug)]
pub(crate) struct Door {
    /// The one that the kernel gave it.
    pub(crate) address: SocketAddr,
    /// Its sockets came from the service manager, which keeps them: this process can neither open
    /// others there nor close them for good.
    pub(crate) is_passed: bool,
    settings: RwLock<Settings>,
    pub(crate) counters: Counters,
    pub(crate) warnings: Warnings,
    /// Of clients with wrong passwords.
    pub(crate) penalties: Penalties,
    clients: ClientRateLimits,
    /// The newest set of its sockets, counted from 1; all older ones are to be closed.
    sockets: watch::Sender<u64>,
    /// Far legs that were opened ahead of their clients.
    pub(crate) ready: Ready,
}

#[derive(Debug)]
struct Settings {
    listener: Arc<Listener>,
    rate: Option<Arc<RateLimit>>,
}

impl Settings {
    fn new(listener: Listener) -> Self {
        let rate = listener.rate;
        Self {
            listener: listener.into(),
            rate: rate.map(|rate| RateLimit::new(rate, Instant::now()).into()),
        }
    }
}

impl Door {
    pub(crate) fn new(listener: Listener, address: SocketAddr) -> Self {
        Self {
            address,
            is_passed: false,
            settings: Settings::new(listener).into(),
            counters: Counters::default(),
            warnings: Warnings::default(),
            penalties: Penalties::default(),
            clients: ClientRateLimits::default(),
            sockets: watch::Sender::new(0),
            ready: Ready::default(),
        }
    }

    /// The settings that a new connection is served by.
    pub(crate) fn listener(&self) -> Arc<Listener> {
        self.settings.read().listener.clone()
    }

    /// Its name; where the kernel chose the port and nobody a name, the address tells it from
    /// others.
    pub(crate) fn name(&self) -> String {
        let listener = self.listener();
        match listener.name == listener.address.to_string() {
            true => self.address.to_string(),
            false => listener.name.clone(),
        }
    }

    /// What it has counted.
    pub(crate) fn counts(&self) -> ListenerCounts {
        ListenerCounts {
            name: self.name(),
            kind: self.listener().kind.to_string(),
            address: self.address,
            counts: self.counters.read(),
        }
    }

    /// New connections are served by `listener` from now on.
    pub(crate) fn change(&self, listener: Listener) {
        let mut settings = self.settings.write();
        match settings.listener.rate == listener.rate {
            // The limit is over all connections, the open ones included.
            true => settings.listener = listener.into(),
            false => *settings = Settings::new(listener),
        }
    }

    /// Whether it never had sockets that accept.
    pub(crate) fn is_new(&self) -> bool {
        *self.sockets.borrow() == 0
    }

    /// The number of a new set of sockets; those of older sets are closed, also if there is none to
    /// follow.
    pub(crate) fn next_sockets(&self) -> u64 {
        self.sockets.send_modify(|newest| *newest += 1);
        *self.sockets.borrow()
    }

    /// Returns as soon as this set of sockets is to be closed.
    pub(crate) async fn closed(&self, generation: u64) {
        let mut newest = self.sockets.subscribe();
        // An error would mean that the sender is gone, but `self` is the sender.
        let _ = newest.wait_for(|newest| *newest > generation).await;
    }

    /// The rate limits that a new connection from `client` is under.
    pub(crate) fn limits(&self, listener: &Listener, client: IpAddr) -> RateLimits {
        let all = self.settings.read().rate.clone();
        let pair = |rate| {
            let client = client.to_canonical();
            self.clients.limit(client, rate, Instant::now())
        };
        RateLimits::new(all.into_iter().chain(listener.rate_per_client.map(pair)))
    }
}
