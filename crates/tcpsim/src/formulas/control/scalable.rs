// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scalable TCP: growth in proportion to the window.

use super::cycle::{Point, WindowGrowth};
use crate::formulas::formula::{Estimate, Formula, loss_reasons};

/// Kelly's response function.
pub const FORMULA: Formula = Formula {
    name: "Scalable",
    equation: "W = a / (b p) = 0.08 / p from 100 packets on, else Reno with b = 1/8",
    source: "Kelly, Scalable TCP: Improving Performance in Highspeed Wide Area Networks, CCR 33(2), 2003; net/ipv4/tcp_scalable.c",
    range: "loss above 0 and below 0.08 %, where its window is 100 packets and it becomes Reno's",
};

/// Packets of growth for each ACKed packet.
pub const A: f64 = 0.01;
/// Part of the window that a loss takes.
pub const B: f64 = 0.125;
/// Window in packets below which Linux grows by one packet a round trip.
const LINEAR_BELOW: f64 = 100.0;

/// Returns the mean window in packets.
#[must_use]
pub fn window(p: f64) -> Estimate {
    let proportional = A / (B * p);
    let value = if proportional >= LINEAR_BELOW {
        proportional
    } else {
        linear_window(p)
    };
    let [none, much] = loss_reasons(p);
    let reasons = [
        none,
        much,
        (
            proportional < LINEAR_BELOW,
            "below 100 packets, where it grows as Reno",
        ),
    ];
    Estimate::checked(value, &reasons)
}

/// Returns the mean window of AIMD(1, 1/8) (RFC 9438 section 4.3).
fn linear_window(p: f64) -> f64 {
    ((2.0 - B) / (2.0 * B * p)).sqrt()
}

/// Growth between two losses.
#[derive(Debug, Clone, Copy)]
pub struct Scalable;

impl WindowGrowth for Scalable {
    fn after_loss(&self, peak: f64) -> f64 {
        peak * (1.0 - B)
    }

    fn grow(&self, at: Point, rounds: f64) -> f64 {
        if at.window < LINEAR_BELOW {
            at.window + rounds
        } else {
            at.window * (1.0 + A).powf(rounds)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_grows_tenfold_with_a_tenth_of_the_loss() {
        assert!((window(1e-5).value - 8000.0).abs() < 1e-6);
        assert!((window(1e-6).value - 80_000.0).abs() < 1e-6);
        assert!(window(1e-3).outside.is_some() && window(7e-4).outside.is_none());
    }

    /// Kelly: recovery from a loss takes ln(8/7)/ln(1.01) = 13.4 round trips, at any window.
    #[test]
    fn recovery_takes_the_same_time_at_any_window() {
        for peak in [1e3, 1e6] {
            let cycle = super::super::cycle::cycle(&Scalable, peak, 0.2, f64::INFINITY);
            assert!(
                (cycle.rounds - 13.4).abs() < 0.2,
                "{peak}: {}",
                cycle.rounds
            );
        }
    }
}
