// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jitter: the random offset of each segment's delay from the delay of the link.

use super::grammar::{SpecError, serde_as_text, split_name};
use super::random;
use longhaul_units::Time;
use rand_distr::{Distribution as _, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{f64::consts::SQRT_2, fmt, str::FromStr};

/// Distribution of the offset. The mean is always 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Distribution {
    /// No jitter.
    #[default]
    None,
    /// Normal distribution; the spread is the standard deviation.
    Normal,
    /// Uniform distribution; the spread is the half-width.
    Uniform,
    /// Pareto distribution of shape α = 3 and scale m = 2·spread/√3, shifted left by its mean 3m/2.
    /// The spread is the standard deviation. No offset is below −spread/√3, and P(offset > x) falls
    /// as x⁻³. The `pareto` table of iproute2 is of this family, but cut at four deviations.
    Pareto,
}

/// Jitter of a link.
///
/// Text forms: `none`, `2ms` or `normal:2ms`, `uniform:2ms`, `pareto:2ms`. Each may end in
/// `,reorder`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Jitter {
    /// Distribution of the offset.
    pub distribution: Distribution,
    /// Standard deviation, or half-width of [`Distribution::Uniform`].
    pub spread: Time,
    /// Whether a segment may overtake earlier ones. If not, the link holds a segment until its
    /// predecessor has come out. The observed distribution then differs from the declared one when
    /// segments are closer than the spread.
    pub reorder: bool,
}

impl Jitter {
    /// Probability of an offset of at most `x_ns` nanoseconds.
    #[must_use]
    pub fn cdf(&self, x_ns: f64) -> f64 {
        let x = x_ns / self.spread.as_nanos() as f64;
        match self.distribution {
            Distribution::None => f64::from(x_ns >= 0.0),
            _ if self.is_none() => f64::from(x_ns >= 0.0),
            Distribution::Normal => normal_cdf(x),
            Distribution::Uniform => ((x + 1.0) / 2.0).clamp(0.0, 1.0),
            Distribution::Pareto => pareto_cdf(x),
        }
    }

    /// Whether every offset is zero.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.distribution == Distribution::None || self.spread == Time::ZERO
    }
}

/// Scale of the Pareto distribution with shape 3 and standard deviation 1.
const PARETO_SCALE: f64 = 1.154_700_538_379_251_5;
/// Mean of that distribution: α/(α − 1) times the scale.
const PARETO_MEAN: f64 = 1.5 * PARETO_SCALE;

/// Cumulative distribution function at `x` standard deviations of [`Distribution::Pareto`].
fn pareto_cdf(x: f64) -> f64 {
    let tail = PARETO_SCALE / (x + PARETO_MEAN).max(PARETO_SCALE);
    1.0 - tail.powi(3)
}

/// Cumulative distribution function Φ(x) of the normal distribution, within 1.5·10⁻⁷ (Abramowitz and
/// Stegun, formula 7.1.26).
fn normal_cdf(x: f64) -> f64 {
    let z = x.abs() / SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let poly = [
        1.061_405_429,
        -1.453_152_027,
        1.421_413_741,
        -0.284_496_736,
        0.254_829_592,
    ];
    let tail = poly.iter().fold(0.0, |sum, c| (sum + c) * t) * (-z * z).exp() / 2.0;
    if x < 0.0 { tail } else { 1.0 - tail }
}

impl FromStr for Jitter {
    type Err = SpecError;

    fn from_str(input: &str) -> Result<Self, SpecError> {
        parse_jitter(input).map_err(|reason| SpecError::new("jitter", input, reason))
    }
}

fn parse_jitter(input: &str) -> Result<Jitter, String> {
    let (text, reorder) = match input.trim().split_once(',') {
        Some((text, flag)) if flag.trim() == "reorder" => (text, true),
        Some((_, other)) => return Err(format!("unknown suffix {other:?} (known: reorder)")),
        None => (input.trim(), false),
    };
    let (distribution, spread) = match split_name(text) {
        ("none", "") => (Distribution::None, "0"),
        ("normal", spread) => (Distribution::Normal, spread),
        ("uniform", spread) => (Distribution::Uniform, spread),
        ("pareto", spread) => (Distribution::Pareto, spread),
        (_, "") => (Distribution::Normal, text),
        (name, _) => {
            return Err(format!(
                "unknown distribution {name:?} (known: normal, uniform, pareto)"
            ));
        }
    };
    let spread = spread.parse::<Time>().map_err(|e| e.to_string())?;
    Ok(Jitter {
        distribution,
        spread,
        reorder,
    })
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spread = self.spread.exact();
        match self.distribution {
            Distribution::None => f.write_str("none")?,
            Distribution::Normal => f.write_str(&spread)?,
            Distribution::Uniform => write!(f, "uniform:{spread}")?,
            Distribution::Pareto => write!(f, "pareto:{spread}")?,
        }
        f.write_str(if self.reorder { ",reorder" } else { "" })
    }
}

serde_as_text!(
    Jitter,
    "a jitter such as \"2ms\", \"uniform:2ms\" or \"pareto:2ms,reorder\""
);

/// State of a [`Jitter`] for one direction of a link.
#[derive(Debug, Clone)]
pub struct JitterProcess {
    distribution: Distribution,
    spread_ns: f64,
    rng: Xoshiro256PlusPlus,
}

impl JitterProcess {
    /// A process that draws from `rng` only (see [`stream`](super::random::stream)).
    #[must_use]
    pub fn new(jitter: &Jitter, rng: Xoshiro256PlusPlus) -> Self {
        let mut process = Self {
            distribution: Distribution::None,
            spread_ns: 0.0,
            rng,
        };
        process.change(jitter);
        process
    }

    /// Changes the jitter.
    pub fn change(&mut self, jitter: &Jitter) {
        self.distribution = if jitter.is_none() {
            Distribution::None
        } else {
            jitter.distribution
        };
        self.spread_ns = jitter.spread.as_nanos() as f64;
    }

    /// Draws the nanoseconds to add to the delay of the next segment, which may be negative. The link
    /// clamps the sum at zero, so a delay below the spread cuts the distribution.
    #[inline]
    pub fn offset(&mut self) -> i64 {
        let offset_in_spreads = match self.distribution {
            Distribution::None => return 0,
            Distribution::Normal => StandardNormal.sample(&mut self.rng),
            Distribution::Uniform => 2.0 * random::unit(&mut self.rng) - 1.0,
            Distribution::Pareto => {
                PARETO_SCALE / random::open_unit(&mut self.rng).cbrt() - PARETO_MEAN
            }
        };
        // The cast saturates, so no offset wraps.
        (offset_in_spreads * self.spread_ns).round() as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::stream;

    #[test]
    fn parses_its_own_text() {
        for text in [
            "none",
            "2ms",
            "uniform:2ms",
            "pareto:1500us,reorder",
            "2ms,reorder",
        ] {
            let jitter: Jitter = text.parse().unwrap();
            assert_eq!(jitter.to_string().parse(), Ok(jitter), "{text}");
        }
        assert_eq!("normal:2ms".parse::<Jitter>(), "2ms".parse());
    }

    #[test]
    fn names_the_text_that_it_rejects() {
        for bad in [
            "",
            "-2ms",
            "2",
            "cauchy:2ms",
            "uniform",
            "uniform:",
            "2ms,order",
        ] {
            let error = bad.parse::<Jitter>().unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }

    #[test]
    fn matches_known_points_of_the_distribution_functions() {
        let cdf = |text: &str, x| text.parse::<Jitter>().unwrap().cdf(x);
        assert!((cdf("1us", 0.0) - 0.5).abs() < 2e-7);
        assert!((cdf("1us", -1960.0) - 0.025).abs() < 1e-5);
        assert_eq!(cdf("uniform:1us", 500.0), 0.75);
        assert_eq!(cdf("pareto:1us", -578.0), 0.0);
        assert!(cdf("pareto:1us", -577.0) > 0.0);
        assert_eq!(cdf("none", -1.0), 0.0);
        assert_eq!(cdf("none", 0.0), 1.0);
    }

    #[test]
    fn draws_only_zeros_for_a_spread_of_zero() {
        let mut process = JitterProcess::new(&"uniform:0".parse().unwrap(), stream(1, "jitter"));
        assert!((0..100).all(|_| process.offset() == 0));
    }
}
