// SPDX-License-Identifier: MIT OR Apache-2.0
//! H-TCP: growth by the time since the last loss.

use super::cycle::{self, Point, WindowGrowth};
use crate::formulas::formula::{Estimate, Formula};

/// Mean over the cycle of the authors' growth.
pub const FORMULA: Formula = Formula {
    name: "H-TCP, cycle",
    equation: "the mean of the cycle from W/2 to W whose packets are 1/p, growing by 2 (1-b) (1 + 10 (t-1) + 0.25 (t-1)^2) packets a round trip t > 1 s after a loss, scaled by RTT/100 ms within 0.1 and 2",
    source: "Leith, Shorten, H-TCP: TCP Congestion Control for High Bandwidth-Delay Product Paths, draft-leith-tcp-htcp-06, section 2; net/ipv4/tcp_htcp.c",
    range: "loss above 0 and up to 0.1 %, losses evenly apart; b is 1/2, as it is where throughput changes from loss to loss",
};

/// Part of the window that a loss leaves.
const BETA: f64 = 0.5;
/// Seconds after a loss in which the window grows as Reno's.
const LOW_SPEED_S: f64 = 1.0;

/// Returns the mean window in packets for evenly spaced losses.
#[must_use]
pub fn window(p: f64, rtt_s: f64) -> Estimate {
    let reasons = [
        (p <= 0.0, "without loss its result is infinite"),
        (p > 1e-3, "beyond 0.1 % loss it never leaves Reno's growth"),
    ];
    if p <= 0.0 {
        return Estimate::checked(f64::INFINITY, &reasons);
    }
    Estimate::checked(cycle::mean_window(&Htcp, p, rtt_s), &reasons)
}

/// Returns the packets of growth in a round trip, `since` seconds after a loss, on a path of `rtt_s`.
#[must_use]
pub fn increase(since: f64, rtt_s: f64) -> f64 {
    let beyond = (since - LOW_SPEED_S).max(0.0);
    let factor = 1.0 + 10.0 * beyond + 0.25 * beyond * beyond;
    let scaled = factor * (rtt_s / 0.1).clamp(0.1, 2.0);
    2.0 * (1.0 - BETA) * scaled.max(1.0)
}

/// Growth between two losses.
#[derive(Debug, Clone, Copy)]
pub struct Htcp;

impl WindowGrowth for Htcp {
    fn after_loss(&self, peak: f64) -> f64 {
        peak * BETA
    }

    fn grow(&self, at: Point, rounds: f64) -> f64 {
        let middle = at.elapsed_s + rounds * at.rtt_s / 2.0;
        at.window + increase(middle, at.base_rtt_s) * rounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_second_grows_as_reno() {
        assert_eq!(increase(0.9, 0.1), 1.0);
        assert_eq!(increase(2.0, 0.1), 11.25);
        assert_eq!(increase(2.0, 0.4), 22.5);
        assert_eq!(increase(2.0, 0.001), 1.125);
        // With each loss within the first second the square-root law holds.
        let w = window(1e-3, 0.01).value;
        assert!((w / 1.5e3_f64.sqrt() - 1.0).abs() < 0.03, "{w}");
    }
}
