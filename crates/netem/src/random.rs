// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reproducible random numbers: one stream for each component of a link.
//!
//! A component that draws more or fewer numbers must not change the decisions of other components.
//! For example, jitter must not change the loss pattern of a seed. So each component has a generator
//! of its own, derived from the seed and the component's name.

use longhaul_units::Ratio;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The generator of the component `name` under `seed`.
///
/// The seed's eight little-endian bytes and then the name's UTF-8 bytes are hashed with FNV-1a (64
/// bits). SplitMix64 expands the hash to the 256-bit state, as the authors of xoshiro recommend.
/// For one name, different seeds always give different streams, because each step of FNV-1a can be
/// inverted.
#[must_use]
pub fn stream(seed: u64, name: &str) -> Xoshiro256PlusPlus {
    let hash = seed
        .to_le_bytes()
        .into_iter()
        .chain(name.bytes())
        .fold(FNV_OFFSET, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
        });
    Xoshiro256PlusPlus::seed_from_u64(hash)
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Draws a number in [0, 1), a multiple of 2⁻⁵³.
#[must_use]
pub fn unit(rng: &mut impl Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Draws a number in (0, 1), an odd multiple of 2⁻⁵³. It is never 0, so its logarithm is finite.
#[must_use]
pub fn open_unit(rng: &mut impl Rng) -> f64 {
    ((rng.next_u64() >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64)
}

/// Bernoulli trials: independent trials that succeed with the same probability.
///
/// The number of failures before the next success is drawn in one step, from a geometric distribution.
/// A trial is then one decrement. At a probability of 0.1 %, a thousand trials cost one logarithm.
#[derive(Debug, Clone)]
pub struct BernoulliTrials {
    /// 1 / ln(1 − p): −∞ for p = 0, −0 for p = 1.
    scale: f64,
    /// Failures before the next success; `None` until they are drawn.
    failures: Option<u64>,
}

impl BernoulliTrials {
    /// Trials that succeed with `probability`.
    #[must_use]
    pub fn new(probability: Ratio) -> Self {
        Self {
            scale: (-probability.get()).ln_1p().recip(),
            failures: None,
        }
    }

    /// Makes one trial, and returns whether it succeeds. Pass the same generator each time.
    #[inline]
    pub fn succeeds(&mut self, rng: &mut impl Rng) -> bool {
        match self.failures {
            Some(remaining @ 1..) => {
                self.failures = Some(remaining - 1);
                false
            }
            Some(0) => {
                self.failures = None;
                true
            }
            None => {
                self.failures = Some(self.draw(rng));
                self.succeeds(rng)
            }
        }
    }

    /// Number of failures before the next success. Makes no trial.
    pub fn failures_ahead(&mut self, rng: &mut impl Rng) -> u64 {
        match self.failures {
            Some(remaining) => remaining,
            None => *self.failures.insert(self.draw(rng)),
        }
    }

    /// Makes `n` trials at once, which all fail. `n` is at most [`failures_ahead`](Self::failures_ahead).
    pub fn skip(&mut self, n: u64) {
        if let Some(remaining) = &mut self.failures {
            *remaining -= n;
        }
    }

    /// Draws the number of failures by inverting the geometric distribution: ⌊ln u / ln(1 − p)⌋. For p = 0 the
    /// cast saturates at 2⁶⁴ − 1, more trials than any link makes.
    fn draw(&self, rng: &mut impl Rng) -> u64 {
        (open_unit(rng).ln() * self.scale) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derives_streams_from_seed_and_name() {
        let first = |seed, name| stream(seed, name).next_u64();
        assert_eq!(first(7, "loss"), first(7, "loss"));
        assert_ne!(first(7, "loss"), first(8, "loss"));
        assert_ne!(first(7, "loss"), first(7, "jitter"));
    }

    #[test]
    fn draws_units_within_their_bounds() {
        let mut rng = stream(1, "unit");
        for _ in 0..10_000 {
            assert!((0.0..1.0).contains(&unit(&mut rng)));
            let open = open_unit(&mut rng);
            assert!(open > 0.0 && open < 1.0);
        }
    }

    #[test]
    fn succeeds_always_at_one_and_never_at_zero() {
        let mut rng = stream(1, "trials");
        let (mut always, mut never) = (
            BernoulliTrials::new(Ratio::ONE),
            BernoulliTrials::new(Ratio::ZERO),
        );
        for _ in 0..10_000 {
            assert!(always.succeeds(&mut rng));
            assert!(!never.succeeds(&mut rng));
        }
    }
}
