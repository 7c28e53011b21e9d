// SPDX-License-Identifier: MIT OR Apache-2.0
//! S: what the windows have won together, and what of it is free.

use super::look::{Observation, asked};
use std::collections::HashMap;

/// A window this much below what was expected has answered a loss; less is rounding.
const NOISE: f64 = 0.98;

/// The sum that is divided, bytes a second. It is what windows asked for when dividing began, less what
/// they have given up since.
#[derive(Debug, Default)]
pub(super) struct Budget {
    sum: f64,
    /// What each connection's window asked for at the last look.
    before: HashMap<u64, f64>,
}

impl Budget {
    /// Begins with what windows ask for now.
    pub(super) fn open(&mut self, bulk: &[&Observation]) {
        self.sum = asked(bulk);
        self.remember(bulk);
    }

    /// S.
    pub(super) fn sum(&self) -> f64 {
        self.sum
    }

    pub(super) fn set(&mut self, sum: f64) {
        self.sum = sum;
    }

    /// Takes off what connections have given up since the last look, and adds what newcomers bring.
    pub(super) fn settle(&mut self, bulk: &[&Observation]) {
        for seen in bulk {
            self.sum += match self.before.remove(&seen.id) {
                None => seen.rate(),
                Some(before) => -given_up(before, seen),
            };
        }
        let ended: f64 = self.before.values().sum();
        self.sum = (self.sum - ended).max(0.0);
        self.remember(bulk);
    }

    fn remember(&mut self, bulk: &[&Observation]) {
        self.before = bulk.iter().map(|seen| (seen.id, seen.rate())).collect();
    }
}

/// By how much a window fell beyond what its cap asked of it.
fn given_up(before: f64, seen: &Observation) -> f64 {
    let cap = seen.cap.map_or(f64::INFINITY, |cap| seen.rate_of(cap));
    let expected = before.min(cap);
    if seen.rate() < expected * NOISE {
        expected - seen.rate()
    } else {
        0.0
    }
}
