// SPDX-License-Identifier: MIT OR Apache-2.0
//! FAST TCP in equilibrium: each flow keeps a number of its packets in the queue.

use crate::formulas::formula::{Answer, Formula};

/// The equilibrium.
pub const FORMULA: Formula = Formula {
    name: "FAST, equilibrium",
    equation: "x = alpha / q: the line's rate, if the queue holds alpha packets of each flow",
    source: "Jin, Wei, Low, FAST TCP: Motivation, Architecture, Algorithms, Performance, INFOCOM 2004",
    range: "no loss, a queue of at least alpha packets for each flow, and a path whose delay never changes",
};

/// Packets of a second that a flow of `alpha` packets sends where `queueing_s` seconds are spent in the
/// queue: how it ends after a path grew longer and its base RTT did not.
#[must_use]
pub fn rate(alpha: f64, queueing_s: f64) -> f64 {
    alpha / queueing_s
}

/// The share of the line's rate that `flows` with `alpha` packets each come to.
#[must_use]
pub fn utilisation(alpha: f64, flows: f64, queue_packets: f64, loss: f64) -> Answer {
    let reasons = [
        (loss > 0.0, "with loss it does not come to its equilibrium"),
        (
            alpha * flows > queue_packets,
            "the queue is too short for alpha packets of each flow",
        ),
    ];
    Answer::checked(1.0, &reasons)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fifth paper's switch from 38 to 80 ms with alpha 200: 57 Mbit/s.
    #[test]
    fn a_path_that_grew_by_42_ms_leaves_57_mbit() {
        let bps = rate(200.0, 0.042) * 1500.0 * 8.0;
        assert!((bps / 57e6 - 1.0).abs() < 0.01);
    }

    #[test]
    fn loss_and_short_queues_are_outside() {
        assert!(utilisation(200.0, 1.0, 1000.0, 0.0).outside.is_none());
        assert!(utilisation(200.0, 6.0, 1000.0, 0.0).outside.is_some());
        assert!(utilisation(200.0, 1.0, 1000.0, 1e-6).outside.is_some());
    }
}
