// SPDX-License-Identifier: MIT OR Apache-2.0
//! A listener at work.

use super::{
    config::Listener,
    counters::Counters,
    intercept::Ready,
    rate::{Clients, Limits, Pair},
};
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

/// A listener's settings of now, its counters, and what its connections share.
#[derive(Debug)]
pub(crate) struct Door {
    /// The one that the kernel gave it.
    pub(crate) address: SocketAddr,
    settings: RwLock<Settings>,
    pub(crate) counters: Counters,
    clients: Clients,
    /// Far legs that were opened ahead of their clients.
    pub(crate) ready: Ready,
}

#[derive(Debug)]
struct Settings {
    listener: Arc<Listener>,
    rate: Option<Arc<Pair>>,
}

impl Settings {
    fn new(listener: Listener) -> Self {
        let rate = listener.rate;
        Self {
            listener: listener.into(),
            rate: rate.map(|rate| Pair::new(rate, Instant::now()).into()),
        }
    }
}

impl Door {
    pub(crate) fn new(listener: Listener, address: SocketAddr) -> Self {
        Self {
            address,
            settings: Settings::new(listener).into(),
            counters: Counters::default(),
            clients: Clients::default(),
            ready: Ready::default(),
        }
    }

    /// The settings that a new connection is served by.
    pub(crate) fn listener(&self) -> Arc<Listener> {
        let settings = self.settings.read();
        let settings = settings.unwrap_or_else(PoisonError::into_inner);
        settings.listener.clone()
    }

    /// The rate limits that a new connection from `client` is under.
    pub(crate) fn limits(&self, listener: &Listener, client: IpAddr) -> Limits {
        let settings = self.settings.read();
        let all = settings
            .unwrap_or_else(PoisonError::into_inner)
            .rate
            .clone();
        let pair = |rate| {
            let client = client.to_canonical();
            self.clients.pair(client, rate, Instant::now())
        };
        Limits::new(all.into_iter().chain(listener.rate_per_client.map(pair)))
    }
}
