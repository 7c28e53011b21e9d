// SPDX-License-Identifier: MIT OR Apache-2.0
//! The metrics that a run gives by itself, each with what tells it. A name says the unit and which direction is better
//! ([`longhaul_report::metric::Metric`]).

/// What tells a metric of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Producer {
    /// All flows that move bytes, together.
    Transfers,
    /// curl, of the file that it carries.
    Curl,
    /// A probe, whatever its packets cross. What it tells of a known link is with the probe itself.
    Probe,
    /// A tap on the flow's way, as `docs/lab.md` explains.
    Tap,
}

pub(crate) const GOODPUT: &str = "goodput_bps";
pub(crate) const RETRANSMITS: &str = "retransmits";
/// Only of several connections that share a path.
pub(crate) const JAIN: &str = "jain_ratio";
pub(crate) const DOWNLOAD: &str = "download_s";
pub(crate) const FIRST_BYTE: &str = "first_byte_s";
pub(crate) const DELAY_MEDIAN: &str = "delay_median_us";

const METRICS: [(&str, Producer); 29] = [
    (GOODPUT, Producer::Transfers),
    (RETRANSMITS, Producer::Transfers),
    (JAIN, Producer::Transfers),
    (DOWNLOAD, Producer::Curl),
    (FIRST_BYTE, Producer::Curl),
    ("received", Producer::Probe),
    ("lost", Producer::Probe),
    ("first_lost", Producer::Probe),
    ("loss_pattern", Producer::Probe),
    (DELAY_MEDIAN, Producer::Probe),
    ("delay_p99_us", Producer::Probe),
    ("data_peak_bps", Producer::Tap),
    ("acked_peak_bps", Producer::Tap),
    ("data_steady_bps", Producer::Tap),
    ("acked_steady_bps", Producer::Tap),
    ("ramp_up_s", Producer::Tap),
    ("peak_s", Producer::Tap),
    ("steady_s", Producer::Tap),
    ("recovery_s", Producer::Tap),
    ("ack_diff_mean_bytes", Producer::Tap),
    ("packets_per_ack_ratio", Producer::Tap),
    ("ramp_up_acks_pps", Producer::Tap),
    ("steady_acks_pps", Producer::Tap),
    ("acks_median_pps", Producer::Tap),
    ("acks_p5_pps", Producer::Tap),
    ("acks_p95_pps", Producer::Tap),
    ("ack_limited_ratio", Producer::Tap),
    ("data_retransmits", Producer::Tap),
    ("duplicate_acks", Producer::Tap),
];

/// The names of all that `producer` tells.
pub(crate) fn told_by(producer: Producer) -> impl Iterator<Item = &'static str> {
    let own = METRICS.iter().filter(move |(_, by)| *by == producer);
    own.map(|(name, _)| *name)
}

/// The name of a flow's figure: its own where it is `alone`, else with the flow's before it.
pub(crate) fn name_of(flow: &str, figure: &str, alone: bool) -> String {
    match alone {
        true => figure.to_owned(),
        false => format!("{flow}_{figure}"),
    }
}
