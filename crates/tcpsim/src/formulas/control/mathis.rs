// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mean window of Reno against random loss without timeouts, and its growth between two losses.

use super::cycle::{Point, WindowGrowth};
use crate::formulas::formula::{Estimate, Formula, loss_reasons};

/// Square-root law.
pub const FORMULA: Formula = Formula {
    name: "Mathis",
    equation: "W = 1.31 / sqrt(p); B = W MSS / RTT",
    source: "Mathis, Semke, Mahdavi, Ott, The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm, CCR 27(3), 1997, equation (3) and table 1",
    range: "loss above 0 and up to 1 %: time-outs are left out",
};

/// Pattern of losses and of ACKs, which selects the constant of table 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Losses {
    /// Independent losses, growth of a packet a round trip. Linux grows so: it counts packets and not ACKs.
    Random,
    /// Independent losses, growth of half a packet (delayed ACKs that are counted).
    RandomDelayed,
    /// Evenly spaced losses, growth of a packet a round trip: `sqrt(3/2)`.
    Periodic,
    /// Evenly spaced losses, growth of half a packet: `sqrt(3/4)`.
    PeriodicDelayed,
}

impl Losses {
    /// Returns `C`.
    #[must_use]
    pub fn constant(self) -> f64 {
        match self {
            Self::Random => 1.31,
            Self::RandomDelayed => 0.93,
            Self::Periodic => 1.5_f64.sqrt(),
            Self::PeriodicDelayed => 0.75_f64.sqrt(),
        }
    }
}

/// Returns the mean window in packets.
#[must_use]
pub fn window(loss: f64, losses: Losses) -> Estimate {
    Estimate::checked(losses.constant() / loss.sqrt(), &loss_reasons(loss))
}

/// Growth between two losses, AIMD(1, 1/2) (RFC 5681 section 3.1): a packet a round trip, half at a loss.
#[derive(Debug, Clone, Copy)]
pub struct Reno;

impl WindowGrowth for Reno {
    fn after_loss(&self, peak: f64) -> f64 {
        peak / 2.0
    }

    fn grow(&self, at: Point, rounds: f64) -> f64 {
        at.window + rounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_grows_tenfold_with_a_hundredth_of_the_loss() {
        let [some, little] = [1e-3, 1e-5].map(|p| window(p, Losses::Random));
        assert!((little.value / some.value - 10.0).abs() < 1e-9);
        assert_eq!(some.outside, None);
    }

    /// RFC 9438 table 1's column of Reno is the periodic law with 1.2 for sqrt(3/2).
    #[test]
    fn periodic_window_matches_the_reno_column_of_rfc_9438() {
        for (p, w) in [(1e-2, 12.0), (1e-4, 120.0), (1e-6, 1200.0), (1e-8, 12000.0)] {
            let ratio = window(p, Losses::Periodic).value / w;
            assert!((1.0..1.03).contains(&ratio), "{p}: {ratio}");
        }
    }

    #[test]
    fn reports_loss_out_of_range() {
        assert!(window(0.0, Losses::Random).outside.is_some());
        assert!(window(0.0101, Losses::Random).outside.is_some());
        assert!(window(0.0099, Losses::Random).outside.is_none());
    }
}
