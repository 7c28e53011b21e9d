// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of two results: their cells in pairs, and all other differences.

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
    pub(crate) a: Side,
    pub(crate) b: Side,
    /// Other differences: seed, kernel, parameters.
    pub(crate) settings: Vec<SettingDifference>,
    /// Cells that both have, in the order of A.
    pub(crate) cells: Vec<CellPair>,
    /// Names of cells that only one has.
    pub(crate) only_a: Vec<String>,
    pub(crate) only_b: Vec<String>,
    /// Checks of either, in the order of A.
    pub(crate) checks: Vec<CheckPair>,
    /// Metric that answers A's question, or its first.
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
    #[serde(rename = "disturbed")]
    pub(crate) overloaded_runs: usize,
    pub(crate) runs: usize,
}

impl Side {
    /// Returns the reasons why its figures are less than measurements on an idle machine.
    pub(crate) fn caveats(&self) -> Vec<String> {
        let simulated = self.simulated.as_ref();
        let simulated = simulated.map(|cells| format!("simulated, not run on sockets: {cells}"));
        let overloaded = (self.overloaded_runs > 0).then(|| {
            format!(
                "the machine was too busy for {} of {} runs",
                self.overloaded_runs, self.runs
            )
        });
        simulated.into_iter().chain(overloaded).collect()
    }
}

/// Results of a check on both sides; absent if it was not judged, or not decided because the host was overloaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CheckPair {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) a: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) b: Option<bool>,
}

/// Setting that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SettingDifference {
    pub(crate) name: String,
    pub(crate) a: String,
    pub(crate) b: String,
}

/// Cell in both results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CellPair {
    pub(crate) name: String,
    #[serde(rename = "vary")]
    pub(crate) parameters: Parameters,
    /// Metrics that both sides have.
    pub(crate) metrics: Metrics<Figures>,
}

/// Metric of a cell in both results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures {
    pub(crate) a: Summary,
    pub(crate) b: Summary,
    /// Number of runs that have the metric.
    pub(crate) a_runs: usize,
    pub(crate) b_runs: usize,
    /// Ratio of B's median to A's; absent if A's is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
    pub(crate) verdict: Verdict,
}

impl Figures {
    /// Returns whether the difference is larger than noise explains.
    pub(crate) fn is_significant(&self) -> bool {
        matches!(self.verdict, Verdict::Higher | Verdict::Lower)
    }
}

impl Comparison {
    /// Returns the figures of all cells.
    pub(crate) fn figures(&self) -> impl Iterator<Item = &Figures> {
        self.cells.iter().flat_map(|cell| cell.metrics.values())
    }

    /// Returns the expected number of figures that chance alone would mark at most, and the number of figures judged by
    /// their ranges. Returns `None` if no figure is judged so.
    pub(crate) fn expected_by_chance(&self) -> Option<(f64, usize)> {
        let ranged = self.figures().filter(|one| {
            rule::is_judged_by_ranges(one.a_runs, one.b_runs) && one.verdict != Verdict::Overloaded
        });
        let chances: Vec<f64> = ranged
            .map(|one| rule::disjoint_probability(one.a_runs, one.b_runs))
            .collect();
        (!chances.is_empty()).then(|| (chances.iter().sum(), chances.len()))
    }

    /// Describes the expected number of figures that chance alone would mark; `None` if no figure has few runs.
    pub(crate) fn describe_chance(&self) -> Option<String> {
        let (by_chance, all) = self.expected_by_chance()?;
        Some(format!(
            "of {all} figures with two to four runs a side, chance alone would mark up to {by_chance:.1} if nothing \
             differed; five runs and more tell"
        ))
    }
}

/// Compares two results, each with its name.
///
/// # Errors
/// The results have no cell in common: a usage refusal.
pub(crate) fn compare(
    (a_name, a): (&str, &LabResult),
    (b_name, b): (&str, &LabResult),
) -> Result<Comparison> {
    let partner = |cell: &Cell, among: &[Cell]| {
        among
            .iter()
            .position(|other| has_same_parameters(cell, other))
    };
    let pair = |cell: &Cell| Some(pair_cells(cell, &b.cells[partner(cell, &b.cells)?]));
    let unmatched = |cells: &[Cell], others: &[Cell]| -> Vec<String> {
        let unmatched_cells = cells.iter().filter(|cell| partner(cell, others).is_none());
        unmatched_cells.map(Cell::name).collect()
    };
    let cells: Vec<CellPair> = a.cells.iter().filter_map(pair).collect();
    if cells.is_empty() {
        return Err(Refusal::usage(format!(
            "{a_name} ({}) and {b_name} ({}) have no cell in common",
            a.scenario, b.scenario
        )));
    }
    Ok(Comparison {
        settings: settings(a, b),
        only_a: unmatched(&a.cells, &b.cells),
        only_b: unmatched(&b.cells, &a.cells),
        checks: checks(&a.checks, &b.checks),
        main_metric: a.main_metric().map(str::to_owned),
        a: side(a_name, a),
        b: side(b_name, b),
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

fn checks(a: &[Check], b: &[Check]) -> Vec<CheckPair> {
    let names: IndexSet<&String> = a.iter().chain(b).map(|check| &check.name).collect();
    let pass = |checks: &[Check], name: &String| {
        let check = checks.iter().find(|check| check.name == *name)?;
        check.undecided.is_none().then_some(check.pass)
    };
    let checked = |name: &String| CheckPair {
        name: name.clone(),
        a: pass(a, name),
        b: pass(b, name),
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

fn pair_cells(a: &Cell, b: &Cell) -> CellPair {
    let overloaded = a.is_overloaded() || b.is_overloaded();
    let figures = |name: &String| {
        let (ours, theirs) = (values(a, name), values(b, name));
        let (a, b) = (
            Summary::of(ours.iter().copied())?,
            Summary::of(theirs.iter().copied())?,
        );
        let figures = Figures {
            a,
            b,
            a_runs: ours.len(),
            b_runs: theirs.len(),
            ratio: (a.median != 0.0).then(|| b.median / a.median),
            verdict: match overloaded {
                true => Verdict::Overloaded,
                false => rule::verdict(&ours, &theirs),
            },
        };
        Some((name.clone(), figures))
    };
    CellPair {
        name: a.name(),
        parameters: a.parameters.clone(),
        metrics: a.metrics.keys().filter_map(figures).collect(),
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

fn settings(a: &LabResult, b: &LabResult) -> Vec<SettingDifference> {
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
    let properties = plain(a).into_iter().zip(plain(b));
    let mut found: Vec<SettingDifference> = properties
        .filter_map(|((name, a), (_, b))| difference(name, a, b))
        .collect();
    for part in [
        "parameters",
        "sysctl",
        "repetitions",
        "warmup",
        "congestion_control",
    ] {
        add_differences(part, &a.resolved[part], &b.resolved[part], &mut found);
    }
    let mut derived = Vec::new();
    for part in ["links", "hosts", "relays", "decp", "flows"] {
        add_differences(part, &a.resolved[part], &b.resolved[part], &mut derived);
    }
    // A difference that follows from a parameter is listed only with the parameter.
    derived.retain(|one| {
        !found
            .iter()
            .any(|other| (&other.a, &other.b) == (&one.a, &one.b))
    });
    found.extend(derived);
    for (name, ours) in &a.host.sysctl {
        let theirs = b.host.sysctl.get(name).cloned().unwrap_or_default();
        found.extend(difference(name, ours.clone(), theirs));
    }
    for (name, ours) in &a.host.programs {
        let theirs = b.host.programs.get(name).cloned().unwrap_or_default();
        found.extend(difference(name, ours.clone(), theirs));
    }
    found
}

fn difference(name: &str, a: String, b: String) -> Option<SettingDifference> {
    let name = name.to_owned();
    (a != b).then_some(SettingDifference { name, a, b })
}

/// Adds the values below `name` that differ.
fn add_differences(name: &str, a: &Value, b: &Value, found: &mut Vec<SettingDifference>) {
    let (Some(ours), Some(theirs)) = (members(a), members(b)) else {
        found.extend(difference(name, value_text(a), value_text(b)));
        return;
    };
    let keys: BTreeSet<&str> = ours.keys().chain(theirs.keys()).copied().collect();
    for key in keys {
        let at =
            |parts: &BTreeMap<&str, &Value>| parts.get(key).copied().cloned().unwrap_or_default();
        add_differences(&format!("{name}.{key}"), &at(&ours), &at(&theirs), found);
    }
}

/// Returns the members of a table, or the elements of a list of named tables.
fn members(value: &Value) -> Option<BTreeMap<&str, &Value>> {
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
        other => json_text(other),
    }
}
