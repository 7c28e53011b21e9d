// SPDX-License-Identifier: MIT OR Apache-2.0
//! S: the sum of the rates that the windows allow, which is divided among the connections.

use super::sample::{Observation, total_rate};
use std::collections::HashMap;

/// Share of the expected window below which a loss has reduced a window. A smaller difference is rounding.
const REDUCED_SHARE: f64 = 0.98;

/// Sum that is divided, bytes a second: the rate of all windows when dividing began, less what
/// losses have taken since.
#[derive(Debug, Default)]
pub(super) struct Budget {
    sum: f64,
    /// Rate of each connection's window in the last sample, bytes a second.
    before: HashMap<u64, f64>,
}

impl Budget {
    /// Starts with the present rate of all windows.
    pub(super) fn start(&mut self, bulk: &[&Observation]) {
        self.sum = total_rate(bulk);
        self.store_rates(bulk);
    }

    /// Returns S, bytes a second.
    pub(super) fn sum(&self) -> f64 {
        self.sum
    }

    pub(super) fn set(&mut self, sum: f64) {
        self.sum = sum;
    }

    /// Subtracts the reductions since the last sample, and adds the rates of new connections.
    pub(super) fn update(&mut self, bulk: &[&Observation]) {
        for observation in bulk {
            self.sum += match self.before.remove(&observation.id) {
                None => observation.rate(),
                Some(before) => -reduction(before, observation),
            };
        }
        let ended: f64 = self.before.values().sum();
        self.sum = (self.sum - ended).max(0.0);
        self.store_rates(bulk);
    }

    fn store_rates(&mut self, bulk: &[&Observation]) {
        self.before = bulk
            .iter()
            .map(|observation| (observation.id, observation.rate()))
            .collect();
    }
}

/// Returns the rate by which a window fell further than its cap required, bytes a second.
fn reduction(before: f64, observation: &Observation) -> f64 {
    let cap = observation
        .cap
        .map_or(f64::INFINITY, |cap| observation.rate_of(cap));
    let expected = before.min(cap);
    if observation.rate() < expected * REDUCED_SHARE {
        expected - observation.rate()
    } else {
        0.0
    }
}
