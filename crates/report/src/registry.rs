// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registry of the built-in metrics of lab runs, with unit, better direction and producer. With several flows, a flow's
//! metric has the flow's name as a prefix.

use crate::unit::Unit;

/// Better direction of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// More is better: rates and received data.
    More,
    /// Less is better: times, losses and retransmissions.
    Less,
    /// No direction is better: the metric only describes the run.
    Neither,
}

/// Producer of a metric of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Producer {
    /// All transfers together.
    Transfers,
    /// Client that downloads or uploads a file.
    File,
    /// Command, with all its processes and its server.
    Command,
    /// Server of a command alone.
    Server,
    /// One-way-delay test, over any path.
    OneWayDelayTest,
    /// Conformance test of an emulated link, from the packets of a one-way-delay test.
    ConformanceTest,
    /// Capture on the path of the flow.
    Capture,
    /// Simulation of all transfers together.
    Simulation,
    /// Samples of connections: a time series instead of one value for a run.
    Samples,
}

/// Entry of the registry: one metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Name in results, ending in the unit.
    pub name: &'static str,
    /// Unit of its values.
    pub unit: Unit,
    /// Better direction.
    pub better: Better,
    /// Producer of the metric.
    pub producer: Producer,
}

/// Rate of received payload.
pub const GOODPUT: &str = "goodput_bps";
/// Number of retransmitted segments.
pub const RETRANSMITS: &str = "retransmits";
/// Jain's fairness index, for several connections that share a path.
pub const JAIN: &str = "jain_ratio";
/// Rate of the slowest connection over that of the fastest, for several connections that share a path.
pub const SLOWEST: &str = "slowest_ratio";
/// Duration of a file transfer.
pub const DOWNLOAD: &str = "download_s";
/// Time to the first byte of a file.
pub const FIRST_BYTE: &str = "first_byte_s";
/// User and system CPU time.
pub const CPU: &str = "cpu_s";
/// User and system CPU time of the server alone.
pub const SERVER_CPU: &str = "server_cpu_s";
/// Largest resident set of one process.
pub const PEAK_MEMORY: &str = "peak_memory_bytes";
/// Median one-way delay of a test's packets.
pub const DELAY_MEDIAN: &str = "delay_median_us";

/// All built-in metrics, in the order in which lists show them.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &{
    use {Better::{Less, More, Neither}, Producer::{Command, File, ConformanceTest, OneWayDelayTest, Samples, Server, Simulation, Capture, Transfers}};
    use Unit::{BitsPerSecond, Bytes, Count, Micros, PacketsPerSecond, PerSecond, Probability, Ratio, Seconds};
    [
        entry(GOODPUT, BitsPerSecond, More, Transfers),
        entry(RETRANSMITS, Count, Less, Transfers),
        entry(JAIN, Ratio, More, Transfers),
        entry(SLOWEST, Ratio, More, Transfers),
        entry(DOWNLOAD, Seconds, Less, File),
        entry(FIRST_BYTE, Seconds, Less, File),
        entry(CPU, Seconds, Less, Command),
        entry(SERVER_CPU, Seconds, Less, Server),
        entry(PEAK_MEMORY, Bytes, Less, Command),
        entry("received", Count, More, OneWayDelayTest),
        entry("lost", Count, Less, OneWayDelayTest),
        entry("first_lost", Count, Neither, OneWayDelayTest),
        entry("loss_pattern", Count, Neither, OneWayDelayTest),
        entry(DELAY_MEDIAN, Micros, Less, OneWayDelayTest),
        entry("delay_p99_us", Micros, Less, OneWayDelayTest),
        entry("delay_error_median_us", Micros, Less, ConformanceTest),
        entry("delay_error_p99_us", Micros, Less, ConformanceTest),
        entry("delay_early_us", Micros, Less, ConformanceTest),
        entry("jitter_p", Probability, Neither, ConformanceTest),
        entry("losses_p", Probability, Neither, ConformanceTest),
        entry("bursts_p", Probability, Neither, ConformanceTest),
        entry("gaps_p", Probability, Neither, ConformanceTest),
        entry("drain_bps", BitsPerSecond, More, ConformanceTest),
        entry("drain_error_ratio", Ratio, Less, ConformanceTest),
        entry("data_peak_bps", BitsPerSecond, More, Capture),
        entry("acked_peak_bps", BitsPerSecond, More, Capture),
        entry("data_steady_bps", BitsPerSecond, More, Capture),
        entry("acked_steady_bps", BitsPerSecond, More, Capture),
        entry("ramp_up_s", Seconds, Less, Capture),
        entry("peak_s", Seconds, Neither, Capture),
        entry("steady_s", Seconds, Neither, Capture),
        entry("recovery_s", Seconds, Less, Capture),
        entry("ack_diff_mean_bytes", Bytes, Neither, Capture),
        entry("packets_per_ack_ratio", Ratio, Neither, Capture),
        entry("ramp_up_acks_pps", PacketsPerSecond, Neither, Capture),
        entry("steady_acks_pps", PacketsPerSecond, Neither, Capture),
        entry("acks_median_pps", PacketsPerSecond, Neither, Capture),
        entry("acks_p5_pps", PacketsPerSecond, Neither, Capture),
        entry("acks_p95_pps", PacketsPerSecond, Neither, Capture),
        entry("ack_limited_ratio", Ratio, Neither, Capture),
        entry("data_retransmits", Count, Less, Capture),
        entry("duplicate_acks", Count, Less, Capture),
        entry("backoffs", Count, Less, Simulation),
        entry("timeouts", Count, Less, Simulation),
        entry("loss_drops", Count, Less, Simulation),
        entry("overflow_drops", Count, Less, Simulation),
        entry("aqm_drops", Count, Less, Simulation),
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

/// Returns the names of the metrics of `producer`.
pub fn metrics_of(producer: Producer) -> impl Iterator<Item = &'static str> {
    let own = METRICS
        .iter()
        .filter(move |entry| entry.producer == producer);
    own.map(|entry| entry.name)
}

/// Returns the name of a flow's metric. Unless the flow is `alone`, the flow's name is its prefix.
pub fn metric_name(flow: &str, metric: &str, alone: bool) -> String {
    if alone {
        metric.to_owned()
    } else {
        format!("{flow}_{metric}")
    }
}

/// Finds the entry of a metric by its name, which may have a flow's name as prefix. If several entries match, the one
/// with the longest name is returned.
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
    fn names_end_in_their_unit() {
        for entry in METRICS {
            assert_eq!(Unit::split(entry.name).1, entry.unit, "{}", entry.name);
        }
    }

    #[test]
    fn names_are_unique() {
        for entry in METRICS {
            let same = METRICS.iter().filter(|one| one.name == entry.name);
            assert_eq!(same.count(), 1, "{}", entry.name);
        }
    }

    #[test]
    fn finds_metrics_with_flow_prefix() {
        let found = |name: &str| find(name).map(|entry| entry.name);
        assert_eq!(found("goodput_bps"), Some(GOODPUT));
        assert_eq!(found(&metric_name("a_b", GOODPUT, false)), Some(GOODPUT));
        assert_eq!(found("a_data_retransmits"), Some("data_retransmits"));
        assert_eq!(found("unlost"), None);
        assert_eq!(found("dvd_s"), None);
    }
}
