// SPDX-License-Identifier: MIT OR Apache-2.0
//! `result.json`: the result of a scenario. The page, the terminal table and users' scripts read nothing else, so
//! names and units in it are stable.
//!
//! A metric's name ends in its unit: `goodput_bps` (bits a second), `rtt_us`, `cwnd_bytes`,
//! `download_s`, `jain_ratio`; no unit means a count. Optional parts are absent, never null.

pub use super::{
    series::{CaptureSeries, Event, FlowPhase, LegSeries, PercentileBand, Series},
    setting::{Parameters, describe_parameter, format_value, json_text},
};

use super::{
    identity::Identity,
    series::is_zero,
    summary::Summary,
    view::{Figure, Table},
};
use indexmap::{IndexMap, IndexSet};
use longhaul_command::exit::Refusal;
use longhaul_report::metric::Metric;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path};

/// Metrics by name, in the order that the scenario gives them. Every value is finite.
pub type Metrics<T = f64> = IndexMap<String, T>;

/// Content of `result.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LabResult {
    /// Name of the scenario, as under `scenarios/`.
    pub scenario: String,
    /// Version of longhaul that ran it.
    pub longhaul: String,
    /// Start time of the first run.
    pub started: jiff::Timestamp,
    /// Time from `started` to the end of the last run, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Times at which it was resumed after an interruption.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed_at: Vec<jiff::Timestamp>,
    /// Seed of all random decisions: order of runs, losses, jitter.
    pub seed: u64,
    /// Identity of the experiment, by which a later run knows that it need not be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// True if `--quick` shortened the runs.
    #[serde(default)]
    pub quick: bool,
    /// Description of the scenario. If absent, the page shows only its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<About>,
    /// Headline that answers the scenario's question. If absent, the page begins with the checks.
    #[serde(rename = "answer", default, skip_serializing_if = "Option::is_none")]
    pub headline: Option<Headline>,
    /// Machine that ran it.
    pub host: Host,
    /// Scenario with all defaults filled in.
    pub resolved: Value,
    /// Testbed, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub testbed: Option<Testbed>,
    /// Cells, in the order of the scenario.
    pub cells: Vec<Cell>,
    /// Checks of the scenario.
    pub checks: Vec<Check>,
    /// Tables of the report, in the order of the scenario.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
    /// Figures of the report, in the order of the scenario.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
    /// Statistics of each emulated link, over all runs.
    pub links: Vec<LinkStats>,
    /// Congestion controls that the scenario names, as this machine provided them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub congestion_controls: Vec<CongestionControl>,
    /// Files of raw records, relative to the directory of `result.json`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raw: Vec<String>,
}

impl LabResult {
    /// Reads the result in `file`.
    ///
    /// # Errors
    /// The file cannot be read or parsed: a usage refusal.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let unreadable = |why: String| {
            let hint = "give a directory that 'longhaul lab run --out' wrote";
            Refusal::usage(format!("{}: {why}; {hint}", file.display()))
        };
        let text = fs::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))
    }

    /// Returns the scenario's title, or its name.
    pub fn title(&self) -> &str {
        self.about
            .as_ref()
            .map_or(&self.scenario, |about| &about.title)
    }

    /// Returns the metric of the headline, or the first one.
    pub fn main_metric(&self) -> Option<&str> {
        let first = || Some(self.cells.first()?.metrics.first()?.0.as_str());
        self.headline
            .as_ref()
            .map(|headline| headline.metric.as_str())
            .or_else(first)
    }

    /// Returns the metrics that any cell has, in the order of the cells.
    pub fn metric_names(&self) -> IndexSet<&str> {
        let cells = self.cells.iter();
        cells
            .flat_map(|cell| cell.metrics.keys().map(String::as_str))
            .collect()
    }

    /// Returns the runs during which the host was overloaded, each with its cell and the reason.
    pub fn overloaded_runs(&self) -> impl Iterator<Item = (&Cell, &str)> {
        let runs = self
            .cells
            .iter()
            .flat_map(|cell| cell.runs.iter().map(move |run| (cell, run)));
        runs.filter_map(|(cell, run)| Some((cell, run.overload.as_deref()?)))
    }

    /// Describes the simulated cells; `None` if all cells ran on sockets.
    pub fn simulated(&self) -> Option<String> {
        let simulated_cells: Vec<&Cell> = self.cells.iter().filter(|cell| cell.simulated).collect();
        match (simulated_cells.len(), self.cells.len()) {
            (0, _) => None,
            (count, all) if count == all => Some("all cells".to_owned()),
            (1, _) => Some(format!("the cell {}", simulated_cells[0].name())),
            (count, all) => Some(format!("{count} of {all} cells")),
        }
    }

    /// Returns whether the scenario has reference values or names their source.
    pub fn has_reference(&self) -> bool {
        let source = self
            .about
            .as_ref()
            .is_some_and(|about| about.source.is_some());
        source || self.cells.iter().any(|cell| !cell.reference.is_empty())
    }

    /// Returns the number of runs that were repeated because the host was overloaded.
    pub fn retries(&self) -> u32 {
        let runs = self.cells.iter().flat_map(|cell| &cell.runs);
        runs.map(|run| run.retries).sum()
    }

    /// Returns the index of the testbed's slowest link and its rate, bit/s.
    pub fn bottleneck(&self) -> Option<(usize, f64)> {
        self.testbed.as_ref()?.bottleneck()
    }
}

/// Description of a scenario.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Title in one line: "Downloading a DVD image over 2,600 km".
    pub title: String,
    /// Question that the scenario answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Source of the reference values: "Hasegawa and Jibiki, TCP Booster, figure 6".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Command that repeats this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Differences from the source's experiment, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Headline of a result: a sentence with the number that answers the question. The number is the metric of one cell, or
/// its ratio to a baseline cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Headline {
    /// Sentence with `{}` in place of the number: "Two relays make it {} faster".
    #[serde(rename = "headline")]
    pub template: String,
    /// Name of a metric.
    pub metric: String,
    /// Index into `cells`.
    pub cell: usize,
    /// Index into `cells` of the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<usize>,
}

/// Machine that ran an experiment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// `uname -r`.
    pub kernel: String,
    /// Number of CPUs that the process may use.
    pub cpus: usize,
    /// Model name of the first CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Settings that affect throughput, by their sysctl name.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
    /// Offloads of the emulated interfaces: `tso4` → `on`.
    #[serde(default)]
    pub offloads: BTreeMap<String, String>,
    /// Versions of the programs that generated the traffic: `curl` → `8.5.0`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, String>,
}

/// Cell: one combination of the varied parameters, with all its runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Values of the varied parameters.
    pub parameters: Parameters,
    /// Name for users: "two relays". If absent, it is made from `parameters`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Hosts of the testbed that act as relays in this cell, along the path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<String>,
    /// True for simulated runs: they open no socket and do not depend on the machine's speed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// Runs, in the order in which they ran.
    pub runs: Vec<Run>,
    /// Summaries of the metrics over the valid runs ([`Cell::valid_runs`]).
    pub metrics: Metrics<Summary>,
    /// Reference values of this cell by metric, for instance a paper's.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub reference: Metrics,
    /// Metrics whose reference value is excluded from comparisons, for instance because it looks misprinted. The page
    /// shows it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reference_excluded: Vec<String>,
}

impl Cell {
    /// Returns the label, or the varied parameters: "relays, delay 1ms". A single cell without both is "all runs".
    pub fn name(&self) -> String {
        let varied = || {
            let all = self
                .parameters
                .iter()
                .map(|(key, value)| describe_parameter(key, value));
            all.collect::<Vec<_>>().join(", ")
        };
        match &self.label {
            Some(label) => label.clone(),
            None if self.parameters.is_empty() => "all runs".to_owned(),
            None => varied(),
        }
    }

    /// Returns the reference value, unless it is missing or excluded.
    pub fn reference_value(&self, metric: &str) -> Option<f64> {
        let is_excluded = self.reference_excluded.iter().any(|name| name == metric);
        self.reference.get(metric).copied().filter(|_| !is_excluded)
    }

    /// Returns the runs that did not fail.
    pub fn successful_runs(&self) -> impl Iterator<Item = &Run> + Clone {
        self.runs.iter().filter(|run| run.failed.is_none())
    }

    /// Returns the valid runs: those that did not fail and ran while the host was not overloaded. If it was overloaded
    /// during all of them, returns all that did not fail.
    pub fn valid_runs(&self) -> impl Iterator<Item = &Run> {
        let all = self.is_overloaded();
        let is_counted = move |run: &&Run| all || run.overload.is_none();
        self.successful_runs().filter(is_counted)
    }

    /// Returns whether the host was overloaded during every run that did not fail: such values decide no check.
    pub fn is_overloaded(&self) -> bool {
        let mut counted_runs = self.successful_runs();
        counted_runs.clone().next().is_some() && counted_runs.all(|run| run.overload.is_some())
    }

    /// Computes `metrics` from `runs`.
    pub fn summarise(&mut self) {
        let counted_runs = || self.valid_runs();
        let names: IndexSet<&String> = counted_runs().flat_map(|run| run.metrics.keys()).collect();
        self.metrics = names
            .into_iter()
            .filter_map(|name| {
                let values = counted_runs().filter_map(|run| run.metrics.get(name).copied());
                let summary = Summary::of(values)?;
                // A hash that differs between runs has no median.
                let is_meant = summary.min == summary.max || !name.ends_with("loss_pattern");
                is_meant.then(|| (name.clone(), summary))
            })
            .collect();
    }
}

/// Run: its metrics as flat JSON keys, and its time series.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Metrics of the run.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Reason of the failure, if the run failed. Such a run is listed but not summarised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Overload of the host during the run, which makes the metrics less reliable: "the emulator was late: …".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overload: Option<String>,
    /// Number of runs before it that were discarded for an overload.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// Time series of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
}

/// Emulated network for the topology diagram: a chain of hosts with `links[i]` between `hosts[i]` and
/// `hosts[i + 1]`, in the direction of the data from left to right.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Testbed {
    /// Hosts along the path.
    pub hosts: Vec<TestbedHost>,
    /// Links along the path.
    pub links: Vec<TestbedLink>,
    /// Paths of other flows, each from end to end. A host on two paths has the same name in both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_paths: Vec<Testbed>,
}

impl Testbed {
    /// Returns index and rate of the slowest link. For equal rates it is the one with the longest round trip, which
    /// needs the largest window. Returns `None` if no link has a rate limit.
    pub fn bottleneck(&self) -> Option<(usize, f64)> {
        let limited = self
            .links
            .iter()
            .enumerate()
            .filter_map(|(i, l)| Some((i, l.rate_bps?)));
        limited.min_by(|(a, a_rate), (b, b_rate)| {
            let longer_first = || self.links[*b].rtt_us.total_cmp(&self.links[*a].rtt_us);
            a_rate.total_cmp(b_rate).then_with(longer_first)
        })
    }
}

/// Host of the testbed: a network namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TestbedHost {
    /// Name of the host.
    pub name: String,
    /// Programs on the host: "nginx", "curl, window 1.4 MB".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Configuration of a link; `links` of the result has its statistics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TestbedLink {
    /// Name of the link.
    pub name: String,
    /// Rate in the direction of the data, bit/s, the least of all cells. Absent if not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<f64>,
    /// Greatest rate of all cells, if they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps_max: Option<f64>,
    /// Propagation delay of both directions together, µs; the least of all cells.
    pub rtt_us: f64,
    /// Greatest propagation delay of all cells, µs, if they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_us_max: Option<f64>,
    /// Share of packets lost in the direction of the data, 0 to 1; the least of all cells.
    #[serde(default)]
    pub loss: f64,
    /// Greatest loss of all cells, 0 to 1, if they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_max: Option<f64>,
    /// Queue limit, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<f64>,
}

/// Check: a value of the result against a threshold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Name of the check.
    pub name: String,
    /// True if the value satisfies the threshold; false if it does not, or if the check is undecided.
    pub pass: bool,
    /// Reason why it is undecided: the host was overloaded in all runs of a cell. `value` is of these runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecided: Option<String>,
    /// Measured value: a number or a text.
    pub value: Value,
    /// Threshold: ">= 6".
    pub threshold: String,
}

impl Check {
    /// Returns whether the check is decided and failed.
    pub fn failed(&self) -> bool {
        !self.pass && self.undecided.is_none()
    }

    /// Returns the measured value as text: numbers with three digits, other values unchanged.
    pub fn value_text(&self) -> String {
        match self.value.as_f64() {
            Some(number) => Metric::of("x_ratio").format(number),
            None => json_text(&self.value),
        }
    }
}

/// Statistics of an emulated link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkStats {
    /// Name of the link.
    pub name: String,
    /// Delivery mode, `exact` or `bulk`.
    pub mode: String,
    /// Delay error: actual minus planned departure.
    pub delay_error_us: DelayError,
    /// Number of packets dropped by cause: `queue`, `loss`.
    #[serde(default)]
    pub drops: BTreeMap<String, u64>,
    /// Number of packets that entered the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
}

/// Distribution of a link's delay error, µs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DelayError {
    /// Median.
    pub median: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

/// Provider of a congestion control that a scenario requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CongestionControl {
    /// Requested name, `htcp` or `lh_bic:ack_shift=3`.
    pub requested: String,
    /// Name set on sockets: `lh_htcp`, `lh_bic.2`.
    pub name: String,
    /// Provider, `kernel` or `longhaul`.
    pub provider: String,
    /// Parameters of a congestion control of longhaul, with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns a result without optional parts.
    fn smallest() -> Value {
        json!({
            "scenario": "nec-linux", "longhaul": "0.1.0", "started": "2026-11-21T03:00:00Z",
            "seed": 7, "quick": false,
            "host": {"kernel": "6.18", "cpus": 2, "sysctl": {}, "offloads": {}}, "resolved": {},
            "cells": [{
                "parameters": {"delay": "1ms", "loss": 0.001, "relays": true},
                "runs": [{"goodput_bps": 1.23e8}],
                "metrics": {"goodput_bps": {"median": 1.23e8, "min": 1.2e8, "max": 1.3e8}},
                "reference": {"goodput_bps": 1.24e8}
            }],
            "checks": [{"name": "n", "pass": true, "value": 1.2, "threshold": ">= 1.0"}],
            "links": [{"name": "wan", "mode": "exact",
                "delay_error_us": {"median": 3.0, "p99": 80.0, "max": 400.0}, "drops": {}}]
        })
    }

    #[test]
    fn round_trips_the_documented_format() {
        let result: LabResult = serde_json::from_value(smallest()).unwrap();
        assert_eq!(result.cells[0].runs[0].metrics["goodput_bps"], 1.23e8);
        assert_eq!(serde_json::to_value(&result).unwrap(), smallest());
    }

    #[test]
    fn formats_settings_with_units() {
        let text = |value: Value| format_value("x", &value);
        assert_eq!(text(json!("0ms")), "0 ms");
        assert_eq!(text(json!("100mbit")), "100 Mbit/s");
        assert_eq!(text(json!("64KB")), "64 KB");
        assert_eq!(text(json!("10 ms")), "10 ms");
        assert_eq!(text(json!("cubic")), "cubic");
        assert_eq!(text(json!("5")), "5");
        assert_eq!(text(json!(true)), "true");
        assert_eq!(format_value("loss", &json!(0.001)), "0.1 %");
    }

    #[test]
    fn run_has_series_besides_flat_metrics() {
        let text =
            r#"{"download_s":16.2,"failed":"reset","series":{"bin_ms":100.0,"goodput_bps":[1e9]}}"#;
        let run: Run = serde_json::from_str(text).unwrap();
        assert_eq!(run.metrics.len(), 1);
        assert_eq!(run.series.as_ref().unwrap().goodput_bps, [1e9]);
        let reparsed: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
        assert_eq!(reparsed, run);
    }

    #[test]
    fn counts_overloaded_runs_only_without_others() {
        let run = |s: f64, overload: Option<&str>| Run {
            metrics: Metrics::from([("download_s".to_owned(), s)]),
            overload: overload.map(str::to_owned),
            ..Run::default()
        };
        let median = |runs: Vec<Run>| {
            let mut cell = Cell {
                runs,
                ..Cell::default()
            };
            cell.summarise();
            (cell.metrics["download_s"].median, cell.is_overloaded())
        };
        let overloaded = || run(90.0, Some("emulator late"));
        assert_eq!(
            median(vec![run(16.0, None), overloaded(), overloaded()]),
            (16.0, false)
        );
        assert_eq!(median(vec![overloaded(), overloaded()]), (90.0, true));
        let failed = Run {
            failed: Some("reset".to_owned()),
            ..run(1.0, None)
        };
        assert_eq!(median(vec![overloaded(), failed]), (90.0, true));
        assert!(!Cell::default().is_overloaded());
    }

    #[test]
    fn ignores_failed_runs_in_summary() {
        let run = |s: f64, failed: Option<&str>| Run {
            metrics: Metrics::from([("download_s".to_owned(), s)]),
            failed: failed.map(str::to_owned),
            ..Run::default()
        };
        let mut cell = Cell {
            runs: vec![run(16.0, None), run(1.0, Some("reset")), run(18.0, None)],
            ..Cell::default()
        };
        cell.summarise();
        let expected = Summary {
            median: 17.0,
            min: 16.0,
            max: 18.0,
        };
        assert_eq!(cell.metrics["download_s"], expected);
    }
}
