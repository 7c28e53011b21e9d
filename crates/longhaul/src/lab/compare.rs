// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two results figure by figure: what differs by more than runs of one cell differ among themselves.

use super::{
    metric::{Metric, times},
    result::{Cell, Check, LabResult},
    summary::Summary,
    table::aligned,
};
use indexmap::IndexSet;
use serde::Serialize;

/// Medians that are closer, as a share of the first, are the same to any reader.
const CLOSE: f64 = 0.01;
/// What "beyond noise" means, for people.
pub(crate) const RULE: &str = "Beyond noise: the runs’ ranges do not meet, the medians are further apart than either \
                               range is wide, and by more than 1 %. It takes two runs of the cell on each side.";

/// The whole comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Comparison {
    pub(crate) a: Side,
    pub(crate) b: Side,
    /// Cell by cell, in the order of A; then what only B has.
    pub(crate) figures: Vec<Figure>,
    pub(crate) checks: Vec<Checked>,
}

/// What one of the two is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Side {
    /// As the command line names it.
    pub(crate) name: String,
    pub(crate) scenario: String,
    pub(crate) longhaul: String,
    pub(crate) started: jiff::Timestamp,
    pub(crate) kernel: String,
    pub(crate) quick: bool,
}

/// A metric of a cell in both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// The cell's name for people.
    pub(crate) cell: String,
    pub(crate) metric: String,
    /// Absent if this side has no such figure; one of the two is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) a: Option<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) b: Option<Summary>,
    pub(crate) difference: Difference,
}

/// How B stands to A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Difference {
    /// Not beyond noise.
    None,
    Better,
    Worse,
    /// One side has too few runs to know the noise, or no figure.
    Unknown,
}

/// Whether a check passed on each side; absent if it was not judged there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Checked {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) a: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) b: Option<bool>,
}

impl Comparison {
    /// Of two results with the names that people gave them.
    pub(crate) fn of([a, b]: [(&str, &LabResult); 2]) -> Self {
        Self {
            figures: figures(&a.1.cells, &b.1.cells),
            checks: checks(&a.1.checks, &b.1.checks),
            a: side(a),
            b: side(b),
        }
    }

    /// For a terminal: what differs, then how much does not.
    pub(crate) fn text(&self) -> String {
        let differs =
            |figure: &&Figure| matches!(figure.difference, Difference::Better | Difference::Worse);
        let heading = ["cell", "figure", "A", "B", "B/A", ""]
            .map(str::to_owned)
            .to_vec();
        let found: Vec<Vec<String>> = self
            .figures
            .iter()
            .filter(differs)
            .map(Figure::row)
            .collect();
        let same = self
            .figures
            .iter()
            .filter(|figure| figure.difference == Difference::None)
            .count();
        let unknown = self.figures.len() - found.len() - same;
        let table = match found.is_empty() {
            true => Vec::new(),
            false => aligned(&[vec![heading], found.clone()].concat()),
        };
        let last = format!(
            "{} of {} figures differ beyond noise, {unknown} not known",
            found.len(),
            self.figures.len()
        );
        table
            .iter()
            .map(String::as_str)
            .chain([last.as_str()])
            .map(|line| format!("{}\n", line.trim_end()))
            .collect()
    }
}

impl Figure {
    fn row(&self) -> Vec<String> {
        let metric = Metric::of(&self.metric);
        let print = |found: &Option<Summary>| {
            found.map_or("–".to_owned(), |found| metric.print(found.median))
        };
        let ratio = self
            .a
            .zip(self.b)
            .map_or(String::new(), |(a, b)| times(b.median / a.median));
        let word = if self.difference == Difference::Better {
            "better"
        } else {
            "worse"
        };
        vec![
            self.cell.clone(),
            metric.label.clone(),
            print(&self.a),
            print(&self.b),
            ratio,
            word.to_owned(),
        ]
    }
}

fn side((name, result): (&str, &LabResult)) -> Side {
    Side {
        name: name.to_owned(),
        scenario: result.scenario.clone(),
        longhaul: result.longhaul.clone(),
        started: result.started,
        kernel: result.host.kernel.clone(),
        quick: result.quick,
    }
}

fn figures(a: &[Cell], b: &[Cell]) -> Vec<Figure> {
    let same = |one: &&Cell, other: &Cell| one.vary == other.vary && one.name() == other.name();
    let of_a = a
        .iter()
        .flat_map(|cell| of_cell(Some(cell), b.iter().find(|other| same(other, cell))));
    let only_b = b
        .iter()
        .filter(|cell| !a.iter().any(|other| same(&other, cell)));
    of_a.chain(only_b.flat_map(|cell| of_cell(None, Some(cell))))
        .collect()
}

fn of_cell(a: Option<&Cell>, b: Option<&Cell>) -> Vec<Figure> {
    let cells = || [a, b].into_iter().flatten();
    let names: IndexSet<&String> = cells().flat_map(|cell| cell.metrics.keys()).collect();
    let name = cells().next().map(Cell::name).unwrap_or_default();
    let figure = |metric: &String| {
        let summary = |cell: Option<&Cell>| cell?.metrics.get(metric).copied();
        let both = a
            .zip(b)
            .filter(|(a, b)| runs(a, metric) > 1 && runs(b, metric) > 1);
        let known = both.and_then(|(a, b)| summary(Some(a)).zip(summary(Some(b))));
        Figure {
            cell: name.clone(),
            metric: metric.clone(),
            a: summary(a),
            b: summary(b),
            difference: known.map_or(Difference::Unknown, |(a, b)| difference(metric, a, b)),
        }
    };
    names.into_iter().map(figure).collect()
}

/// Runs that gave this metric.
fn runs(cell: &Cell, metric: &str) -> usize {
    let good = cell.runs.iter().filter(|run| run.failed.is_none());
    good.filter(|run| run.metrics.contains_key(metric)).count()
}

fn difference(metric: &str, a: Summary, b: Summary) -> Difference {
    let apart = (b.median - a.median).abs();
    let meet = a.min <= b.max && b.min <= a.max;
    let widest = (a.max - a.min).max(b.max - b.min);
    if meet || apart <= widest || apart <= CLOSE * a.median.abs() {
        return Difference::None;
    }
    match (b.median > a.median) == Metric::of(metric).less_is_better {
        true => Difference::Worse,
        false => Difference::Better,
    }
}

fn checks(a: &[Check], b: &[Check]) -> Vec<Checked> {
    let names: IndexSet<&String> = a.iter().chain(b).map(|check| &check.name).collect();
    let pass = |checks: &[Check], name: &String| {
        checks
            .iter()
            .find(|check| check.name == *name)
            .map(|check| check.pass)
    };
    let checked = |name: &String| Checked {
        name: name.clone(),
        a: pass(a, name),
        b: pass(b, name),
    };
    names.into_iter().map(checked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::result::Run;
    use serde_json::json;

    fn result(goodput: &[f64]) -> LabResult {
        let run = |value: &f64| {
            serde_json::from_value::<Run>(json!({"goodput_bps": value, "download_s": 1e9 / value}))
                .unwrap()
        };
        let mut cell = Cell {
            label: Some("one".to_owned()),
            runs: goodput.iter().map(run).collect(),
            ..Cell::default()
        };
        cell.summarise();
        let check = Check {
            name: "fast".to_owned(),
            pass: goodput[0] > 1e8,
            ..Check::default()
        };
        LabResult {
            cells: vec![cell],
            checks: vec![check],
            ..LabResult::default()
        }
    }

    fn found(a: &[f64], b: &[f64]) -> Vec<Difference> {
        let comparison = Comparison::of([("a", &result(a)), ("b", &result(b))]);
        comparison
            .figures
            .iter()
            .map(|figure| figure.difference)
            .collect()
    }

    #[test]
    fn what_lies_apart_differs_and_less_time_is_better() {
        use Difference::{Better, None, Unknown, Worse};
        assert_eq!(found(&[1e8, 1.02e8], &[2e8, 2.02e8]), [Better, Better]);
        assert_eq!(found(&[2e8, 2.02e8], &[1e8, 1.02e8]), [Worse, Worse]);
        assert_eq!(
            found(&[1e8, 1.5e8], &[1.4e8, 2e8]),
            [None, None],
            "the ranges meet"
        );
        assert_eq!(
            found(&[1e8, 1.5e8], &[1.51e8, 1.6e8]),
            [None, None],
            "the ranges are wide"
        );
        assert_eq!(
            found(&[1e8, 1e8], &[1.005e8, 1.005e8]),
            [None, None],
            "close"
        );
        assert_eq!(found(&[1e8], &[2e8, 2e8]), [Unknown, Unknown], "one run");
    }

    #[test]
    fn cells_and_checks_of_one_side_stay() {
        let (a, mut b) = (result(&[1e8, 1e8]), result(&[3e8, 3e8]));
        b.cells[0].label = Some("other".to_owned());
        let comparison = Comparison::of([("a", &a), ("b", &b)]);
        assert_eq!(comparison.figures.len(), 4);
        assert!(
            comparison
                .figures
                .iter()
                .all(|figure| figure.a.is_none() != figure.b.is_none())
        );
        assert_eq!(
            (comparison.checks[0].a, comparison.checks[0].b),
            (Some(false), Some(true))
        );
    }

    #[test]
    fn a_terminal_gets_what_differs() {
        let text =
            Comparison::of([("a", &result(&[1e8, 1e8])), ("b", &result(&[2e8, 2e8]))]).text();
        assert_eq!(
            text,
            "cell   figure     A            B            B/A    \n\
             one    Download   10 s         5 s          0.5×   better\n\
             one    Goodput    100 Mbit/s   200 Mbit/s   2×     better\n\
             2 of 2 figures differ beyond noise, 0 not known\n"
                .replace("    \n", "\n")
        );
    }
}
