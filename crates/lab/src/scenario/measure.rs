// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of `[[measure]]`: a statistic over the time series of a run, such as the rate after a
//! switch or the settling time.

#[cfg(test)]
use super::schema;
use longhaul_units::{BitRate, Bytes, Time};
use serde::{Deserialize, Serialize};
use toml::Value;

/// Measure as written in the scenario.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct MeasureSpec {
    /// Name of the metric; it ends in the unit of the measure.
    pub(crate) name: String,
    pub(crate) metric: TimeSeriesMetric,
    /// Name of the flow; all transfers if absent.
    pub(crate) flow: Option<String>,
    /// Start of the evaluated part of the run.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "schema::Time"))]
    pub(crate) from: Time,
    /// End of the evaluated part; the end of the run if absent.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) to: Option<Time>,
    #[serde(default)]
    pub(crate) stat: Stat,
    /// Width of a bin; each value is the mean over one bin.
    #[serde(default = "second")]
    #[cfg_attr(test, schemars(with = "schema::Time"))]
    pub(crate) bin: Time,
    /// Level for `settling_time`: `"90 %"` of the slowest link's rate, or a value with its unit.
    #[cfg_attr(test, schemars(with = "Option<schema::Value>"))]
    pub(crate) target: Option<Value>,
    /// Time for which the level must hold; to the end of the part if absent.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) hold: Option<Time>,
}

fn second() -> Time {
    Time::from_secs(1)
}

/// Statistic over the values of all bins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stat {
    #[default]
    Mean,
    Median,
    Min,
    Max,
    P05,
    P95,
    /// Settling time: from the beginning of the part until the values reach a level and stay there.
    /// If they never do, the length of the part.
    SettlingTime,
}

/// Metric that is sampled over time. The name ends in its unit, as metrics do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum TimeSeriesMetric {
    /// Payload that arrived in order, bits a second; the sum over several flows.
    GoodputBps,
    /// Sum of the congestion windows of the senders' connections.
    CwndBytes,
    /// Smoothed round-trip time, the mean over the senders' connections.
    SrttUs,
    /// Retransmitted segments per second.
    RetransmitsPerS,
    /// Jain's fairness index over the rates at which connections receive.
    JainRatio,
}

impl TimeSeriesMetric {
    /// Name in scenarios and results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::GoodputBps => "goodput_bps",
            Self::CwndBytes => "cwnd_bytes",
            Self::SrttUs => "srtt_us",
            Self::RetransmitsPerS => "retransmits_per_s",
            Self::JainRatio => "jain_ratio",
        }
    }

    /// Whether it is sampled at the sender, not at the receiver.
    pub(crate) fn is_sampled_at_sender(self) -> bool {
        matches!(self, Self::CwndBytes | Self::SrttUs | Self::RetransmitsPerS)
    }
}

/// Level of a settling time.
pub(crate) enum Level {
    /// Share of the capacity, 0 to 1.
    Share(f64),
    /// Value in the unit of the metric.
    Value(f64),
}

/// Parses a level; `None` if it is not a share, a number or a value with the metric's unit.
pub(crate) fn level(value: &Value, metric: TimeSeriesMetric) -> Option<Level> {
    let number = value
        .as_float()
        .or(value.as_integer().map(|whole| whole as f64));
    let text = value.as_str().unwrap_or_default();
    let share = || Some(text.strip_suffix('%')?.trim().parse::<f64>().ok()? / 100.0);
    let with_unit = || match metric {
        TimeSeriesMetric::GoodputBps => Some(text.parse::<BitRate>().ok()?.bits() as f64),
        TimeSeriesMetric::CwndBytes => Some(text.parse::<Bytes>().ok()?.get() as f64),
        TimeSeriesMetric::SrttUs => Some(text.parse::<Time>().ok()?.as_secs_f64() * 1e6),
        TimeSeriesMetric::RetransmitsPerS | TimeSeriesMetric::JainRatio => None,
    };
    let value = number.or_else(with_unit).map(Level::Value);
    share().map(Level::Share).or(value)
}
