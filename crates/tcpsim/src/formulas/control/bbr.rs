// SPDX-License-Identifier: MIT OR Apache-2.0
//! BBR version 1 as in Linux: the rate that it measured, whatever the loss, up to a limit.

use crate::formulas::formula::{Estimate, Formula};

/// Rate of the line, less the lost share and the cost of probing.
pub const FORMULA: Formula = Formula {
    name: "BBRv1",
    equation: "B = rate (1-p) (1 - (0.2 s + RTT)/10 s) (1 - max(0, RTT/4 - queue)/(8 RTT)) while p < 1 - 1/1.25 = 20 %",
    source: "Cardwell and others, BBR: Congestion-Based Congestion Control, CACM 60(2), 2017; constants of net/ipv4/tcp_bbr.c; draft-cardwell-iccrg-bbr-congestion-control-00 section 4.3",
    range: "loss below 20 % (it collapses there, and loses more from 15 % on); one flow, or flows alike, at the bottleneck",
};

/// Pacing gain while BBR probes for bandwidth. A loss that cancels the gain hides more bandwidth.
pub const PROBE_GAIN: f64 = 1.25;
/// Round trips of a cycle of gains.
const CYCLE: f64 = 8.0;
/// Seconds within which BBR empties the path once to measure the smallest RTT.
const MIN_RTT_WINDOW_S: f64 = 10.0;
/// Seconds for which BBR keeps the path empty.
const PROBE_RTT_S: f64 = 0.2;

/// Returns the loss that BBR tolerates. At this loss everything gained by probing is lost again.
#[must_use]
pub fn loss_tolerance() -> f64 {
    1.0 - 1.0 / PROBE_GAIN
}

/// Returns the share of the line's rate that arrives, 0 to 1, with a queue of `queue` BDPs.
#[must_use]
pub fn utilisation(p: f64, rtt_s: f64, queue: f64) -> Estimate {
    let probing_rtt = (PROBE_RTT_S + rtt_s) / MIN_RTT_WINDOW_S;
    let overflow = ((PROBE_GAIN - 1.0) - queue).max(0.0) / CYCLE;
    let value = if p < loss_tolerance() {
        (1.0 - p) * (1.0 - probing_rtt.min(1.0)) * (1.0 - overflow)
    } else {
        0.0
    };
    let reasons = [
        (
            p >= loss_tolerance(),
            "beyond 20 % loss it slows down with each round trip",
        ),
        (p >= 0.15, "near the loss that it stands"),
    ];
    Estimate::checked(value, &reasons)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_costs_its_own_share_up_to_the_tolerance() {
        assert!((loss_tolerance() - 0.2).abs() < 1e-12);
        let [clean, some] = [0.0, 0.01].map(|p| utilisation(p, 0.1, 1.0));
        assert!((some.value / clean.value - 0.99).abs() < 1e-12);
        assert!(utilisation(0.19, 0.1, 1.0).value > 0.7);
        assert_eq!(utilisation(0.2, 0.1, 1.0).value, 0.0);
    }

    #[test]
    fn probe_is_lost_without_a_queue() {
        let [none, some] = [0.0, 0.25].map(|queue| utilisation(0.0, 0.1, queue).value);
        assert!((none / some - (1.0 - 0.25 / 8.0)).abs() < 1e-12);
    }
}
