// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections whose far leg was opened before their near leg.

use crate::route::far::Far;
use longhaul_interception::flow::Flow;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Far legs that wait for their near legs. Each waits for an ACK that is on its way; who puts them
/// in bounds their number.
#[derive(Debug, Default)]
pub(crate) struct Ready(Mutex<HashMap<Flow, (Instant, Far)>>);

impl Ready {
    /// How long a client may take for its ACK.
    const PATIENCE: Duration = Duration::from_secs(10);

    pub(crate) fn put(&self, flow: Flow, far: Far) {
        self.lock().insert(flow, (Instant::now(), far));
    }

    /// Takes out the far leg of this connection.
    pub(crate) fn take(&self, flow: Flow) -> Option<Far> {
        self.lock().remove(&flow).map(|(_, far)| far)
    }

    pub(crate) fn has(&self, flow: Flow) -> bool {
        self.lock().contains_key(&flow)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Resets those that nobody came for.
    pub(crate) fn expire(&self) {
        self.lock().retain(|_, (since, far)| {
            let keep = since.elapsed() < Self::PATIENCE;
            if !keep {
                far.stream.carrier().reset_on_close();
            }
            keep
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Flow, (Instant, Far)>> {
        self.0.lock()
    }
}
