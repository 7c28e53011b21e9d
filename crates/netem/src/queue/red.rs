// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random early detection: Floyd and Jacobson, "Random Early Detection Gateways for Congestion
//! Avoidance" (1993), with the gentle slope above `max` (Floyd, 2000).
//!
//! The backlog is counted in bytes, and the drop probability does not depend on the segment's own
//! size (RFC 7141 §2.2).

use crate::random::unit;
use longhaul_units::{Bytes, Ratio, Time};
use rand::Rng;

/// The state of one queue.
#[derive(Debug, Clone)]
pub struct Red {
    min: f64,
    max: f64,
    probability: f64,
    weight: f64,
    /// Time to transmit a full segment: the step by which the mean of an idle queue decays.
    segment_time: Time,
    mean: f64,
    /// Arrivals since the last drop while the mean was above `min`.
    spared: u32,
}

impl Red {
    /// A queue whose mean backlog is 0. `min` is below `max`.
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
            spared: 0,
        }
    }

    /// Whether an arrival may join a queue of `backlog` bytes. `idle_since` is the time when the
    /// queue ran empty, if it is empty now.
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
            self.spared = 0;
            return true;
        }
        self.spare(probability, rng)
    }

    /// The mean backlog in bytes.
    #[must_use]
    pub fn mean(&self) -> Bytes {
        Bytes::new(self.mean as u64)
    }

    /// The drop probability that the mean backlog asks for: p_b of the paper.
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

    /// The paper's §IV: an empty queue counts as the arrivals of zero backlog that the link could
    /// have sent meanwhile.
    fn decay(&mut self, idle: Time) {
        let step = self.segment_time.as_nanos().max(1) as f64;
        self.mean *= (1.0 - self.weight).powf(idle.as_nanos() as f64 / step);
    }

    /// Drops with p_a = p_b / (1 − spared·p_b), which spaces drops evenly over 1/p_b arrivals
    /// instead of geometrically.
    fn spare(&mut self, probability: f64, rng: &mut impl Rng) -> bool {
        let room = 1.0 - f64::from(self.spared) * probability;
        let dropped = unit(rng) * room < probability;
        self.spared = if dropped { 0 } else { self.spared + 1 };
        !dropped
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
    fn the_probability_rises_gently() {
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
    fn a_burst_hardly_moves_the_mean() {
        let mut red = red(0.002);
        let mut rng = stream(1, "red");
        assert!((0..10).all(|_| red.admit(Time::ZERO, 1_000_000, None, &mut rng)));
        assert!(red.mean() < Bytes::new(20_000));
    }

    #[test]
    fn an_idle_queue_forgets() {
        let mut red = red(0.002);
        let mut rng = stream(1, "red");
        for _ in 0..1000 {
            red.admit(Time::ZERO, 200_000, None, &mut rng);
        }
        let before = red.mean().get() as f64;
        // 500 segments' worth of silence: the mean falls by (1 − 0.002)^500.
        red.admit(Time::from_millis(6), 0, Some(Time::ZERO), &mut rng);
        let want = before * 0.998f64.powi(500);
        assert!((red.mean().get() as f64 - want).abs() < 2.0);
    }
}
