// SPDX-License-Identifier: MIT OR Apache-2.0
//! BIC: search for the window of the last loss.

use super::cycle::{self, Law, Point};
use crate::formulas::formula::{Answer, Formula};

/// The authors' cycle, summed.
pub const FORMULA: Formula = Formula {
    name: "BIC, cycle",
    equation: "the mean of the cycle from 0.8 W to W whose packets are 1/p: additive up to 4 increments of 16 below W, then a quarter of the rest, at least 0.2 packets a round trip",
    source: "Xu, Harfoush, Rhee, Binary Increase Congestion Control for Fast Long-Distance Networks, INFOCOM 2004; constants of net/ipv4/tcp_bic.c",
    range: "loss above 0 and up to 0.1 %, losses evenly apart",
};

const BETA: f64 = 819.0 / 1024.0;
/// `max_increment`, `low_window`, `BICTCP_B` and `smooth_part`.
const INCREMENT_MAX: f64 = 16.0;
const LOW_WINDOW: f64 = 14.0;
const STEP: f64 = 4.0;
const SMOOTH: f64 = 20.0;

/// Mean window in packets for losses evenly apart.
#[must_use]
pub fn window(p: f64, rtt_s: f64) -> Answer {
    let reasons = [
        (p <= 0.0, "without loss it has no end"),
        (
            p > 1e-3,
            "beyond 0.1 % loss its windows are too small for the search",
        ),
    ];
    if p <= 0.0 {
        return Answer::checked(f64::INFINITY, &reasons);
    }
    Answer::checked(cycle::mean_window(&Bic, p, rtt_s), &reasons)
}

/// Growth between two losses.
#[derive(Debug, Clone, Copy)]
pub struct Bic;

impl Law for Bic {
    fn after_loss(&self, peak: f64) -> f64 {
        match peak <= LOW_WINDOW {
            true => peak / 2.0,
            false => peak * BETA,
        }
    }

    /// `bictcp_update`: `cnt` is packets for each growth by one.
    fn grown(&self, at: Point, rounds: f64) -> f64 {
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

    /// The authors: for large windows it is AIMD(16, 0.2), the inverse square root of the loss.
    #[test]
    fn large_windows_follow_the_square_root() {
        let ratio = window(1e-9, 0.1).value / window(1e-7, 0.1).value;
        assert!((8.0..11.0).contains(&ratio), "{ratio}");
        let aimd = |p: f64| (INCREMENT_MAX * (1.0 + BETA) / (2.0 * (1.0 - BETA) * p)).sqrt();
        let share = window(1e-9, 0.1).value / aimd(1e-9);
        assert!((0.9..1.1).contains(&share), "{share}");
    }
}
