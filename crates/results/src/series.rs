// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a run went over time, as `result.json` holds it.

use super::view::Course;
use serde::{Deserialize, Serialize};

/// How a run went over time, thinned for drawing. Times count from the start of the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Width of a bin of `goodput_bps`, in milliseconds.
    pub bin_ms: f64,
    /// When its first bin begins: as late as the first flow, and as what of it does not count.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub begin_s: f64,
    /// Goodput at the receiver in each bin, in bits a second.
    pub goodput_bps: Vec<f64>,
    /// The legs of the connection, along the path; one if nothing relays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub legs: Vec<LegSeries>,
    /// What the figures draw over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub courses: Vec<Course>,
    /// What happened when: a change of a link's delay or rate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// What taps saw of the flows, in the order of the scenario.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taps: Vec<TapSeries>,
}

pub(super) fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Data and ACK stream of a flow as a link's tap saw them. Times count from the flow's first data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TapSeries {
    /// The name of the flow.
    pub flow: String,
    /// The link whose tap it was, at the end that is nearer to the sender.
    pub link: String,
    /// Width of a bin, in milliseconds.
    pub bin_ms: f64,
    /// Width of the fine bins that `low` and `high` are of, in milliseconds.
    pub fine_ms: f64,
    /// Payload sent, bits a second.
    pub data_bps: Spread,
    /// Payload newly acknowledged (AckDiff), bits a second.
    pub acked_bps: Spread,
    /// Pure ACKs in a fine bin.
    pub acks: Spread,
    /// Phases, in order.
    pub phases: Vec<TapPhase>,
}

/// Mean of each bin, and the 5th and 95th percentile of the fine bins within it. The vectors are equally long.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The mean of each bin.
    pub mean: Vec<f64>,
    /// The least value of each bin.
    pub low: Vec<f64>,
    /// The largest value of each bin.
    pub high: Vec<f64>,
}

/// A stretch of a flow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TapPhase {
    /// `ramp-up`, `peak`, `steady`, `recovery` or `idle`.
    pub name: String,
    /// Its begin, in seconds.
    pub from_s: f64,
    /// Its end, in seconds.
    pub to_s: f64,
}

/// What the sender of one leg reported through TCP_INFO. The vectors are equally long.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LegSeries {
    /// "server–relay2".
    pub name: String,
    /// Seconds, ascending.
    pub at_s: Vec<f64>,
    /// Congestion window in bytes.
    pub cwnd_bytes: Vec<f64>,
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: Vec<f64>,
}

/// A moment worth a rule across the chart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Time since the run began, in seconds.
    pub at_s: f64,
    /// The words for it.
    pub label: String,
}
