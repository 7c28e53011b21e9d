// SPDX-License-Identifier: MIT OR Apache-2.0
//! `result.json`: what a scenario gave. The page, the terminal table and other people's scripts
//! read this and nothing else, so names and units here do not change lightly.
//!
//! A metric's name ends in its unit: `goodput_bps` (bits a second), `rtt_us`, `cwnd_bytes`,
//! `download_s`, `jain_ratio`; no unit means a count. Optional parts are absent, never null.

pub use super::{
    series::{Event, LegSeries, Series, Spread, TapPhase, TapSeries},
    setting::{Vary, plain, setting, varied},
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

/// The whole file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LabResult {
    /// Name of the scenario, as under `scenarios/`.
    pub scenario: String,
    /// Version of longhaul that ran it.
    pub longhaul: String,
    /// When the first run began.
    pub started: jiff::Timestamp,
    /// Seconds from then to the end of the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_s: Option<f64>,
    /// When it went on after it had been interrupted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<jiff::Timestamp>,
    /// Seed of every random decision: order of runs, losses, jitter.
    pub seed: u64,
    /// What exactly was run, and where, so that the same need not be run again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Runs were shortened by `--quick`.
    #[serde(default)]
    pub quick: bool,
    /// What the scenario is about, in words. Absent: the page shows the name alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<About>,
    /// Which number answers the scenario's question. Absent: the page begins with the checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// The machine.
    pub host: Host,
    /// The scenario with every default filled in.
    pub resolved: Value,
    /// The testbed, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub testbed: Option<Testbed>,
    /// The cells, in the order of the scenario.
    pub cells: Vec<Cell>,
    /// The checks of the scenario.
    pub checks: Vec<Check>,
    /// What the report shows as tables, in the scenario's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
    /// What it draws.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
    /// The emulator's own account of each emulated link, over all runs.
    pub links: Vec<LinkAccount>,
    /// What the congestion controls that the scenario names were here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub congestion_controls: Vec<Provided>,
    /// Files of raw records, relative to the directory of `result.json`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raw: Vec<String>,
}

impl LabResult {
    /// The result in `file`.
    ///
    /// # Errors
    /// A usage refusal if it cannot be read.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let unreadable = |why: String| {
            let way_out = "give a directory that 'longhaul lab run --out' wrote";
            Refusal::usage(format!("{}: {why}; {way_out}", file.display()))
        };
        let text = fs::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))
    }

    /// The scenario's title, or its name.
    pub fn title(&self) -> &str {
        self.about
            .as_ref()
            .map_or(&self.scenario, |about| &about.title)
    }

    /// The metric that the answer is about, or the first one.
    pub fn main_metric(&self) -> Option<&str> {
        let first = || Some(self.cells.first()?.metrics.first()?.0.as_str());
        self.answer
            .as_ref()
            .map(|answer| answer.metric.as_str())
            .or_else(first)
    }

    /// The metrics that any cell has, in the order of the cells.
    pub fn metric_names(&self) -> IndexSet<&str> {
        let cells = self.cells.iter();
        cells
            .flat_map(|cell| cell.metrics.keys().map(String::as_str))
            .collect()
    }

    /// The runs whose figures say less than those of others, each with its cell.
    pub fn disturbed(&self) -> impl Iterator<Item = (&Cell, &str)> {
        let runs = self
            .cells
            .iter()
            .flat_map(|cell| cell.runs.iter().map(move |run| (cell, run)));
        runs.filter_map(|(cell, run)| Some((cell, run.disturbed.as_deref()?)))
    }

    /// Which cells were simulated, for people; `None` if all ran on sockets.
    pub fn simulated(&self) -> Option<String> {
        let some: Vec<&Cell> = self.cells.iter().filter(|cell| cell.simulated).collect();
        match (some.len(), self.cells.len()) {
            (0, _) => None,
            (some, all) if some == all => Some("all cells".to_owned()),
            (1, _) => Some(format!("the cell {}", some[0].name())),
            (some, all) => Some(format!("{some} of {all} cells")),
        }
    }

    /// Whether the scenario is after some paper: then its figures are worth a word where there are none.
    pub fn has_paper(&self) -> bool {
        let source = self
            .about
            .as_ref()
            .is_some_and(|about| about.paper.is_some());
        source || self.cells.iter().any(|cell| !cell.paper.is_empty())
    }

    /// How many runs were thrown away because the machine was too busy for them.
    pub fn retaken(&self) -> u32 {
        let runs = self.cells.iter().flat_map(|cell| &cell.runs);
        runs.map(|run| run.retaken).sum()
    }

    /// The slowest link of the testbed, bits a second, with its index.
    pub fn bottleneck(&self) -> Option<(usize, f64)> {
        self.testbed.as_ref()?.bottleneck()
    }
}

/// The scenario in words.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// One line: "Downloading a DVD image over 2,600 km".
    pub title: String,
    /// The question that the scenario answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Where the paper's figures come from: "Hasegawa and Jibiki, TCP Booster, figure 6".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<String>,
    /// The command that repeats this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// What differs from the paper's experiment, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The number that answers the question: `metric` of one cell, as a factor over a baseline cell
/// if one is named.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// A sentence that holds `{}` where the number goes: "Two relays make it {} faster".
    pub sentence: String,
    /// Name of a metric.
    pub metric: String,
    /// Index into `cells`.
    pub cell: usize,
    /// Index into `cells` of what it is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<usize>,
}

/// The machine that ran it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// `uname -r`.
    pub kernel: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Model name of the first CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Settings that bear on throughput, by their sysctl name.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
    /// Offloads of the emulated interfaces, `tso4` → `on`.
    #[serde(default)]
    pub offloads: BTreeMap<String, String>,
    /// Versions of the programs that made the traffic, `curl` → `8.5.0`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, String>,
}

/// One combination of what was varied, with all its runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The parameters of the cell.
    pub vary: Vary,
    /// A name for people: "two relays". Absent: made from `vary`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Hosts of the testbed that relay in this cell, along the path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<String>,
    /// Its runs were simulated: no socket was opened, and the machine's speed is no matter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// The runs, in the order in which they ran.
    pub runs: Vec<Run>,
    /// Of the runs that count ([`Cell::counted`]).
    pub metrics: Metrics<Summary>,
    /// The paper's figures for this cell.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub paper: Metrics,
    /// Metrics whose figure in the paper looks misprinted. They are shown and not compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paper_suspect: Vec<String>,
}

impl Cell {
    /// The label, or what was varied: "relays, delay 1ms"; where nothing was, there is no other cell.
    pub fn name(&self) -> String {
        let varied = || {
            let all = self.vary.iter().map(|(key, value)| varied(key, value));
            all.collect::<Vec<_>>().join(", ")
        };
        match &self.label {
            Some(label) => label.clone(),
            None if self.vary.is_empty() => "all runs".to_owned(),
            None => varied(),
        }
    }

    /// The paper's figure, unless it is missing or suspicious.
    pub fn paper_figure(&self, metric: &str) -> Option<f64> {
        let suspect = self.paper_suspect.iter().any(|name| name == metric);
        self.paper.get(metric).copied().filter(|_| !suspect)
    }

    /// The runs that did not fail.
    pub fn good(&self) -> impl Iterator<Item = &Run> + Clone {
        self.runs.iter().filter(|run| run.failed.is_none())
    }

    /// The runs whose figures count: those that neither failed nor were disturbed; where the machine was too busy
    /// for each of them, all that did not fail.
    pub fn counted(&self) -> impl Iterator<Item = &Run> {
        let all = self.is_disturbed();
        let counts = move |run: &&Run| all || run.disturbed.is_none();
        self.good().filter(counts)
    }

    /// Whether the machine was too busy for every run that did not fail: its figures decide nothing.
    pub fn is_disturbed(&self) -> bool {
        let mut good = self.good();
        good.clone().next().is_some() && good.all(|run| run.disturbed.is_some())
    }

    /// Fills `metrics` from `runs`.
    pub fn summarise(&mut self) {
        let good = || self.counted();
        let names: IndexSet<&String> = good().flat_map(|run| run.metrics.keys()).collect();
        self.metrics = names
            .into_iter()
            .filter_map(|name| {
                let values = good().filter_map(|run| run.metrics.get(name).copied());
                Some((name.clone(), Summary::of(values)?))
            })
            .collect();
    }
}

/// One run: its metrics, flat, and what the page draws.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The metrics of the run.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Why the run gave no valid figure. Such a run is listed and not summarised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Why its figures say less than those of others: the machine was too busy for the emulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
    /// How many runs before it were thrown away for that reason.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retaken: u32,
    /// Figures over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
}

/// The emulated network, as drawn: a chain of hosts, `links[i]` between `hosts[i]` and
/// `hosts[i + 1]`, in the direction of the data from left to right.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Testbed {
    /// The hosts.
    pub hosts: Vec<TestbedHost>,
    /// The links.
    pub links: Vec<TestbedLink>,
    /// The ways of other flows, each from end to end. A host that two ways pass has one name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Testbed>,
}

impl Testbed {
    /// Index and rate of the slowest link; of equals the one with the longest round trip, which
    /// needs the largest window. `None` if no link is limited.
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

/// A network namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TestbedHost {
    /// The name of the host.
    pub name: String,
    /// What runs there: "nginx", "curl, window 1.4 MB".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A link as configured; `links` of the result says how it behaved.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TestbedLink {
    /// The name of the link.
    pub name: String,
    /// In the direction of the data, bits a second; the least of all cells. Absent: not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<f64>,
    /// The greatest of all cells, where they differ; so with the other two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps_max: Option<f64>,
    /// Propagation delay of both directions together, microseconds.
    pub rtt_us: f64,
    /// The largest round-trip time, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_us_max: Option<f64>,
    /// Share of packets lost in the direction of the data, 0 to 1.
    #[serde(default)]
    pub loss: f64,
    /// The largest loss, as a share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_max: Option<f64>,
    /// Queue limit in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<f64>,
}

/// A claim that the run had to meet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The name.
    pub name: String,
    /// Whether it holds; false of one that was not decided.
    pub pass: bool,
    /// Why it was not decided: a cell that it speaks of has no run but disturbed ones. `value` is what they gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecided: Option<String>,
    /// What was found: a number or a text.
    pub value: Value,
    /// What was wanted: ">= 6".
    pub want: String,
}

impl Check {
    /// Whether it was decided, and does not hold.
    pub fn failed(&self) -> bool {
        !self.pass && self.undecided.is_none()
    }

    /// What was found: numbers with three digits, everything else as it stands.
    pub fn found(&self) -> String {
        match self.value.as_f64() {
            Some(number) => Metric::of("x_ratio").print(number),
            None => plain(&self.value),
        }
    }
}

/// How well an emulated link kept its promise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkAccount {
    /// The name of the link.
    pub name: String,
    /// `exact` or `bulk` delivery.
    pub mode: String,
    /// Actual minus planned departure.
    pub delay_error_us: DelayError,
    /// Packets dropped by cause: `queue`, `loss`.
    #[serde(default)]
    pub drops: BTreeMap<String, u64>,
    /// Packets that went in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
}

/// Distribution of a link's delay error, microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DelayError {
    /// The median.
    pub median: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// Who provides what a scenario asked for, as `result.json` has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provided {
    /// What the scenario says, `htcp` or `lh_bic:ack_shift=3`.
    pub asked: String,
    /// What sockets were told: `lh_htcp`, `lh_bic.2`.
    pub name: String,
    /// `kernel` or `longhaul`.
    pub by: String,
    /// All parameters of one of longhaul's, with what they were.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The least that a result holds; anything longer is optional.
    fn smallest() -> Value {
        json!({
            "scenario": "nec-linux", "longhaul": "0.1.0", "started": "2026-11-21T03:00:00Z",
            "seed": 7, "quick": false,
            "host": {"kernel": "6.18", "cpus": 2, "sysctl": {}, "offloads": {}}, "resolved": {},
            "cells": [{
                "vary": {"delay": "1ms", "loss": 0.001, "relays": true},
                "runs": [{"goodput_bps": 1.23e8}],
                "metrics": {"goodput_bps": {"median": 1.23e8, "min": 1.2e8, "max": 1.3e8}},
                "paper": {"goodput_bps": 1.24e8}
            }],
            "checks": [{"name": "n", "pass": true, "value": 1.2, "want": ">= 1.0"}],
            "links": [{"name": "wan", "mode": "exact",
                "delay_error_us": {"median": 3.0, "p99": 80.0, "max": 400.0}, "drops": {}}]
        })
    }

    #[test]
    fn the_documented_format_reads_and_writes_unchanged() {
        let result: LabResult = serde_json::from_value(smallest()).unwrap();
        assert_eq!(result.cells[0].runs[0].metrics["goodput_bps"], 1.23e8);
        assert_eq!(serde_json::to_value(&result).unwrap(), smallest());
    }

    #[test]
    fn settings_read_as_people_write_them() {
        let said = |value: Value| setting("x", &value);
        assert_eq!(said(json!("0ms")), "0 ms");
        assert_eq!(said(json!("100mbit")), "100 Mbit/s");
        assert_eq!(said(json!("64KB")), "64 KB");
        assert_eq!(said(json!("10 ms")), "10 ms");
        assert_eq!(said(json!("cubic")), "cubic");
        assert_eq!(said(json!("5")), "5");
        assert_eq!(said(json!(true)), "true");
        assert_eq!(setting("loss", &json!(0.001)), "0.1 %");
    }

    #[test]
    fn a_run_keeps_its_series_apart_from_its_metrics() {
        let text =
            r#"{"download_s":16.2,"failed":"reset","series":{"bin_ms":100.0,"goodput_bps":[1e9]}}"#;
        let run: Run = serde_json::from_str(text).unwrap();
        assert_eq!(run.metrics.len(), 1);
        assert_eq!(run.series.as_ref().unwrap().goodput_bps, [1e9]);
        let again: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
        assert_eq!(again, run);
    }

    #[test]
    fn disturbed_runs_count_only_where_there_are_no_others() {
        let run = |s: f64, disturbed: Option<&str>| Run {
            metrics: Metrics::from([("download_s".to_owned(), s)]),
            disturbed: disturbed.map(str::to_owned),
            ..Run::default()
        };
        let median = |runs: Vec<Run>| {
            let mut cell = Cell {
                runs,
                ..Cell::default()
            };
            cell.summarise();
            (cell.metrics["download_s"].median, cell.is_disturbed())
        };
        let busy = || run(90.0, Some("too busy"));
        assert_eq!(median(vec![run(16.0, None), busy(), busy()]), (16.0, false));
        assert_eq!(median(vec![busy(), busy()]), (90.0, true));
        let failed = Run {
            failed: Some("reset".to_owned()),
            ..run(1.0, None)
        };
        assert_eq!(median(vec![busy(), failed]), (90.0, true));
        assert!(!Cell::default().is_disturbed());
    }

    #[test]
    fn failed_runs_are_not_summarised() {
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
