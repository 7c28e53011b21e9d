// SPDX-License-Identifier: MIT OR Apache-2.0
//! Upstream connections opened before their client's handshake is complete (`verify_connect`).

use crate::route::upstream_leg::UpstreamLeg;
use longhaul_interception::{flow::Flow, held::ClientCounts};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

/// Upstream connections by client flow. Each waits for the client's ACK, which is in flight. The
/// caller bounds their number.
#[derive(Debug, Default)]
pub(crate) struct Preconnected(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    legs: HashMap<Flow, (Instant, UpstreamLeg)>,
    clients: ClientCounts,
}

impl Preconnected {
    /// Time within which the client's ACK must arrive.
    const ACK_TIMEOUT: Duration = Duration::from_secs(10);

    pub(crate) fn insert(&self, flow: Flow, upstream: UpstreamLeg) {
        let mut state = self.lock();
        state.clients.add(flow.client().ip());
        if state
            .legs
            .insert(flow, (Instant::now(), upstream))
            .is_some()
        {
            state.clients.remove(flow.client().ip());
        }
    }

    /// Removes and returns the upstream connection of this flow.
    pub(crate) fn take(&self, flow: Flow) -> Option<UpstreamLeg> {
        let mut state = self.lock();
        let (_, upstream) = state.legs.remove(&flow)?;
        state.clients.remove(flow.client().ip());
        Some(upstream)
    }

    pub(crate) fn has(&self, flow: Flow) -> bool {
        self.lock().legs.contains_key(&flow)
    }

    /// Number of connections of all clients, and of `client`.
    pub(crate) fn counts(&self, client: IpAddr) -> (usize, usize) {
        let state = self.lock();
        (state.legs.len(), state.clients.count(client))
    }

    /// Resets connections whose client's ACK has not arrived in time.
    pub(crate) fn expire(&self) {
        self.retain(|since| since.elapsed() < Self::ACK_TIMEOUT);
    }

    /// Resets all connections.
    pub(crate) fn clear(&self) {
        self.retain(|_| false);
    }

    fn retain(&self, keeps: impl Fn(Instant) -> bool) {
        let State { legs, clients } = &mut *self.lock();
        legs.retain(|flow, (since, upstream)| {
            let keep = keeps(*since);
            if !keep {
                clients.remove(flow.client().ip());
                upstream.leg.transport().reset_on_close();
            }
            keep
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}
