// SPDX-License-Identifier: MIT OR Apache-2.0
//! Repeatable randomness: one stream of numbers for each component of a link.
//!
//! A component that draws more or fewer numbers than before must not change what another one
//! decides: turning jitter on leaves the loss pattern of a seed as it was. So each component has a
//! generator of its own, derived from the seed and the component's name.

use longhaul_units::Ratio;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The generator of the component `name` under `seed`.
///
/// Derivation: FNV-1a (64 bits) over the seed's eight little-endian bytes followed by the name's
/// UTF-8 bytes; the hash is expanded to the 256-bit state by SplitMix64, as the authors of
/// xoshiro recommend. For one name, different seeds always give different streams (each step of
/// FNV-1a can be undone).
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

/// A number in [0, 1), a multiple of 2⁻⁵³.
#[must_use]
pub fn unit(rng: &mut impl Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// A number in (0, 1), for logarithms and powers: an odd multiple of 2⁻⁵³.
#[must_use]
pub fn open_unit(rng: &mut impl Rng) -> f64 {
    ((rng.next_u64() >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64)
}

/// Independent trials that succeed with one probability.
///
/// The number of failures before the next success is drawn at once (it is geometric), so that a
/// trial is one decrement until a success comes: 0.1 % costs a logarithm every thousand trials.
#[derive(Debug, Clone)]
pub struct Trials {
    /// 1 / ln(1 − p): −∞ for p = 0, −0 for p = 1.
    scale: f64,
    /// Failures still to come; `None` until the first trial, which draws it.
    failures: Option<u64>,
}

impl Trials {
    /// Trials that succeed with `probability`.
    #[must_use]
    pub fn new(probability: Ratio) -> Self {
        Self {
            scale: (-probability.get()).ln_1p().recip(),
            failures: None,
        }
    }

    /// One trial. All trials of one `Trials` must use the same generator.
    #[inline]
    pub fn succeeds(&mut self, rng: &mut impl Rng) -> bool {
        match self.failures {
            Some(left @ 1..) => {
                self.failures = Some(left - 1);
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

    /// How many of the next trials fail before one succeeds. Nothing is tried by this.
    pub fn failures(&mut self, rng: &mut impl Rng) -> u64 {
        match self.failures {
            Some(left) => left,
            None => *self.failures.insert(self.draw(rng)),
        }
    }

    /// Does `n` trials at once, of which [`failures`](Self::failures) has said that all fail.
    pub fn skip(&mut self, n: u64) {
        if let Some(left) = &mut self.failures {
            *left -= n;
        }
    }

    /// Inverse of the geometric distribution: ⌊ln u / ln(1 − p)⌋ failures. For p = 0 the cast
    /// saturates at 2⁶⁴ − 1, which no link lives to see.
    fn draw(&self, rng: &mut impl Rng) -> u64 {
        (open_unit(rng).ln() * self.scale) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_depends_on_seed_and_name() {
        let first = |seed, name| stream(seed, name).next_u64();
        assert_eq!(first(7, "loss"), first(7, "loss"));
        assert_ne!(first(7, "loss"), first(8, "loss"));
        assert_ne!(first(7, "loss"), first(7, "jitter"));
    }

    #[test]
    fn units_stay_inside_their_bounds() {
        let mut rng = stream(1, "unit");
        for _ in 0..10_000 {
            assert!((0.0..1.0).contains(&unit(&mut rng)));
            let open = open_unit(&mut rng);
            assert!(open > 0.0 && open < 1.0);
        }
    }

    #[test]
    fn certain_and_impossible_trials() {
        let mut rng = stream(1, "trials");
        let (mut always, mut never) = (Trials::new(Ratio::ONE), Trials::new(Ratio::ZERO));
        for _ in 0..10_000 {
            assert!(always.succeeds(&mut rng));
            assert!(!never.succeeds(&mut rng));
        }
    }
}
