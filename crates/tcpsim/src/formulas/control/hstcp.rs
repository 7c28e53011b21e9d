// SPDX-License-Identifier: MIT OR Apache-2.0
//! Response function of HighSpeed TCP.

use super::cycle::{Point, WindowGrowth};
use crate::formulas::formula::{Estimate, Formula, loss_reasons};

/// RFC 3649's response function.
pub const FORMULA: Formula = Formula {
    name: "HSTCP",
    equation: "W = 38 (p / 0.001)^-0.835 below p = 0.1 %, else 1.2 / sqrt(p)",
    source: "RFC 3649 section 5",
    range: "loss from 1e-10 (where its windows end in the RFC) to 1 %",
};

/// `Low_Window` and `Low_P` (RFC 3649 section 5).
const LOW: (f64, f64) = (38.0, 1e-3);
/// `High_Window` and `High_P` (RFC 3649 section 5).
const HIGH: (f64, f64) = (83_000.0, 1e-7);
/// `High_Decrease`.
const HIGH_DECREASE: f64 = 0.1;

/// Returns `S`, about -0.835.
fn slope() -> f64 {
    (HIGH.0.ln() - LOW.0.ln()) / (HIGH.1.ln() - LOW.1.ln())
}

/// Returns the mean window in packets.
#[must_use]
pub fn window(p: f64) -> Estimate {
    let value = if p < LOW.1 {
        LOW.0 * (p / LOW.1).powf(slope())
    } else {
        1.2 / p.sqrt()
    };
    let [none, much] = loss_reasons(p);
    let reasons = [
        none,
        much,
        (p < 1e-10, "below the loss that the RFC's table ends with"),
    ];
    Estimate::checked(value, &reasons)
}

/// Growth between two losses: RFC 3649's a(w) and b(w).
#[derive(Debug, Clone, Copy)]
pub struct Hstcp;

/// Returns `b(w)`: the part of the window that a loss takes.
#[must_use]
pub fn decrease(w: f64) -> f64 {
    if w <= LOW.0 {
        return 0.5;
    }
    let share = (w.ln() - LOW.0.ln()) / (HIGH.0.ln() - LOW.0.ln());
    (HIGH_DECREASE - 0.5) * share + 0.5
}

/// Returns `a(w)`: packets of growth in a round trip.
#[must_use]
pub fn increase(w: f64) -> f64 {
    if w <= LOW.0 {
        return 1.0;
    }
    let b = decrease(w);
    let p = 0.078 / w.powf(1.2);
    (w * w * p * 2.0 * b / (2.0 - b)).max(1.0)
}

impl WindowGrowth for Hstcp {
    fn after_loss(&self, peak: f64) -> f64 {
        peak * (1.0 - decrease(peak))
    }

    fn grow(&self, at: Point, rounds: f64) -> f64 {
        at.window + increase(at.window) * rounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3649's table of its response function.
    #[test]
    fn window_matches_the_table_of_rfc_3649() {
        let table = [
            (1e-2, 12.0),
            (1e-3, 38.0),
            (1e-4, 263.0),
            (1e-5, 1795.0),
            (1e-6, 12_279.0),
            (1e-7, 83_981.0),
            (1e-8, 574_356.0),
            (1e-9, 3_928_088.0),
            (1e-10, 26_864_653.0),
        ];
        for (p, printed) in table {
            let w = window(p).value;
            // The RFC rounds S to -0.835 and its constant to 0.12, which is 2 % by 1e-10.
            assert!(
                (w / printed - 1.0).abs() < 0.021,
                "{p}: {w} beside {printed}"
            );
        }
    }

    /// RFC 3649 appendix B: the table of a(w) and b(w).
    #[test]
    fn increase_and_decrease_match_appendix_b() {
        let rows = [
            (38.0, 1.0, 0.50),
            (1058.0, 8.0, 0.33),
            (10_661.0, 30.0, 0.21),
            (83_981.0, 70.0, 0.10),
        ];
        for (w, a, b) in rows {
            assert!((increase(w) / a - 1.0).abs() < 0.05, "{w}: {}", increase(w));
            assert!((decrease(w) - b).abs() < 0.01, "{w}: {}", decrease(w));
        }
    }
}
