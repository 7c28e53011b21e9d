// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reno's growth between two losses: AIMD(1, 1/2), RFC 5681 section 3.1. Its mean is in `mathis` and
//! `padhye`.

use super::cycle::{Law, Point};

/// A packet a round trip, half at a loss.
#[derive(Debug, Clone, Copy)]
pub struct Reno;

impl Law for Reno {
    fn after_loss(&self, peak: f64) -> f64 {
        peak / 2.0
    }

    fn grown(&self, at: Point, rounds: f64) -> f64 {
        at.window + rounds
    }
}
