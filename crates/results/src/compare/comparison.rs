// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two results side by side: their cells in pairs, and what else is not the same in both.

use super::rule::{self, Verdict};
use crate::{
    result::{Cell, Check, LabResult, Metrics, Run, Vary, plain},
    summary::Summary,
};
use anyhow::Result;
use indexmap::IndexSet;
use longhaul_command::exit::Refusal;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Two results, put against each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Comparison {
    pub(crate) a: Side,
    pub(crate) b: Side,
    /// In what the labs differ besides their figures: another seed, kernel, parameter.
    pub(crate) settings: Vec<Setting>,
    /// Cells that both have, in the order of A.
    pub(crate) cells: Vec<Pair>,
    /// Names of cells that only one has.
    pub(crate) only_a: Vec<String>,
    pub(crate) only_b: Vec<String>,
    /// Checks of either, in the order of A.
    pub(crate) checks: Vec<Checked>,
    /// The metric that answers A's question, or its first.
    pub(crate) main_metric: Option<String>,
}

/// One result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Side {
    /// As it was named on the command line.
    pub(crate) name: String,
    pub(crate) scenario: String,
    pub(crate) title: String,
    /// Version of longhaul that ran it.
    pub(crate) longhaul: String,
    pub(crate) kernel: String,
    pub(crate) started: jiff::Timestamp,
    pub(crate) quick: bool,
    /// Which cells were simulated: `all cells`, `3 of 7 cells`; absent if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) simulated: Option<String>,
    /// Runs that the machine was too busy for; of a cell that has others they do not count.
    pub(crate) disturbed: usize,
    pub(crate) runs: usize,
}

impl Side {
    /// What makes its figures less than measurements of a quiet machine, if anything.
    pub(crate) fn reservations(&self) -> Vec<String> {
        let simulated = self.simulated.as_ref();
        let simulated = simulated.map(|cells| format!("simulated, not run on sockets: {cells}"));
        let disturbed = (self.disturbed > 0).then(|| {
            format!(
                "the machine was too busy for {} of {} runs",
                self.disturbed, self.runs
            )
        });
        simulated.into_iter().chain(disturbed).collect()
    }
}

/// Whether a check passed on each side; absent where it was not judged, or the machine was too busy to decide it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Checked {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) a: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) b: Option<bool>,
}

/// Something that is not the same in both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) a: String,
    pub(crate) b: String,
}

/// A cell in both results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Pair {
    pub(crate) name: String,
    pub(crate) vary: Vary,
    /// Metrics that both have.
    pub(crate) metrics: Metrics<Figures>,
}

/// One metric of a cell in both results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures {
    pub(crate) a: Summary,
    pub(crate) b: Summary,
    /// Runs that gave it.
    pub(crate) a_runs: usize,
    pub(crate) b_runs: usize,
    /// B's median over A's; absent if A's is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
    pub(crate) verdict: Verdict,
}

impl Figures {
    /// Whether noise does not explain the difference.
    pub(crate) fn differ(&self) -> bool {
        matches!(self.verdict, Verdict::Higher | Verdict::Lower)
    }
}

impl Comparison {
    /// Those of all cells.
    pub(crate) fn figures(&self) -> impl Iterator<Item = &Figures> {
        self.cells.iter().flat_map(|cell| cell.metrics.values())
    }

    /// How many figures chance alone would mark, at most, where nothing differs and few runs decide by their ranges;
    /// and of how many. `None` where none are decided so.
    pub(crate) fn by_chance(&self) -> Option<(f64, usize)> {
        let ranged = self.figures().filter(|one| {
            rule::is_ranged(one.a_runs, one.b_runs) && one.verdict != Verdict::Disturbed
        });
        let chances: Vec<f64> = ranged
            .map(|one| rule::chance_apart(one.a_runs, one.b_runs))
            .collect();
        (!chances.is_empty()).then(|| (chances.iter().sum(), chances.len()))
    }

    /// How many figures chance alone would mark, in words; `None` if no figure has few runs.
    pub(crate) fn chance_said(&self) -> Option<String> {
        let (by_chance, all) = self.by_chance()?;
        Some(format!(
            "of {all} figures with two to four runs a side, chance alone would mark up to {by_chance:.1} if nothing \
             differed; five runs and more tell"
        ))
    }
}

/// Compares two results, each with its name for people.
///
/// # Errors
/// A usage refusal if no cell is in both.
pub(crate) fn of(
    (a_name, a): (&str, &LabResult),
    (b_name, b): (&str, &LabResult),
) -> Result<Comparison> {
    let partner = |cell: &Cell, among: &[Cell]| among.iter().position(|other| same(cell, other));
    let pair = |cell: &Cell| Some(paired(cell, &b.cells[partner(cell, &b.cells)?]));
    let without = |cells: &[Cell], others: &[Cell]| -> Vec<String> {
        let alone = cells.iter().filter(|cell| partner(cell, others).is_none());
        alone.map(Cell::name).collect()
    };
    let cells: Vec<Pair> = a.cells.iter().filter_map(pair).collect();
    if cells.is_empty() {
        return Err(Refusal::usage(format!(
            "{a_name} ({}) and {b_name} ({}) have no cell in common",
            a.scenario, b.scenario
        )));
    }
    Ok(Comparison {
        settings: settings(a, b),
        only_a: without(&a.cells, &b.cells),
        only_b: without(&b.cells, &a.cells),
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
        disturbed: result.disturbed().count(),
        runs: result.cells.iter().map(|cell| cell.runs.len()).sum(),
    }
}

fn checks(a: &[Check], b: &[Check]) -> Vec<Checked> {
    let names: IndexSet<&String> = a.iter().chain(b).map(|check| &check.name).collect();
    let pass = |checks: &[Check], name: &String| {
        let check = checks.iter().find(|check| check.name == *name)?;
        check.undecided.is_none().then_some(check.pass)
    };
    let checked = |name: &String| Checked {
        name: name.clone(),
        a: pass(a, name),
        b: pass(b, name),
    };
    names.into_iter().map(checked).collect()
}

/// Cells are the same if they were varied alike, in whatever order.
fn same(one: &Cell, other: &Cell) -> bool {
    let alike = |(key, value): (&String, &Value)| {
        let own = other.vary.get(key);
        own == Some(value)
            || own.is_some_and(|own| own.is_number() && own.as_f64() == value.as_f64())
    };
    one.vary.len() == other.vary.len() && one.vary.iter().all(alike)
}

fn paired(a: &Cell, b: &Cell) -> Pair {
    let disturbed = a.is_disturbed() || b.is_disturbed();
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
            verdict: match disturbed {
                true => Verdict::Disturbed,
                false => rule::verdict(&ours, &theirs),
            },
        };
        Some((name.clone(), figures))
    };
    Pair {
        name: a.name(),
        vary: a.vary.clone(),
        metrics: a.metrics.keys().filter_map(figures).collect(),
    }
}

/// Of the runs that count.
fn values(cell: &Cell, metric: &str) -> Vec<f64> {
    let value = |run: &Run| run.metrics.get(metric).copied();
    cell.counted()
        .filter_map(value)
        .filter(|value| value.is_finite())
        .collect()
}

fn settings(a: &LabResult, b: &LabResult) -> Vec<Setting> {
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
    let both = plain(a).into_iter().zip(plain(b));
    let mut found: Vec<Setting> = both
        .filter_map(|((name, a), (_, b))| setting(name, a, b))
        .collect();
    for part in [
        "parameters",
        "sysctl",
        "repetitions",
        "warmup",
        "congestion_control",
    ] {
        below(part, &a.resolved[part], &b.resolved[part], &mut found);
    }
    let mut elsewhere = Vec::new();
    for part in ["links", "hosts", "relays", "decp", "flows"] {
        below(part, &a.resolved[part], &b.resolved[part], &mut elsewhere);
    }
    // What a parameter of another value became is said with the parameter.
    elsewhere.retain(|one| {
        !found
            .iter()
            .any(|other| (&other.a, &other.b) == (&one.a, &one.b))
    });
    found.extend(elsewhere);
    for (name, ours) in &a.host.sysctl {
        let theirs = b.host.sysctl.get(name).cloned().unwrap_or_default();
        found.extend(setting(name, ours.clone(), theirs));
    }
    for (name, ours) in &a.host.programs {
        let theirs = b.host.programs.get(name).cloned().unwrap_or_default();
        found.extend(setting(name, ours.clone(), theirs));
    }
    found
}

fn setting(name: &str, a: String, b: String) -> Option<Setting> {
    let name = name.to_owned();
    (a != b).then_some(Setting { name, a, b })
}

/// The values below `name` that differ.
fn below(name: &str, a: &Value, b: &Value, found: &mut Vec<Setting>) {
    let (Some(ours), Some(theirs)) = (parts(a), parts(b)) else {
        found.extend(setting(name, shown(a), shown(b)));
        return;
    };
    let keys: BTreeSet<&str> = ours.keys().chain(theirs.keys()).copied().collect();
    for key in keys {
        let at =
            |parts: &BTreeMap<&str, &Value>| parts.get(key).copied().cloned().unwrap_or_default();
        below(&format!("{name}.{key}"), &at(&ours), &at(&theirs), found);
    }
}

/// What has a name in a table, or in a list of tables that are called something.
fn parts(value: &Value) -> Option<BTreeMap<&str, &Value>> {
    match value {
        Value::Object(table) => Some(table.iter().map(|(key, one)| (key.as_str(), one)).collect()),
        Value::Array(list) => list
            .iter()
            .map(|one| Some((one["name"].as_str()?, one)))
            .collect(),
        _ => None,
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Object(_) => "given".to_owned(),
        other => plain(other),
    }
}
