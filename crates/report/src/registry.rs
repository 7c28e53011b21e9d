// SPDX-License-Identifier: MIT OR Apache-2.0
//! The metrics that runs of a lab have by themselves: one entry each, with its unit, which way is better and what
//! tells it. A metric of one flow among several has the flow's name before its own.

use crate::unit::Unit;

/// Of a metric, what is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Rates and what arrived.
    More,
    /// Times, and what is lost or sent again.
    Less,
    /// It tells what happened: nothing is better for more or less of it.
    Neither,
}

/// What tells a metric of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Producer {
    /// All flows that move bytes, together.
    Transfers,
    /// A client that fetches or sends a file.
    File,
    /// A command, of all its processes and those of its server.
    Command,
    /// The server of a command, of its own.
    Server,
    /// A probe, whatever its packets cross.
    Probe,
    /// A probe whose packets cross a link that is known, of that link.
    Judge,
    /// A tap on the flow's way.
    Tap,
    /// No run as a whole: samples of connections have a course of it.
    Samples,
}

/// One metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// As results write it. It ends in the unit.
    pub name: &'static str,
    /// The unit of its values.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// What tells it.
    pub producer: Producer,
}

/// The rate at which payload arrived.
pub const GOODPUT: &str = "goodput_bps";
/// Segments that were sent again.
pub const RETRANSMITS: &str = "retransmits";
/// Jain's fairness index: only of several connections that share a path.
pub const JAIN: &str = "jain_ratio";
/// How long a file took.
pub const DOWNLOAD: &str = "download_s";
/// When its first byte was there.
pub const FIRST_BYTE: &str = "first_byte_s";
/// User and system time.
pub const CPU: &str = "cpu_s";
/// Of the server alone.
pub const SERVER_CPU: &str = "server_cpu_s";
/// The largest resident set of one process.
pub const PEAK_MEMORY: &str = "peak_memory_bytes";
/// Half of a probe's packets took no longer.
pub const DELAY_MEDIAN: &str = "delay_median_us";

/// Every metric, in the order in which lists show them.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &{
    use {Better::{Less, More, Neither}, Producer::{Command, File, Judge, Probe, Samples, Server, Tap, Transfers}};
    use Unit::{BitsPerSecond, Bytes, Count, Micros, PacketsPerSecond, PerSecond, Probability, Ratio, Seconds};
    [
        entry(GOODPUT, BitsPerSecond, More, Transfers),
        entry(RETRANSMITS, Count, Less, Transfers),
        entry(JAIN, Ratio, More, Transfers),
        entry(DOWNLOAD, Seconds, Less, File),
        entry(FIRST_BYTE, Seconds, Less, File),
        entry(CPU, Seconds, Less, Command),
        entry(SERVER_CPU, Seconds, Less, Server),
        entry(PEAK_MEMORY, Bytes, Less, Command),
        entry("received", Count, More, Probe),
        entry("lost", Count, Less, Probe),
        entry("first_lost", Count, Neither, Probe),
        entry("loss_pattern", Count, Neither, Probe),
        entry(DELAY_MEDIAN, Micros, Less, Probe),
        entry("delay_p99_us", Micros, Less, Probe),
        entry("delay_error_median_us", Micros, Less, Judge),
        entry("delay_error_p99_us", Micros, Less, Judge),
        entry("delay_early_us", Micros, Less, Judge),
        entry("jitter_p", Probability, Neither, Judge),
        entry("losses_p", Probability, Neither, Judge),
        entry("bursts_p", Probability, Neither, Judge),
        entry("gaps_p", Probability, Neither, Judge),
        entry("drain_bps", BitsPerSecond, More, Judge),
        entry("drain_error_ratio", Ratio, Less, Judge),
        entry("data_peak_bps", BitsPerSecond, More, Tap),
        entry("acked_peak_bps", BitsPerSecond, More, Tap),
        entry("data_steady_bps", BitsPerSecond, More, Tap),
        entry("acked_steady_bps", BitsPerSecond, More, Tap),
        entry("ramp_up_s", Seconds, Less, Tap),
        entry("peak_s", Seconds, Neither, Tap),
        entry("steady_s", Seconds, Neither, Tap),
        entry("recovery_s", Seconds, Less, Tap),
        entry("ack_diff_mean_bytes", Bytes, Neither, Tap),
        entry("packets_per_ack_ratio", Ratio, Neither, Tap),
        entry("ramp_up_acks_pps", PacketsPerSecond, Neither, Tap),
        entry("steady_acks_pps", PacketsPerSecond, Neither, Tap),
        entry("acks_median_pps", PacketsPerSecond, Neither, Tap),
        entry("acks_p5_pps", PacketsPerSecond, Neither, Tap),
        entry("acks_p95_pps", PacketsPerSecond, Neither, Tap),
        entry("ack_limited_ratio", Ratio, Neither, Tap),
        entry("data_retransmits", Count, Less, Tap),
        entry("duplicate_acks", Count, Less, Tap),
        entry("cwnd_bytes", Bytes, Neither, Samples),
        entry("srtt_us", Micros, Less, Samples),
        entry("retransmits_per_s", PerSecond, Less, Samples),
    ]
};

const fn entry(name: &'static str, unit: Unit, better: Better, producer: Producer) -> Entry {
    Entry {
        name,
        unit,
        better,
        producer,
    }
}

/// The names of all that `producer` tells.
pub fn told_by(producer: Producer) -> impl Iterator<Item = &'static str> {
    let own = METRICS
        .iter()
        .filter(move |entry| entry.producer == producer);
    own.map(|entry| entry.name)
}

/// The name of a flow's figure: its own where the flow is `alone`, else with the flow's before it.
pub fn name_of(flow: &str, figure: &str, alone: bool) -> String {
    match alone {
        true => figure.to_owned(),
        false => format!("{flow}_{figure}"),
    }
}

/// The entry of a name, whatever flow's name is before it: the longest that fits.
pub fn find(name: &str) -> Option<&'static Entry> {
    let fits = |entry: &&Entry| {
        let before = name.strip_suffix(entry.name);
        before.is_some_and(|flow| flow.is_empty() || flow.ends_with('_'))
    };
    METRICS
        .iter()
        .filter(fits)
        .max_by_key(|entry| entry.name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_ends_in_its_unit() {
        for entry in METRICS {
            assert_eq!(Unit::split(entry.name).1, entry.unit, "{}", entry.name);
        }
    }

    #[test]
    fn a_name_has_one_entry() {
        for entry in METRICS {
            let same = METRICS.iter().filter(|one| one.name == entry.name);
            assert_eq!(same.count(), 1, "{}", entry.name);
        }
    }

    #[test]
    fn a_flows_metric_is_found_under_its_name() {
        let found = |name: &str| find(name).map(|entry| entry.name);
        assert_eq!(found("goodput_bps"), Some(GOODPUT));
        assert_eq!(found(&name_of("a_b", GOODPUT, false)), Some(GOODPUT));
        assert_eq!(found("a_data_retransmits"), Some("data_retransmits"));
        assert_eq!(found("unlost"), None);
        assert_eq!(found("dvd_s"), None);
    }
}
