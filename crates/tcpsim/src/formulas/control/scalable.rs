// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scalable TCP: growth in proportion to the window.

use super::cycle::{Law, Point};
use crate::formulas::formula::{Answer, Formula, loss_reasons};

/// Kelly's response function.
pub const FORMULA: Formula = Formula {
    name: "Scalable",
    equation: "W = a / (b p) = 0.08 / p from 100 packets on, else Reno with b = 1/8",
    source: "Kelly, Scalable TCP: Improving Performance in Highspeed Wide Area Networks, CCR 33(2), 2003; net/ipv4/tcp_scalable.c",
    range: "loss above 0 and below 0.08 %, where its window is 100 packets and it becomes Reno's",
};

/// Growth of a packet for each ACKed one.
pub const A: f64 = 0.01;
/// Part that a loss takes.
pub const B: f64 = 0.125;
/// Below, Linux grows by one packet a round trip.
const LINEAR: f64 = 100.0;

/// Mean window in packets.
#[must_use]
pub fn window(p: f64) -> Answer {
    let proportional = A / (B * p);
    let value = match proportional >= LINEAR {
        true => proportional,
        false => linear(p),
    };
    let [none, much] = loss_reasons(p);
    let reasons = [
        none,
        much,
        (
            proportional < LINEAR,
            "below 100 packets, where it grows as Reno",
        ),
    ];
    Answer::checked(value, &reasons)
}

/// AIMD(1, 1/8): RFC 9438 section 4.3's mean.
fn linear(p: f64) -> f64 {
    ((2.0 - B) / (2.0 * B * p)).sqrt()
}

/// Growth between two losses.
#[derive(Debug, Clone, Copy)]
pub struct Scalable;

impl Law for Scalable {
    fn after_loss(&self, peak: f64) -> f64 {
        peak * (1.0 - B)
    }

    fn grown(&self, at: Point, rounds: f64) -> f64 {
        match at.window < LINEAR {
            true => at.window + rounds,
            false => at.window * (1.0 + A).powf(rounds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_loss_is_ten_times_the_window() {
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
