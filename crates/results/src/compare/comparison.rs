// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of two results, a baseline and a candidate: their cells in pairs, and all other differences.

use super::rule::{self, Verdict};
use crate::{
    result::{Cell, Check, LabResult, Metrics, Parameters, Run, json_text},
    summary::Summary,
};
use anyhow::Result;
use indexmap::IndexSet;
use longhaul_command::exit::Refusal;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Comparison of two results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Comparison {
    pub(crate) baseline: Side,
    pub(crate) candidate: Side,
    /// Other differences: seed, kernel, parameters.
    pub(crate) settings: Vec<SettingDifference>,
    /// Cells that both have, in the order of the baseline.
    pub(crate) cells: Vec<CellPair>,
    /// Names of the cells that only the baseline has.
    #[serde(rename = "only_baseline")]
    pub(crate) baseline_only_cells: Vec<String>,
    /// Names of the cells that only the candidate has.
    #[serde(rename = "only_candidate")]
    pub(crate) candidate_only_cells: Vec<String>,
    /// Checks of either, in the order of the baseline.
    pub(crate) checks: Vec<CheckPair>,
    /// Metric in the baseline's headline, or its first metric.
    pub(crate) main_metric: Option<String>,
}

/// One side of the comparison: a result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Side {
    /// Path, as on the command line.
    pub(crate) name: String,
    pub(crate) scenario: String,
    pub(crate) title: String,
    /// Version of longhaul that ran it.
    pub(crate) longhaul: String,
    pub(crate) kernel: String,
    pub(crate) started: jiff::Timestamp,
    pub(crate) quick: bool,
    /// Simulated cells: `all cells`, `3 of 7 cells`; absent if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) simulated: Option<String>,
    /// Number of runs during which the host was overloaded. They do not count if the cell has other runs.
    pub(crate) overloaded_runs: usize,
    pub(crate) runs: usize,
}

impl Side {
    /// Returns the reasons why its metrics are less reliable than measurements on an idle host.
    pub(crate) fn caveats(&self) -> Vec<String> {
        let simulated = self.simulated.as_ref();
        let simulated = simulated.map(|cells| format!("simulated, not run on sockets: {cells}"));
        let overloaded = (self.overloaded_runs > 0).then(|| {
            format!(
                "emulator late in {} of {} runs",
                self.overloaded_runs, self.runs
            )
        });
        simulated.into_iter().chain(overloaded).collect()
    }
}

/// Results of a check on both sides; absent if it was not evaluated or is undecided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CheckPair {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) baseline: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) candidate: Option<bool>,
}

/// Setting that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SettingDifference {
    pub(crate) name: String,
    pub(crate) baseline: String,
    pub(crate) candidate: String,
}

/// Cell in both results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CellPair {
    pub(crate) name: String,
    pub(crate) parameters: Parameters,
    /// Metrics that both sides have.
    pub(crate) metrics: Metrics<MetricPair>,
}

/// Metric of a cell in both results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MetricPair {
    pub(crate) baseline: Summary,
    pub(crate) candidate: Summary,
    /// Number of runs that have the metric.
    pub(crate) baseline_runs: usize,
    pub(crate) candidate_runs: usize,
    /// Ratio of the candidate's median to the baseline's; absent if the latter is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
    pub(crate) verdict: Verdict,
}

impl MetricPair {
    /// Returns whether the difference is significant.
    pub(crate) fn is_significant(&self) -> bool {
        matches!(self.verdict, Verdict::Higher | Verdict::Lower)
    }
}

impl Comparison {
    /// Returns the metrics of all cells.
    pub(crate) fn metrics(&self) -> impl Iterator<Item = &MetricPair> {
        self.cells.iter().flat_map(|cell| cell.metrics.values())
    }

    /// Returns the expected number of false positives at most, and the number of metrics judged by their ranges. Returns
    /// `None` if no metric is judged so.
    pub(crate) fn expected_false_positives(&self) -> Option<(f64, usize)> {
        let ranged = self.metrics().filter(|one| {
            rule::is_judged_by_ranges(one.baseline_runs, one.candidate_runs)
                && one.verdict != Verdict::Overloaded
        });
        let chances: Vec<f64> = ranged
            .map(|one| rule::disjoint_probability(one.baseline_runs, one.candidate_runs))
            .collect();
        (!chances.is_empty()).then(|| (chances.iter().sum(), chances.len()))
    }

    /// Describes the expected number of false positives; `None` if no metric has few runs.
    pub(crate) fn describe_false_positives(&self) -> Option<String> {
        let (false_positives, all) = self.expected_false_positives()?;
        Some(format!(
            "{all} metrics have two to four runs per side: expect up to {false_positives:.1} false positives among them; \
             five runs per side have fewer"
        ))
    }
}

/// Compares two results, each with its name.
///
/// # Errors
/// The results have no cell in common: a usage refusal.
pub(crate) fn compare(
    baseline_name: &str,
    baseline: &LabResult,
    candidate_name: &str,
    candidate: &LabResult,
) -> Result<Comparison> {
    let partner = |cell: &Cell, among: &[Cell]| {
        among
            .iter()
            .position(|other| has_same_parameters(cell, other))
    };
    let pair = |cell: &Cell| {
        let partner = partner(cell, &candidate.cells)?;
        Some(pair_cells(cell, &candidate.cells[partner]))
    };
    let unmatched = |cells: &[Cell], others: &[Cell]| -> Vec<String> {
        let unmatched_cells = cells.iter().filter(|cell| partner(cell, others).is_none());
        unmatched_cells.map(Cell::name).collect()
    };
    let cells: Vec<CellPair> = baseline.cells.iter().filter_map(pair).collect();
    if cells.is_empty() {
        return Err(Refusal::usage(format!(
            "{baseline_name} ({}) and {candidate_name} ({}) have no cell in common",
            baseline.scenario, candidate.scenario
        )));
    }
    Ok(Comparison {
        settings: settings(baseline, candidate),
        baseline_only_cells: unmatched(&baseline.cells, &candidate.cells),
        candidate_only_cells: unmatched(&candidate.cells, &baseline.cells),
        checks: checks(&baseline.checks, &candidate.checks),
        main_metric: baseline.main_metric().map(str::to_owned),
        baseline: side(baseline_name, baseline),
        candidate: side(candidate_name, candidate),
        cells,
    })
}

fn side(name: &str, result: &LabResult) -> Side {
    Side {
        name: name.to_owned(),
        scenario: result.scenario.clone(),
        title: result.title().to_owned(),
        longhaul: result.longhaul.clone(),
        kernel: result.host.kernel.clone(),
        started: result.started,
        quick: result.quick,
        simulated: result.simulated(),
        overloaded_runs: result.overloaded_runs().count(),
        runs: result.cells.iter().map(|cell| cell.runs.len()).sum(),
    }
}

fn checks(baseline: &[Check], candidate: &[Check]) -> Vec<CheckPair> {
    let names: IndexSet<&String> = baseline
        .iter()
        .chain(candidate)
        .map(|check| &check.name)
        .collect();
    let pass = |checks: &[Check], name: &String| {
        let check = checks.iter().find(|check| check.name == *name)?;
        check.undecided.is_none().then_some(check.pass)
    };
    let checked = |name: &String| CheckPair {
        name: name.clone(),
        baseline: pass(baseline, name),
        candidate: pass(candidate, name),
    };
    names.into_iter().map(checked).collect()
}

/// Returns whether two cells have the same parameters, in any order.
fn has_same_parameters(one: &Cell, other: &Cell) -> bool {
    let alike = |(key, value): (&String, &Value)| {
        let other_value = other.parameters.get(key);
        other_value == Some(value)
            || other_value.is_some_and(|other_value| {
                other_value.is_number() && other_value.as_f64() == value.as_f64()
            })
    };
    one.parameters.len() == other.parameters.len() && one.parameters.iter().all(alike)
}

fn pair_cells(baseline: &Cell, candidate: &Cell) -> CellPair {
    let overloaded = baseline.is_overloaded() || candidate.is_overloaded();
    let pair = |name: &String| {
        let [before, after] = [baseline, candidate].map(|cell| values(cell, name));
        let [baseline, candidate] =
            [&before, &after].map(|values| Summary::of(values.iter().copied()));
        let (baseline, candidate) = (baseline?, candidate?);
        let pair = MetricPair {
            baseline,
            candidate,
            baseline_runs: before.len(),
            candidate_runs: after.len(),
            ratio: (baseline.median != 0.0).then(|| candidate.median / baseline.median),
            verdict: if overloaded {
                Verdict::Overloaded
            } else {
                rule::verdict(&before, &after)
            },
        };
        Some((name.clone(), pair))
    };
    CellPair {
        name: baseline.name(),
        parameters: baseline.parameters.clone(),
        metrics: baseline.metrics.keys().filter_map(pair).collect(),
    }
}

/// Returns the metric's values in the valid runs.
fn values(cell: &Cell, metric: &str) -> Vec<f64> {
    let value = |run: &Run| run.metrics.get(metric).copied();
    cell.valid_runs()
        .filter_map(value)
        .filter(|value| value.is_finite())
        .collect()
}

fn settings(baseline: &LabResult, candidate: &LabResult) -> Vec<SettingDifference> {
    let plain = |result: &LabResult| {
        let host = &result.host;
        [
            ("scenario", result.scenario.clone()),
            ("longhaul", result.longhaul.clone()),
            ("seed", result.seed.to_string()),
            ("quick", result.quick.to_string()),
            ("kernel", host.kernel.clone()),
            ("CPUs", host.cpus.to_string()),
            ("CPU", host.cpu.clone().unwrap_or_default()),
        ]
    };
    let properties = plain(baseline).into_iter().zip(plain(candidate));
    let mut found: Vec<SettingDifference> = properties
        .filter_map(|((name, before), (_, after))| difference(name, before, after))
        .collect();
    let [before, after] = [baseline, candidate].map(|result| members(&result.resolved));
    let [before, after] = [before, after].map(Option::unwrap_or_default);
    let add = |part: &str, found: &mut Vec<SettingDifference>| {
        let at = |parts: &Members<'_>| parts.get(part).copied().cloned().unwrap_or_default();
        add_differences(part, &at(&before), &at(&after), found);
    };
    for part in [
        "parameters",
        "sysctl",
        "repetitions",
        "warmup_runs",
        "congestion_control",
    ] {
        add(part, &mut found);
    }
    let mut derived = Vec::new();
    for part in ["links", "hosts", "relays", "decp", "flows"] {
        add(part, &mut derived);
    }
    // A difference that follows from a parameter is listed only with the parameter.
    derived.retain(|one| {
        !found
            .iter()
            .any(|other| (&other.baseline, &other.candidate) == (&one.baseline, &one.candidate))
    });
    found.extend(derived);
    for (name, before) in &baseline.host.sysctl {
        let after = candidate.host.sysctl.get(name).cloned().unwrap_or_default();
        found.extend(difference(name, before.clone(), after));
    }
    for (name, before) in &baseline.host.programs {
        let after = candidate
            .host
            .programs
            .get(name)
            .cloned()
            .unwrap_or_default();
        found.extend(difference(name, before.clone(), after));
    }
    found
}

fn difference(name: &str, baseline: String, candidate: String) -> Option<SettingDifference> {
    (baseline != candidate).then_some(SettingDifference {
        name: name.to_owned(),
        baseline,
        candidate,
    })
}

/// Adds the values below `name` that differ.
fn add_differences(
    name: &str,
    baseline: &Value,
    candidate: &Value,
    found: &mut Vec<SettingDifference>,
) {
    let (Some(before), Some(after)) = (members(baseline), members(candidate)) else {
        found.extend(difference(
            name,
            value_text(baseline),
            value_text(candidate),
        ));
        return;
    };
    let keys: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    for key in keys {
        let at = |parts: &Members<'_>| parts.get(key).copied().cloned().unwrap_or_default();
        add_differences(&format!("{name}.{key}"), &at(&before), &at(&after), found);
    }
}

type Members<'a> = BTreeMap<&'a str, &'a Value>;

/// Returns the members of a table, or the elements of a list of named tables.
fn members(value: &Value) -> Option<Members<'_>> {
    match value {
        Value::Object(table) => Some(table.iter().map(|(key, one)| (key.as_str(), one)).collect()),
        Value::Array(list) => list
            .iter()
            .map(|one| Some((one["name"].as_str()?, one)))
            .collect(),
        _ => None,
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Object(_) => "given".to_owned(),
        Value::Array(list) if list.iter().any(Value::is_object) => "given".to_owned(),
        other => json_text(other),
    }
}
