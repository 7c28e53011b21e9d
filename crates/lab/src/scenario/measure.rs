// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[measure]]`: a figure of how a run goes over time, such as the rate after a switch or the time until it is back.

use longhaul_units::{BitRate, Bytes, Time};
use serde::{Deserialize, Serialize};
use toml::Value;

/// A measure as the scenario's file says it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MeasurePlan {
    /// Of the metric; it ends in the unit of what is measured.
    pub(crate) name: String,
    pub(crate) of: Quantity,
    /// The flow; all that move bytes if absent.
    pub(crate) flow: Option<String>,
    /// The part of the run, from its start; to its end if absent.
    #[serde(default)]
    pub(crate) from: Time,
    pub(crate) to: Option<Time>,
    #[serde(default)]
    pub(crate) stat: Stat,
    /// What one value is the mean of.
    #[serde(default = "second")]
    pub(crate) bin: Time,
    /// The level that `time_to` waits for: `"90 %"` of the slowest link's rate, or a quantity.
    pub(crate) reaches: Option<Value>,
    /// How long it must stay there; to the end of the part if absent.
    pub(crate) hold: Option<Time>,
}

fn second() -> Time {
    Time::from_secs(1)
}

/// What is made of the values of all bins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stat {
    #[default]
    Mean,
    Median,
    Min,
    Max,
    P05,
    P95,
    /// From the beginning of the part until it first reaches a level and stays there. If it never does,
    /// the length of the part.
    TimeTo,
}

/// What can be followed over time. The name ends in its unit, as metrics do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Quantity {
    /// Payload that arrived in order, bits a second; of several flows the sum.
    GoodputBps,
    /// Congestion windows of the senders' connections, together.
    CwndBytes,
    /// Smoothed round trip, the mean over the senders' connections.
    SrttUs,
    /// Segments sent again, a second.
    RetransmitsPerS,
    /// Jain's fairness index over the rates at which connections receive.
    JainRatio,
}

impl Quantity {
    /// As scenarios and results write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::GoodputBps => "goodput_bps",
            Self::CwndBytes => "cwnd_bytes",
            Self::SrttUs => "srtt_us",
            Self::RetransmitsPerS => "retransmits_per_s",
            Self::JainRatio => "jain_ratio",
        }
    }

    /// Whether it is seen where data leaves, not where it arrives.
    pub(crate) fn of_senders(self) -> bool {
        matches!(self, Self::CwndBytes | Self::SrttUs | Self::RetransmitsPerS)
    }
}

pub(crate) enum Level {
    Share(f64),
    Value(f64),
}

pub(crate) fn level(value: &Value, quantity: Quantity) -> Option<Level> {
    let number = value
        .as_float()
        .or(value.as_integer().map(|whole| whole as f64));
    let text = value.as_str().unwrap_or_default();
    let share = || Some(text.strip_suffix('%')?.trim().parse::<f64>().ok()? / 100.0);
    let said = || match quantity {
        Quantity::GoodputBps => Some(text.parse::<BitRate>().ok()?.bits() as f64),
        Quantity::CwndBytes => Some(text.parse::<Bytes>().ok()?.get() as f64),
        Quantity::SrttUs => Some(text.parse::<Time>().ok()?.as_secs_f64() * 1e6),
        Quantity::RetransmitsPerS | Quantity::JainRatio => None,
    };
    let value = number.or_else(said).map(Level::Value);
    share().map(Level::Share).or(value)
}
