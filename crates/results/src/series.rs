// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time series of a run, as in `result.json`.

use super::view::TimeSeries;
pub use longhaul_report::chart::Event;
use serde::{Deserialize, Serialize};

/// Time series of a run, reduced for drawing. Times count from the start of the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Width of a bin of `goodput_bps`, ms.
    pub bin_ms: f64,
    /// Start of the first bin, seconds: later than 0 if all flows start later or the first part is excluded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub begin_s: f64,
    /// Goodput at the receiver in each bin, bit/s.
    pub goodput_bps: Vec<f64>,
    /// Legs of the path, in order; one without relays. A leg is one connection between neighbours.
    #[serde(
        rename = "path_segments",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    pub legs: Vec<LegSeries>,
    /// Time series for the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub time_series: Vec<TimeSeries>,
    /// Events, for instance a change of a link's delay or rate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// Captured time series of the flows, in the order of the scenario.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub captures: Vec<CaptureSeries>,
}

pub(super) fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Data and ACK stream of a flow, captured on a link. Times count from the flow's first data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaptureSeries {
    /// Name of the flow.
    pub flow: String,
    /// Link of the capture point, at its end that is nearer to the sender.
    pub link: String,
    /// Width of a bin, ms.
    pub bin_ms: f64,
    /// Width of the fine bins of which `low` and `high` are percentiles, ms.
    pub fine_ms: f64,
    /// Payload sent, bit/s.
    pub data_bps: PercentileBand,
    /// Payload newly acknowledged (AckDiff), bit/s.
    pub acked_bps: PercentileBand,
    /// Number of pure ACKs in a fine bin.
    pub acks: PercentileBand,
    /// Phases, in order.
    pub phases: Vec<FlowPhase>,
}

/// Mean of each bin, and the 5th and 95th percentile of the fine bins within it. The vectors are equally long.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PercentileBand {
    /// Mean of each bin.
    pub mean: Vec<f64>,
    /// 5th percentile of the fine bins in each bin.
    pub low: Vec<f64>,
    /// 95th percentile of the fine bins in each bin.
    pub high: Vec<f64>,
}

/// Phase of a flow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowPhase {
    /// Name: `ramp-up`, `peak`, `steady`, `recovery` or `idle`.
    pub name: String,
    /// Start, seconds.
    pub from_s: f64,
    /// End, seconds.
    pub to_s: f64,
}

/// TCP_INFO of the sender of one leg over time. The vectors are equally long.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LegSeries {
    /// Name: "server–relay2".
    pub name: String,
    /// Times, seconds, ascending.
    pub at_s: Vec<f64>,
    /// Congestion window, bytes.
    pub cwnd_bytes: Vec<f64>,
    /// Smoothed round-trip time, µs.
    pub rtt_us: Vec<f64>,
}
