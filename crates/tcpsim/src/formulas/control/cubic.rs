// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mean window of CUBIC as a function of loss, with its Reno-friendly region.

use super::cycle::{Point, WindowGrowth};
use crate::formulas::formula::{Estimate, Formula, loss_reasons};

/// Response function of CUBIC (RFC 9438).
pub const FORMULA: Formula = Formula {
    name: "CUBIC",
    equation: "W = max((C (3+b) / (4 (1-b)))^(1/4) RTT^(3/4) / p^(3/4), sqrt(3/2) / sqrt(p)), C = 0.4, b = 0.7",
    source: "RFC 9438 sections 5.1 (average window) and 4.3 (Reno-friendly region)",
    range: "loss above 0 and up to 1 %, losses evenly apart; with losses at random the mean window is some 15 to 20 % larger where it grows as a cubic",
};

/// Constant of the cubic curve, packets a second³.
pub const C: f64 = 0.4;
/// Factor by which a loss multiplies the window.
pub const BETA: f64 = 0.7;

/// Returns the mean window in packets for evenly spaced losses.
#[must_use]
pub fn window(p: f64, rtt_s: f64) -> Estimate {
    let cubic = window_of(p, rtt_s, C);
    Estimate::checked(cubic.max(reno_window(p)), &loss_reasons(p))
}

/// Returns the mean window of RFC 9438 section 5.1 for another constant `c`, which tables 1 and 2 vary.
#[must_use]
pub fn window_of(p: f64, rtt_s: f64, c: f64) -> f64 {
    let height = (c * (3.0 + BETA) / (4.0 * (1.0 - BETA))).powf(0.25);
    height * (rtt_s / p).powf(0.75)
}

/// Returns Reno's mean window. If CUBIC's would be smaller, CUBIC grows as fast as Reno on average (RFC 9438 section
/// 4.3).
fn reno_window(p: f64) -> f64 {
    (1.5 / p).sqrt()
}

/// Growth of CUBIC's window between two losses.
#[derive(Debug, Clone, Copy)]
pub struct Cubic;

impl WindowGrowth for Cubic {
    fn after_loss(&self, peak: f64) -> f64 {
        peak * BETA
    }

    /// Returns the window after `rounds` more round trips, by RFC 9438 equations (1), (2) and (4).
    fn grow(&self, at: Point, rounds: f64) -> f64 {
        let t = at.elapsed_s + rounds * at.rtt_s;
        let k = (at.peak * (1.0 - BETA) / C).cbrt();
        let cubic = C * (t - k).powi(3) + at.peak;
        let alpha = 3.0 * (1.0 - BETA) / (1.0 + BETA);
        let reno = at.peak * BETA + alpha * (at.rounds + rounds);
        cubic.max(reno).max(at.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9438 tables 1 and 2: loss, then the mean window for C of 0.04, 0.4 and 4. Where Reno's window is
    /// larger, the tables print that (with 1.2 for sqrt(3/2)).
    #[test]
    fn window_matches_the_tables_of_rfc_9438() {
        let slow = [
            (1e-2, [12.0, 12.0, 12.0]),
            (1e-3, [38.0, 38.0, 59.0]),
            (1e-4, [120.0, 187.0, 333.0]),
            (1e-5, [593.0, 1054.0, 1874.0]),
            (1e-6, [3332.0, 5926.0, 10538.0]),
            (1e-7, [18740.0, 33325.0, 59261.0]),
            (1e-8, [105_383.0, 187_400.0, 333_250.0]),
        ];
        let fast = [
            (1e-2, [12.0, 12.0, 12.0]),
            (1e-3, [38.0, 38.0, 38.0]),
            (1e-4, [120.0, 120.0, 120.0]),
            (1e-5, [379.0, 379.0, 379.0]),
            (1e-6, [1200.0, 1200.0, 1874.0]),
            (1e-7, [3795.0, 5926.0, 10538.0]),
            (1e-8, [18740.0, 33325.0, 59261.0]),
        ];
        for (rtt_s, table) in [(0.1, slow), (0.01, fast)] {
            for (p, row) in table {
                for (c, printed) in [0.04, 0.4, 4.0].into_iter().zip(row) {
                    let reno = 1.2 / f64::sqrt(p);
                    let own = window_of(p, rtt_s, c).max(reno);
                    assert!(
                        (own - printed).abs() < 1.0 + printed * 1e-3,
                        "{p} {c}: {own}"
                    );
                }
            }
        }
    }

    #[test]
    fn window_is_the_larger_of_both_regions() {
        assert!((window(1e-3, 0.01).value - (1.5e3_f64).sqrt()).abs() < 1e-9);
        assert!((window(1e-5, 0.1).value - 1054.0).abs() < 1.0);
    }
}
