// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of a jitter: the offset of each segment, independent of the others or varying slowly.

use super::{Distribution, Jitter, PARETO_MEAN, PARETO_SCALE};
use crate::random;
use longhaul_units::Time;
use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution as _, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::f64::consts::FRAC_PI_2;

/// State of a [`Jitter`] for one direction of a link.
#[derive(Debug, Clone)]
pub struct JitterProcess {
    jitter: Jitter,
    rng: Xoshiro256PlusPlus,
    /// Start of a trace, and of a curve.
    origin: Time,
    curve: Curve,
}

/// A standard normal value that varies slowly with time.
///
/// Its values at the multiples of the correlation time are independent. Between two of them, z₀ and z₁, the value is
/// z₀·cos θ + z₁·sin θ, where θ goes from 0 to π/2. As cos² + sin² = 1, it is standard normal at any time, and values
/// that are a correlation time apart are independent.
#[derive(Debug, Clone)]
struct Curve {
    seed: u64,
    /// Number of the interval whose ends are known, and the values at its ends.
    interval: u64,
    ends: [f64; 2],
}

impl JitterProcess {
    /// A process that draws from `rng` only (see [`stream`](random::stream)). A trace, or a curve, begins at `start`.
    #[must_use]
    pub fn new(jitter: &Jitter, rng: Xoshiro256PlusPlus, start: Time) -> Self {
        // A clone: the independent draws of a seed stay as they are.
        let seed = rng.clone().next_u64();
        Self {
            jitter: jitter.clone(),
            rng,
            origin: start,
            curve: Curve::new(seed),
        }
    }

    /// Changes the jitter from `now` on.
    pub fn change(&mut self, jitter: &Jitter, now: Time) {
        self.jitter = jitter.clone();
        self.origin = now;
    }

    /// Returns the nanoseconds to add to the delay of a segment that is sent at `now`, which may be negative. The link
    /// clamps the sum at zero, so a delay below the spread cuts the distribution. Times may not decrease.
    #[inline]
    pub fn offset(&mut self, now: Time) -> i64 {
        if self.jitter.is_none() {
            return 0;
        }
        let since = now.since(self.origin);
        let offset_ns = match (&self.jitter.distribution, self.jitter.correlation) {
            (Distribution::Trace(trace), _) => trace.at(since),
            (_, Time::ZERO) => self.draw(),
            (_, correlation) => self.jitter.quantile(self.curve.at(since, correlation)),
        };
        // The cast saturates, so no offset wraps.
        offset_ns.round() as i64
    }

    /// Draws an independent offset in nanoseconds.
    fn draw(&mut self) -> f64 {
        let (spread_ns, rng) = (self.jitter.spread.as_nanos() as f64, &mut self.rng);
        match &self.jitter.distribution {
            Distribution::Normal => {
                let in_spreads: f64 = StandardNormal.sample(rng);
                in_spreads * spread_ns
            }
            Distribution::Uniform => (2.0 * random::unit(rng) - 1.0) * spread_ns,
            Distribution::Pareto => {
                (PARETO_SCALE / random::open_unit(rng).cbrt() - PARETO_MEAN) * spread_ns
            }
            Distribution::LogNormal { .. } => self.jitter.quantile(StandardNormal.sample(rng)),
            Distribution::Table(table) => table.quantile(random::unit(rng)),
            Distribution::None | Distribution::Trace(_) => 0.0,
        }
    }
}

impl Curve {
    fn new(seed: u64) -> Self {
        let mut curve = Self {
            seed,
            interval: 0,
            ends: [0.0; 2],
        };
        curve.ends = [curve.value(0), curve.value(1)];
        curve
    }

    fn at(&mut self, since: Time, correlation: Time) -> f64 {
        let interval = since.as_nanos() / correlation.as_nanos();
        if interval != self.interval {
            self.interval = interval;
            self.ends = [self.value(interval), self.value(interval + 1)];
        }
        let into = since.as_nanos() % correlation.as_nanos();
        let angle = FRAC_PI_2 * into as f64 / correlation.as_nanos() as f64;
        self.ends[0] * angle.cos() + self.ends[1] * angle.sin()
    }

    /// Value at a multiple of the correlation time. It follows from the seed alone, so the curve does not depend on
    /// the times of the segments.
    fn value(&self, multiple: u64) -> f64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed.wrapping_add(multiple));
        StandardNormal.sample(&mut rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::stream;

    #[test]
    fn draws_only_zeros_for_a_spread_of_zero() {
        let none = "uniform:0".parse().unwrap();
        let mut process = JitterProcess::new(&none, stream(1, "jitter"), Time::ZERO);
        assert!((0..100).all(|_| process.offset(Time::ZERO) == 0));
    }

    #[test]
    fn curve_does_not_depend_on_the_times_of_segments() {
        let jitter = "2ms,correlation=100ms".parse().unwrap();
        let offset_at_9s = |step: u64| {
            let mut process = JitterProcess::new(&jitter, stream(1, "jitter"), Time::ZERO);
            let times = (0..=9_000).step_by(step as usize).map(Time::from_millis);
            times.map(|now| process.offset(now)).last()
        };
        assert_eq!(offset_at_9s(1), offset_at_9s(1_000));
    }
}
