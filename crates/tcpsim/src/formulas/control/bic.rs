// SPDX-License-Identifier: MIT OR Apache-2.0
//! BIC: search for the window of the last loss.

use super::cycle::{self, Point, WindowGrowth};
use crate::formulas::formula::{Estimate, Formula};

/// Mean over the authors' cycle.
pub const FORMULA: Formula = Formula {
    name: "BIC, cycle",
    equation: "the mean of the cycle from 0.8 W to W whose packets are 1/p: additive up to 4 increments of 16 below W, then a quarter of the rest, at least 0.2 packets a round trip",
    source: "Xu, Harfoush, Rhee, Binary Increase Congestion Control for Fast Long-Distance Networks, INFOCOM 2004; constants of net/ipv4/tcp_bic.c",
    range: "loss above 0 and up to 0.1 %, losses evenly apart",
};

/// Part of the window that a loss leaves.
const BETA: f64 = 819.0 / 1024.0;
/// `max_increment`.
const INCREMENT_MAX: f64 = 16.0;
/// `low_window`.
const LOW_WINDOW: f64 = 14.0;
/// `BICTCP_B`.
const STEP: f64 = 4.0;
/// `smooth_part`.
const SMOOTH: f64 = 20.0;

/// Returns the mean window in packets for evenly spaced losses.
#[must_use]
pub fn window(p: f64, rtt_s: f64) -> Estimate {
    let reasons = [
        (p <= 0.0, "without loss its result is infinite"),
        (
            p > 1e-3,
            "beyond 0.1 % loss its windows are too small for the search",
        ),
    ];
    if p <= 0.0 {
        return Estimate::checked(f64::INFINITY, &reasons);
    }
    Estimate::checked(cycle::mean_window(&Bic, p, rtt_s), &reasons)
}

/// Growth between two losses.
#[derive(Debug, Clone, Copy)]
pub struct Bic;

impl WindowGrowth for Bic {
    fn after_loss(&self, peak: f64) -> f64 {
        if peak <= LOW_WINDOW {
            peak / 2.0
        } else {
            peak * BETA
        }
    }

    /// Grows as `bictcp_update`, whose `cnt` is the ACKed packets for each packet of growth.
    fn grow(&self, at: Point, rounds: f64) -> f64 {
        if at.window <= LOW_WINDOW {
            return at.window + rounds;
        }
        let distance = (at.peak - at.window) / STEP;
        let increment = match distance {
            d if d > INCREMENT_MAX => INCREMENT_MAX,
            d if d <= 1.0 => STEP / SMOOTH,
            d => d,
        };
        at.window + increment * rounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the authors, BIC with large windows is AIMD(16, 0.2), with the inverse square root of the loss.
    #[test]
    fn large_windows_follow_the_square_root() {
        let ratio = window(1e-9, 0.1).value / window(1e-7, 0.1).value;
        assert!((8.0..11.0).contains(&ratio), "{ratio}");
        let aimd = |p: f64| (INCREMENT_MAX * (1.0 + BETA) / (2.0 * (1.0 - BETA) * p)).sqrt();
        let share = window(1e-9, 0.1).value / aimd(1e-9);
        assert!((0.9..1.1).contains(&share), "{share}");
    }
}
