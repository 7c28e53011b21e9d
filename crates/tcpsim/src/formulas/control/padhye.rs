// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rate of Reno with timeouts and a bounded window.

use crate::formulas::formula::{Estimate, Formula};

/// Full model.
pub const FULL: Formula = Formula {
    name: "PFTK",
    equation: "B = ((1-p)/p + W + Q/(1-p)) / (RTT (b W/2 + 1) + Q T0 f(p)/(1-p))",
    source: "Padhye, Firoiu, Towsley, Kurose, Modeling TCP Throughput, SIGCOMM 1998, section 2.3",
    range: "loss above 0 and up to 30 %; it assumes that a loss takes the rest of its round with it, so its result is too low where SACK repairs single losses",
};

/// Loss up to which the authors compared the model with traces.
pub const LOSS_MAX: f64 = 0.3;

/// Parameters of the model beside the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Connection {
    /// Round trip, seconds.
    pub rtt_s: f64,
    /// First retransmission timeout, seconds: `T0`.
    pub rto_s: f64,
    /// Packets that must be acknowledged for one step of the window's growth: 1 for Linux, which counts acknowledged
    /// packets and not ACKs.
    pub b: f64,
    /// Receiver's window, packets: `Wm`.
    pub window: f64,
}

/// Returns Linux's timeout on a path of constant round trip, seconds: the round trip plus the smallest value of the
/// variance term (`TCP_RTO_MIN`, 200 ms, include/net/tcp.h).
#[must_use]
pub fn linux_rto_s(rtt_s: f64) -> f64 {
    rtt_s + 0.2
}

/// Returns the rate by the full model, packets a second.
#[must_use]
pub fn full(p: f64, c: Connection) -> Estimate {
    let unbounded = unbounded_window(p, c.b);
    let w = unbounded.min(c.window);
    let timeouts = timeout_share(p, w);
    let packets = (1.0 - p) / p + w + timeouts / (1.0 - p);
    let rounds = if unbounded < c.window {
        c.b / 2.0 * w + 1.0
    } else {
        c.b / 8.0 * w + (1.0 - p) / (p * w) + 2.0
    };
    let seconds = c.rtt_s * rounds + timeouts * c.rto_s * backoff_factor(p) / (1.0 - p);
    Estimate::checked(packets / seconds, &reasons(p))
}

/// Returns `E[Wu]`: the mean window at a loss if no receiver's window bounded it.
fn unbounded_window(p: f64, b: f64) -> f64 {
    let c = (2.0 + b) / (3.0 * b);
    c + (8.0 * (1.0 - p) / (3.0 * b * p) + c * c).sqrt()
}

/// Returns `Q`: the share of losses that end in a timeout.
fn timeout_share(p: f64, w: f64) -> f64 {
    let arrives = 1.0 - p;
    let three_arrive = arrives.powi(3);
    let share = (1.0 - three_arrive) * (1.0 + three_arrive * (1.0 - arrives.powf(w - 3.0)))
        / (1.0 - arrives.powf(w));
    share.min(1.0)
}

/// Returns `f(p)`: the mean duration of a sequence of timeouts, in units of its first timeout. A timeout doubles up to
/// 64 times the first.
fn backoff_factor(p: f64) -> f64 {
    1.0 + (0..6)
        .map(|n| f64::from(1 << n) * p.powi(n + 1))
        .sum::<f64>()
}

/// Returns the conditions under which the model does not hold, with the reasons.
fn reasons(p: f64) -> [(bool, &'static str); 2] {
    [
        (p <= 0.0, "without loss its result is infinite"),
        (
            p > LOSS_MAX,
            "it was compared with traces up to 30 % loss only",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Connection = Connection {
        rtt_s: 0.1,
        rto_s: 0.3,
        b: 1.0,
        window: 1e9,
    };

    #[test]
    fn approaches_the_square_root_law_at_low_loss() {
        let law = 1.5_f64.sqrt() / 1e-6_f64.sqrt() / 0.1;
        let estimate = full(1e-6, LONG);
        assert!(
            (estimate.value / law - 1.0).abs() < 0.01,
            "{estimate:?} {law}"
        );
    }

    #[test]
    fn timeouts_lower_the_rate_below_the_square_root_law() {
        let law = 1.5_f64.sqrt() / 0.1_f64.sqrt() / 0.1;
        assert!(full(0.1, LONG).value < 0.7 * law);
    }

    #[test]
    fn receive_window_bounds_the_rate() {
        let small = Connection {
            window: 10.0,
            ..LONG
        };
        assert!((full(1e-6, small).value / 100.0 - 1.0).abs() < 0.01);
    }

    #[test]
    fn backoff_ends_at_64_times_the_first_timeout() {
        assert!((backoff_factor(0.5) - (1.0 + 0.5 + 0.5 + 0.5 + 0.5 + 0.5 + 0.5)).abs() < 1e-12);
        assert!(full(0.31, LONG).outside.is_some() && full(0.29, LONG).outside.is_none());
    }
}
