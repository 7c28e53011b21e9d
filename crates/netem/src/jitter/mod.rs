// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jitter: the part of each segment's delay that varies. It is independent from segment to segment, varies slowly, or
//! comes from a file.

mod process;
pub mod samples;

use super::grammar::{Arguments, SpecError, serde_as_text, split_name};
use longhaul_units::Time;
pub use process::JitterProcess;
use samples::{DelayTable, DelayTrace};
use std::{f64::consts::SQRT_2, fmt, str::FromStr, sync::Arc};

/// Distribution of the offset. The mean is 0, except of files: their delays are added as they are.
#[derive(Debug, Clone, PartialEq, Default)]
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
    /// Lognormal distribution, shifted left by its mean. The spread is the standard deviation.
    LogNormal {
        /// Standard deviation of the logarithm, which gives the shape; [`LOG_NORMAL_SIGMA`] by default.
        sigma: f64,
    },
    /// Measured delays from a file.
    Table(Arc<DelayTable>),
    /// Delay over time from a file.
    Trace(Arc<DelayTrace>),
}

/// Default shape of [`Distribution::LogNormal`]: a skewness of 1.75.
pub const LOG_NORMAL_SIGMA: f64 = 0.5;

/// Jitter of a link.
///
/// Text forms: `none`, `2ms` or `normal:2ms`, `uniform:2ms`, `pareto:2ms`, `lognormal:2ms[,sigma=0.5]`, `table:FILE`,
/// `trace:FILE`. Each may have `,correlation=TIME` and `,reorder`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Jitter {
    /// Distribution of the offset.
    pub distribution: Distribution,
    /// Standard deviation, or half-width of [`Distribution::Uniform`]; 0 with a file.
    pub spread: Time,
    /// Time after which the offset is independent of what it was. In between it varies slowly, and has the
    /// distribution at any time. 0: the offset of each segment is independent.
    pub correlation: Time,
    /// Whether a segment may overtake earlier ones. If not, the link holds a segment until its
    /// predecessor has come out. The observed distribution then differs from the declared one when
    /// segments are closer than the spread, unless the offset varies slowly.
    pub reorder: bool,
}

impl Jitter {
    /// Probability of an offset of at most `x_ns` nanoseconds.
    #[must_use]
    pub fn cdf(&self, x_ns: f64) -> f64 {
        let x = x_ns / self.spread.as_nanos() as f64;
        match &self.distribution {
            Distribution::Table(table) => table.cdf(x_ns),
            _ if self.is_none() => f64::from(x_ns >= 0.0),
            Distribution::Normal => normal_cdf(x),
            Distribution::Uniform => ((x + 1.0) / 2.0).clamp(0.0, 1.0),
            Distribution::Pareto => pareto_cdf(x),
            Distribution::LogNormal { sigma } => match x / log_normal_scale(*sigma) + 1.0 {
                ratio if ratio <= 0.0 => 0.0,
                ratio => normal_cdf(ratio.ln() / sigma + sigma / 2.0),
            },
            Distribution::None | Distribution::Trace(_) => f64::from(x_ns >= 0.0),
        }
    }

    /// Offset in nanoseconds that belongs to the standard normal value `z`: both have the same probability of a smaller
    /// one.
    fn quantile(&self, z: f64) -> f64 {
        let spread_ns = self.spread.as_nanos() as f64;
        match &self.distribution {
            Distribution::Normal => z * spread_ns,
            Distribution::Uniform => (2.0 * normal_cdf(z) - 1.0) * spread_ns,
            Distribution::Pareto => {
                let above = normal_cdf(-z).max(1e-7);
                (PARETO_SCALE / above.cbrt() - PARETO_MEAN) * spread_ns
            }
            Distribution::LogNormal { sigma } => {
                let ratio = (sigma * z - sigma * sigma / 2.0).exp();
                (ratio - 1.0) * log_normal_scale(*sigma) * spread_ns
            }
            Distribution::Table(table) => table.quantile(normal_cdf(z)),
            Distribution::None | Distribution::Trace(_) => 0.0,
        }
    }

    /// Whether every offset is zero.
    #[must_use]
    pub fn is_none(&self) -> bool {
        match self.distribution {
            Distribution::None => true,
            Distribution::Table(_) | Distribution::Trace(_) => false,
            _ => self.spread == Time::ZERO,
        }
    }

    /// Whether segments that are close to each other wait for their predecessors, so that their delays are longer than
    /// declared: offsets are independent, or vary faster than time passes, and segments keep the order.
    #[must_use]
    pub fn lengthens_delays(&self) -> bool {
        let is_slow = match self.distribution {
            Distribution::Trace(_) => true,
            Distribution::Table(_) => self.correlation >= self.longest(),
            _ => self.correlation >= self.spread * 10,
        };
        !self.is_none() && !self.reorder && !is_slow
    }

    /// Time that an offset hardly exceeds; of files, never.
    #[must_use]
    pub fn longest(&self) -> Time {
        match &self.distribution {
            Distribution::Table(table) => table.longest(),
            Distribution::Trace(trace) => trace.longest(),
            _ => self.spread * 8,
        }
    }
}

/// Scale of the Pareto distribution with shape 3 and standard deviation 1.
const PARETO_SCALE: f64 = 1.154_700_538_379_251_5;
/// Mean of that distribution: α/(α − 1) times the scale.
const PARETO_MEAN: f64 = 1.5 * PARETO_SCALE;

/// Mean of a lognormal distribution of shape `sigma` whose standard deviation is 1.
fn log_normal_scale(sigma: f64) -> f64 {
    1.0 / ((sigma * sigma).exp() - 1.0).sqrt()
}

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
        Self::parse(input, |_| Err(NO_FILE.to_owned()))
    }
}

/// Reason why a text without access to files refuses one.
const NO_FILE: &str = "a file is accepted only by longhaul link, and for links of a scenario";

/// Longest correlation time: a day.
const CORRELATION_MAX: Time = Time::from_secs(86_400);

impl Jitter {
    /// Parses a jitter, whose file `read` reads.
    ///
    /// # Errors
    ///
    /// A text or a file that is not of a form above.
    pub fn parse(
        input: &str,
        read: impl Fn(&str) -> Result<String, String>,
    ) -> Result<Self, SpecError> {
        parse_jitter(input, read).map_err(|reason| SpecError::new("jitter", input, reason))
    }
}

fn parse_jitter(
    input: &str,
    read: impl Fn(&str) -> Result<String, String>,
) -> Result<Jitter, String> {
    let (text, rest) = input.trim().split_once(',').unwrap_or((input.trim(), ""));
    let is_reorder = |part: &&str| part.trim() == "reorder";
    let parts = rest.split(',').filter(|part| !part.is_empty());
    let (flags, arguments): (Vec<_>, Vec<_>) = parts.partition(is_reorder);
    let arguments = arguments.join(",");
    let mut arguments = Arguments::parse(&arguments).map_err(|e| format!("{e}, nor reorder"))?;
    let correlation = arguments.take("correlation")?.unwrap_or(Time::ZERO);
    let sigma: Option<f64> = arguments.take("sigma")?;
    if arguments.take::<String>("reorder")?.is_some() {
        return Err("reorder takes no value".to_owned());
    }
    arguments.finish("correlation, sigma, reorder")?;
    let (distribution, spread) = parse_distribution(text, sigma, read)?;
    if sigma.is_some() && !matches!(distribution, Distribution::LogNormal { .. }) {
        return Err("sigma is the shape of lognormal".to_owned());
    }
    if correlation > CORRELATION_MAX {
        return Err("a correlation time is at most a day".to_owned());
    }
    Ok(Jitter {
        distribution,
        spread,
        correlation,
        reorder: !flags.is_empty(),
    })
}

fn parse_distribution(
    text: &str,
    sigma: Option<f64>,
    read: impl Fn(&str) -> Result<String, String>,
) -> Result<(Distribution, Time), String> {
    let file = |name: &str| match name {
        "" => Err("a file is missing".to_owned()),
        name => read(name).map_err(|error| format!("{name}: {error}")),
    };
    let (distribution, spread) = match split_name(text) {
        ("none", "") => (Distribution::None, "0"),
        ("normal", spread) => (Distribution::Normal, spread),
        ("uniform", spread) => (Distribution::Uniform, spread),
        ("pareto", spread) => (Distribution::Pareto, spread),
        ("lognormal", spread) => (log_normal(sigma)?, spread),
        ("table", name) => {
            let table =
                DelayTable::parse(name, &file(name)?).map_err(|e| format!("{name}: {e}"))?;
            (Distribution::Table(Arc::new(table)), "0")
        }
        ("trace", name) => {
            let trace =
                DelayTrace::parse(name, &file(name)?).map_err(|e| format!("{name}: {e}"))?;
            (Distribution::Trace(Arc::new(trace)), "0")
        }
        (_, "") => (Distribution::Normal, text),
        (name, _) => {
            return Err(format!(
                "unknown distribution {name:?} (known: normal, uniform, pareto, lognormal, table, trace)"
            ));
        }
    };
    let spread = spread.parse::<Time>().map_err(|e| e.to_string())?;
    Ok((distribution, spread))
}

fn log_normal(sigma: Option<f64>) -> Result<Distribution, String> {
    match sigma.unwrap_or(LOG_NORMAL_SIGMA) {
        sigma if (0.01..=3.0).contains(&sigma) => Ok(Distribution::LogNormal { sigma }),
        _ => Err("sigma is a number from 0.01 to 3".to_owned()),
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spread = self.spread.exact();
        match &self.distribution {
            Distribution::None => f.write_str("none")?,
            Distribution::Normal => f.write_str(&spread)?,
            Distribution::Uniform => write!(f, "uniform:{spread}")?,
            Distribution::Pareto => write!(f, "pareto:{spread}")?,
            Distribution::LogNormal { sigma } => write!(f, "lognormal:{spread},sigma={sigma}")?,
            Distribution::Table(table) => table.fmt(f)?,
            Distribution::Trace(trace) => trace.fmt(f)?,
        }
        if self.correlation > Time::ZERO {
            write!(f, ",correlation={}", self.correlation.exact())?;
        }
        f.write_str(if self.reorder { ",reorder" } else { "" })
    }
}

serde_as_text!(
    Jitter,
    "a jitter such as \"2ms\", \"uniform:2ms\" or \"pareto:2ms,reorder\""
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_its_own_text() {
        for text in [
            "none",
            "2ms",
            "uniform:2ms",
            "pareto:1500us,reorder",
            "2ms,reorder",
            "lognormal:2ms",
            "lognormal:2ms,sigma=1.5,correlation=1s,reorder",
            "uniform:2ms,correlation=200ms",
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
            "2ms,sigma=1",
            "lognormal:2ms,sigma=0",
            "2ms,correlation=25%",
            "table:delays",
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
}
