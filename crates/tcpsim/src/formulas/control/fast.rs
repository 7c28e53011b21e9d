// SPDX-License-Identifier: MIT OR Apache-2.0
//! FAST TCP in equilibrium: each flow keeps a number of its packets in the queue.

use crate::formulas::formula::{Estimate, Formula};

/// Equilibrium of flows that share a line.
pub const FORMULA: Formula = Formula {
    name: "FAST, equilibrium",
    equation: "x = alpha / q: the line's rate, if the queue holds alpha packets of each flow",
    source: "Jin, Wei, Low, FAST TCP: Motivation, Architecture, Algorithms, Performance, INFOCOM 2004",
    range: "no loss, a queue of at least alpha packets for each flow, and a path whose delay never changes",
};

/// Returns the packets a second of a flow that keeps `alpha` packets in the queue, where packets wait
/// `queueing_s` seconds. A flow ends at this rate when its path grew longer and its base RTT did not.
#[must_use]
pub fn rate(alpha: f64, queueing_s: f64) -> f64 {
    alpha / queueing_s
}

/// Returns the share of the line's rate that `flows` flows with `alpha` packets each reach.
#[must_use]
pub fn utilisation(alpha: f64, flows: f64, queue_packets: f64, loss: f64) -> Estimate {
    let reasons = [
        (loss > 0.0, "with loss it does not come to its equilibrium"),
        (
            alpha * flows > queue_packets,
            "the queue is too short for alpha packets of each flow",
        ),
    ];
    Estimate::checked(1.0, &reasons)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fifth paper's switch from 38 to 80 ms (JGN II trials) with alpha 200: 57 Mbit/s.
    #[test]
    fn path_longer_by_42_ms_leaves_57_mbit() {
        let bps = rate(200.0, 0.042) * 1500.0 * 8.0;
        assert!((bps / 57e6 - 1.0).abs() < 0.01);
    }

    #[test]
    fn reports_loss_and_short_queues_as_out_of_range() {
        assert!(utilisation(200.0, 1.0, 1000.0, 0.0).outside.is_none());
        assert!(utilisation(200.0, 6.0, 1000.0, 0.0).outside.is_some());
        assert!(utilisation(200.0, 1.0, 1000.0, 1e-6).outside.is_some());
    }
}
