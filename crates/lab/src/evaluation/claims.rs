// SPDX-License-Identifier: MIT OR Apache-2.0
//! Evaluation of what a scenario claims: derived metrics, checks, and the paper's figures by cell, from lists and from
//! tables.

use crate::{
    experiment::{self, ExperimentPlan, text_pairs},
    scenario::{
        CheckSpec, Scenario,
        claim::{ReferenceTable, ReferenceValues},
        expression::{Bound, Expression},
        value::plain_text,
    },
};
use indexmap::IndexMap;
use longhaul_results::result::{Cell, Check, Metrics};
use serde_json::Value;

/// Adds the scenario's derived metrics to those of one run. A metric with a missing part is left
/// out.
pub(crate) fn derive(scenario: &Scenario, metrics: &mut Metrics) {
    for (name, text) in &scenario.derived {
        let value_in_run =
            |name: &str, _: &[(String, String)]| metrics.get(name).copied().ok_or(());
        let value = Expression::parse(text)
            .ok()
            .and_then(|expression| expression.value(&value_in_run).ok());
        if let Some(value) = value.filter(|value| value.is_finite()) {
            metrics.insert(name.clone(), value);
        }
    }
}

/// Evaluates every check that applies to this kind of run and whose cells were run.
pub(crate) fn checks(experiment: &ExperimentPlan, cells: &[Cell]) -> Vec<Check> {
    let applies = |spec: &&CheckSpec| spec.quick || !experiment.quick;
    let specs = experiment.scenario.check.iter().filter(applies);
    specs
        .filter_map(|spec| check(spec, experiment, cells))
        .collect()
}

/// Evaluates a check; `None` if one of its cells was excluded (`--filter`).
fn check(spec: &CheckSpec, experiment: &ExperimentPlan, cells: &[Cell]) -> Option<Check> {
    let bound = Bound::parse(&spec.threshold)?;
    let expression = Expression::parse(&spec.value).ok()?;
    let subjects =
        subjects_of(spec, experiment).map_or(vec![None], |all| all.into_iter().map(Some).collect());
    let values: Vec<CheckValue> = subjects
        .into_iter()
        .map(|subject| evaluate(&expression, subject, experiment, cells))
        .collect();
    let (found, undecided) = deciding_value(&values, bound);
    let value = match found {
        CheckValue::NotRun => return None,
        CheckValue::NoData => Value::from("no value: no run measured it"),
        CheckValue::DividesByZero => Value::from("no value: division by 0"),
        CheckValue::Found {
            value, of: None, ..
        } => Value::from(value),
        CheckValue::Found {
            value,
            of: Some(cell),
            ..
        } => Value::from(format!(
            "{value:.4} in the worst case, {}",
            cells[cell].name()
        )),
    };
    Some(Check {
        name: spec.name.clone(),
        pass: !undecided && found.satisfies(bound),
        undecided: undecided.then(|| EMULATOR_LATE.to_owned()),
        value,
        threshold: spec.threshold.clone(),
    })
}

/// Reason of an undecided check.
const EMULATOR_LATE: &str = "emulator late";

/// Returns the deciding value, and whether the check stays undecided.
///
/// A value from runs in which the emulator was late neither satisfies nor violates the bound.
/// One valid value that violates it decides.
fn deciding_value(values: &[CheckValue], bound: Bound) -> (CheckValue, bool) {
    let worst = |overloaded: bool| {
        let values = values.iter().copied();
        values
            .filter(|value| value.is_overloaded() == overloaded)
            .fold(CheckValue::NotRun, |worst, one| worst.worse_of(one, bound))
    };
    match (worst(false), worst(true)) {
        (certain, CheckValue::NotRun) => (certain, false),
        (certain, _) if certain != CheckValue::NotRun && !certain.satisfies(bound) => {
            (certain, false)
        }
        (_, open) => (open, true),
    }
}

/// Cells for which a check holds one by one; `None` for a check without `for_each`.
pub(crate) fn subjects_of(spec: &CheckSpec, experiment: &ExperimentPlan) -> Option<Vec<usize>> {
    let wanted = text_pairs(spec.for_each.as_ref()?);
    let matching = |index: &usize| experiment.cells[*index].matches(&wanted);
    Some((0..experiment.cells.len()).filter(matching).collect())
}

/// Varied values of the cell that differs from the one at `subject` only in `different`.
pub(crate) fn cell_selector(
    experiment: &ExperimentPlan,
    subject: Option<usize>,
    different: &[(String, String)],
) -> Vec<(String, String)> {
    let subject_values = subject.map_or_else(Vec::new, |index| {
        text_pairs(&experiment.cells[index].values)
    });
    let unchanged = subject_values
        .into_iter()
        .filter(|(key, _)| different.iter().all(|(other, _)| other != key));
    unchanged.chain(different.iter().cloned()).collect()
}

/// Prefix of a metric in a check: the paper's figure instead of the measured one.
const PRINTED: &str = "reference.";

/// Whether `name` is a measured metric, or a figure that the paper prints for the cell at `index`.
pub(crate) fn is_printed(experiment: &ExperimentPlan, index: usize, name: &str) -> bool {
    name.strip_prefix(PRINTED).is_none_or(|metric| {
        let reference = reference_of_cell(&experiment.scenario.reference, &experiment.cells[index]);
        reference.values.contains_key(metric)
    })
}

/// Value of an expression over the medians of cells; `None` if a cell was not run or has no value.
pub(crate) fn number(
    expression: &Expression,
    experiment: &ExperimentPlan,
    cells: &[Cell],
) -> Option<f64> {
    match evaluate(expression, None, experiment, cells) {
        CheckValue::Found { value, .. } => Some(value),
        CheckValue::NotRun | CheckValue::NoData | CheckValue::DividesByZero => None,
    }
}

/// Value of a check's expression.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CheckValue {
    /// A cell was excluded, or the paper has no figure for it.
    NotRun,
    /// The runs gave no value.
    NoData,
    /// The expression divides by 0.
    DividesByZero,
    /// Computed value, with the cell if there are several. `overloaded`: the value uses a cell
    /// without any valid run.
    Found {
        value: f64,
        of: Option<usize>,
        overloaded: bool,
    },
}

impl CheckValue {
    fn satisfies(self, bound: Bound) -> bool {
        matches!(self, Self::Found { value, .. } if bound.holds(value))
    }

    fn is_overloaded(self) -> bool {
        matches!(
            self,
            Self::Found {
                overloaded: true,
                ..
            }
        )
    }

    /// Returns the value that violates the bound more.
    fn worse_of(self, other: Self, bound: Bound) -> Self {
        match (self, other) {
            (Self::NotRun, one) | (one, Self::NotRun) => one,
            (Self::NoData, _) | (_, Self::NoData) => Self::NoData,
            (Self::DividesByZero, _) | (_, Self::DividesByZero) => Self::DividesByZero,
            (Self::Found { value: a, .. }, Self::Found { value: b, .. }) => {
                if bound.margin(a) <= bound.margin(b) {
                    self
                } else {
                    other
                }
            }
        }
    }
}

fn evaluate(
    expression: &Expression,
    subject: Option<usize>,
    experiment: &ExperimentPlan,
    cells: &[Cell],
) -> CheckValue {
    let overloaded = std::cell::Cell::new(false);
    let look_up = |name: &str, wanted: &[(String, String)]| {
        let index = experiment
            .find_cell(&cell_selector(experiment, subject, wanted))
            .map_err(|_| CheckValue::NotRun)?;
        if let Some(metric) = name.strip_prefix(PRINTED) {
            let printed = cells
                .get(index)
                .and_then(|cell| cell.reference_value(metric));
            return printed.ok_or(CheckValue::NotRun);
        }
        let cell = cells.get(index);
        overloaded.set(overloaded.get() || cell.is_some_and(Cell::is_overloaded));
        let summary = cell.and_then(|cell| cell.metrics.get(name));
        summary
            .map(|summary| summary.median)
            .ok_or(CheckValue::NoData)
    };
    match expression.value(&look_up) {
        Ok(value) if value.is_finite() => CheckValue::Found {
            value,
            of: subject,
            overloaded: overloaded.get(),
        },
        Ok(_) => CheckValue::DividesByZero,
        Err(missing) => missing,
    }
}

/// Reference values of one cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CellReference {
    pub(crate) values: Metrics,
    pub(crate) excluded: Vec<String>,
}

/// Returns the reference values of `cell`.
pub(crate) fn reference_of_cell(all: &[ReferenceValues], cell: &experiment::Cell) -> CellReference {
    let mut reference = CellReference::default();
    for entry in all.iter().flat_map(entries) {
        if cell.matches(&entry.cell) {
            let metric = entry.metric.to_owned();
            reference
                .excluded
                .extend(entry.excluded.then(|| metric.clone()));
            reference.values.insert(metric, entry.value);
        }
    }
    reference
}

/// Returns the parameter of an axis, if it is exactly one.
pub(crate) fn single_parameter(
    axis: &IndexMap<String, Vec<toml::Value>>,
) -> Option<(&String, &Vec<toml::Value>)> {
    axis.first().filter(|_| axis.len() == 1)
}

/// One reference value, as the paper prints it.
pub(crate) struct ReferenceEntry<'a> {
    /// Varied values of its cell.
    pub(crate) cell: Vec<(String, String)>,
    pub(crate) metric: &'a str,
    pub(crate) value: f64,
    /// Whether it looks misprinted.
    pub(crate) excluded: bool,
    /// Row and column, if it is from a table.
    pub(crate) place: Option<(usize, usize)>,
}

/// Returns the values of one `[[reference]]`, from its list or its table.
pub(crate) fn entries(reference: &ReferenceValues) -> Vec<ReferenceEntry<'_>> {
    match &reference.table {
        Some(table) => from_table(&text_pairs(&reference.cell), table),
        None => from_list(reference).collect(),
    }
}

fn from_list(reference: &ReferenceValues) -> impl Iterator<Item = ReferenceEntry<'_>> {
    let cell = text_pairs(&reference.cell);
    reference
        .figures
        .iter()
        .map(move |(metric, value)| ReferenceEntry {
            cell: cell.clone(),
            metric,
            value: *value,
            excluded: reference.exclude.contains(metric),
            place: None,
        })
}

fn from_table<'a>(
    common: &[(String, String)],
    table: &'a ReferenceTable,
) -> Vec<ReferenceEntry<'a>> {
    let (Some(rows), Some(columns)) = (
        single_parameter(&table.rows),
        single_parameter(&table.columns),
    ) else {
        return Vec::new();
    };
    let mut entries = Vec::new();
    for (r, (row, values)) in rows.1.iter().zip(&table.values).enumerate() {
        for (c, (column, value)) in columns.1.iter().zip(values).enumerate() {
            let mut cell = common.to_vec();
            cell.push((rows.0.clone(), plain_text(row)));
            cell.push((columns.0.clone(), plain_text(column)));
            entries.push(ReferenceEntry {
                cell,
                metric: &table.metric,
                value: value * table.unit,
                excluded: table.exclude.contains(&(r, c)),
                place: Some((r, c)),
            });
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Choices, file::ScenarioFile};
    use CheckValue::{DividesByZero, Found, NoData, NotRun};

    #[test]
    fn worst_value_has_the_smallest_margin() {
        let found = |value| Found {
            value,
            of: None,
            overloaded: false,
        };
        let worst = |want, all: [CheckValue; 3]| {
            let bound = Bound::parse(want).unwrap();
            all.into_iter()
                .fold(NotRun, |worst, one| worst.worse_of(one, bound))
        };
        let all = [found(0.99), found(0.95), found(1.01)];
        assert_eq!(worst(">= 0.97", all), found(0.95));
        assert_eq!(worst("<= 0.97", all), found(1.01));
        assert_eq!(worst("== 1", all), found(0.95));
        assert_eq!(worst(">= 0", [found(1.0), NoData, found(2.0)]), NoData);
        assert_eq!(worst(">= 0", [NotRun, found(1.0), NotRun]), found(1.0));
        assert_eq!(worst(">= 0", [NotRun; 3]), NotRun);
    }

    #[test]
    fn division_by_zero_fails_the_check() {
        let expression = Expression::parse("0 / (1 - 1)").unwrap();
        let text = "title = 't'\nquestion = 'q'\n[[links]]\nname = 'w'\nendpoints = ['a', 'b']\n\
                    [[flows]]\nname = 'f'\nprogram = 'curl'\nfrom = 'a'\nto = 'b'\nsize = '1MB'\n";
        let source = ScenarioFile {
            name: "t".to_owned(),
            origin: "t.toml".to_owned(),
            text: text.to_owned(),
        };
        let experiment = ExperimentPlan::open(source, &Choices::default()).unwrap();
        let found = evaluate(&expression, None, &experiment, &[]);
        assert_eq!(found, DividesByZero);
        let bound = Bound::parse(">= 0").unwrap();
        assert_eq!(deciding_value(&[found], bound), (DividesByZero, false));
        assert!(!found.satisfies(bound));
    }

    #[test]
    fn value_of_late_runs_leaves_the_check_undecided() {
        let found = |value, overloaded| Found {
            value,
            of: None,
            overloaded,
        };
        let decided = |all: &[CheckValue]| deciding_value(all, Bound::parse(">= 0.9").unwrap());
        let (good, bad) = (found(0.95, false), found(0.5, false));
        assert_eq!(decided(&[good]), (good, false));
        for value in [0.76, 0.99] {
            let busy = found(value, true);
            assert_eq!(decided(&[busy]), (busy, true));
            assert_eq!(decided(&[good, busy]), (busy, true));
            // One valid value that violates the bound decides.
            assert_eq!(decided(&[bad, busy]), (bad, false));
            assert_eq!(decided(&[NoData, busy]), (NoData, false));
        }
        assert_eq!(decided(&[NotRun]), (NotRun, false));
    }
}
