// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random early detection (RED): Floyd and Jacobson, "Random Early Detection Gateways for Congestion
//! Avoidance" (1993), with the gentle slope above `max` (Floyd, 2000).
//!
//! The backlog is measured in bytes. The drop probability does not depend on the size of the segment
//! (RFC 7141 §2.2).

use crate::random::unit;
use longhaul_units::{Bytes, Ratio, Time};
use rand::Rng;

/// RED state of a queue.
#[derive(Debug, Clone)]
pub struct Red {
    /// Thresholds of the mean backlog, in bytes.
    min: f64,
    max: f64,
    /// Drop probability at `max`.
    probability: f64,
    /// Weight of an arrival in the mean.
    weight: f64,
    /// Time to transmit a full segment, the step by which the mean of an idle queue decays.
    segment_time: Time,
    /// Mean backlog in bytes.
    mean: f64,
    /// Arrivals since the last drop while the mean was above `min`: `count` of the paper.
    admitted: u32,
}

impl Red {
    /// RED for a queue whose mean backlog is 0. `min` must be below `max`.
    #[must_use]
    pub fn new(
        min: Bytes,
        max: Bytes,
        probability: Ratio,
        weight: Ratio,
        segment_time: Time,
    ) -> Self {
        Self {
            min: min.get() as f64,
            max: max.get() as f64,
            probability: probability.get(),
            weight: weight.get(),
            segment_time,
            mean: 0.0,
            admitted: 0,
        }
    }

    /// Takes the parameters of another RED, and keeps the mean backlog.
    pub fn retune(&mut self, other: &Self) {
        let Self { mean, admitted, .. } = *self;
        *self = Self {
            mean,
            admitted,
            ..other.clone()
        };
    }

    /// Decides on an arrival, and returns whether it may join a queue of `backlog` bytes. `idle_since`
    /// is the time at which the transmitter became idle, if it is now.
    pub fn admit(
        &mut self,
        now: Time,
        backlog: u64,
        idle_since: Option<Time>,
        rng: &mut impl Rng,
    ) -> bool {
        match idle_since {
            Some(since) => self.decay(now.since(since)),
            None => self.mean += self.weight * (backlog as f64 - self.mean),
        }
        let probability = self.drop_probability();
        if probability == 0.0 {
            self.admitted = 0;
            return true;
        }
        self.admit_at_random(probability, rng)
    }

    /// Mean backlog.
    #[must_use]
    pub fn mean(&self) -> Bytes {
        Bytes::new(self.mean as u64)
    }

    /// Drop probability at the mean backlog: p_b of the paper.
    #[must_use]
    pub fn drop_probability(&self) -> f64 {
        match self.mean {
            mean if mean < self.min => 0.0,
            mean if mean < self.max => self.probability * (mean - self.min) / (self.max - self.min),
            mean if mean < 2.0 * self.max => {
                self.probability + (1.0 - self.probability) * (mean - self.max) / self.max
            }
            _ => 1.0,
        }
    }

    /// Decays the mean after an idle time (§IV of the paper). The idle time counts as arrivals at an
    /// empty queue, as many as the link could have sent.
    fn decay(&mut self, idle: Time) {
        let step = self.segment_time.as_nanos().max(1) as f64;
        self.mean *= (1.0 - self.weight).powf(idle.as_nanos() as f64 / step);
    }

    /// Drops with probability p_a = p_b / (1 − admitted·p_b), and returns whether the arrival may join.
    /// The gaps between drops are then uniform up to 1/p_b arrivals instead of geometric.
    fn admit_at_random(&mut self, probability: f64, rng: &mut impl Rng) -> bool {
        let scale = 1.0 - f64::from(self.admitted) * probability;
        let is_dropped = unit(rng) * scale < probability;
        self.admitted = if is_dropped { 0 } else { self.admitted + 1 };
        !is_dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::stream;

    fn red(weight: f64) -> Red {
        let (min, max) = (Bytes::new(100_000), Bytes::new(300_000));
        let p = Ratio::new(0.1).unwrap();
        Red::new(
            min,
            max,
            p,
            Ratio::new(weight).unwrap(),
            Time::from_micros(12),
        )
    }

    #[test]
    fn raises_the_drop_probability_gently() {
        let mut red = red(1.0);
        let mut at = |backlog| {
            red.admit(Time::ZERO, backlog, None, &mut stream(1, "red"));
            red.drop_probability()
        };
        assert_eq!(at(99_999), 0.0);
        assert_eq!(at(200_000), 0.05);
        assert!((at(300_000) - 0.1).abs() < 1e-12);
        assert!((at(450_000) - 0.55).abs() < 1e-12);
        assert_eq!(at(600_000), 1.0);
    }

    #[test]
    fn admits_a_burst_that_hardly_moves_the_mean() {
        let mut red = red(0.002);
        let mut rng = stream(1, "red");
        assert!((0..10).all(|_| red.admit(Time::ZERO, 1_000_000, None, &mut rng)));
        assert!(red.mean() < Bytes::new(20_000));
    }

    #[test]
    fn decays_the_mean_while_idle() {
        let mut red = red(0.002);
        let mut rng = stream(1, "red");
        for _ in 0..1000 {
            red.admit(Time::ZERO, 200_000, None, &mut rng);
        }
        let before = red.mean().get() as f64;
        // Idle for the time of 500 segments: the mean falls by (1 − 0.002)^500.
        red.admit(Time::from_millis(6), 0, Some(Time::ZERO), &mut rng);
        let want = before * 0.998f64.powi(500);
        assert!((red.mean().get() as f64 - want).abs() < 2.0);
    }
}
