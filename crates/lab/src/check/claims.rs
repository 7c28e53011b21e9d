// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of what the scenario says about all cells together: repetitions, derived metrics, checks, the headline and the
//! paper's figures. Each figure of `[[reference]]` is of a metric that runs give, and belongs to one cell.

use super::available_metrics::{AvailableMetrics, metrics_of_programs};
use crate::{
    evaluation::claims::{self, entries, single_parameter},
    experiment::{ExperimentPlan, text_pairs},
    scenario::{
        CheckSpec, HeadlineSpec,
        claim::{ReferenceTable, ReferenceValues},
        config_error::{
            CheckResult, ConfigError, check_distinct, check_each, check_range, ensure, locate_error,
        },
        expression::{Bound, Expression},
    },
};
use std::{cell::RefCell, collections::HashSet};
use toml::Table;

/// Checks everything that is not specific to one cell. Each cell must have been checked before.
pub(crate) fn check(experiment: &ExperimentPlan) -> CheckResult {
    let (repetitions, warmup) = (
        experiment.scenario.repetitions,
        experiment.scenario.warmup_runs,
    );
    locate_error(
        "repetitions",
        check_range("repetitions", repetitions, 1, 1000),
    )?;
    locate_error(
        "max_retries",
        check_range("max_retries", experiment.scenario.max_retries, 0, 10),
    )?;
    locate_error("warmup_runs", check_range("warmup_runs", warmup, 0, 10))?;
    check_new_names(experiment)?;
    check_claims(experiment)
}

/// Checks that measures, derived metrics and checks have distinct names. A derived metric with the
/// name of a measured one would replace it.
fn check_new_names(experiment: &ExperimentPlan) -> CheckResult {
    let cells = experiment.cells.iter();
    let mut taken: HashSet<String> = cells
        .flat_map(|cell| metrics_of_programs(&cell.scenario))
        .collect();
    let mut new = |name: &String| {
        ensure(taken.insert(name.clone()), || {
            format!("there is a metric {name:?} already")
        })
    };
    let measures = check_each(&experiment.scenario.measure, |spec| {
        locate_error("name", new(&spec.name))
    });
    locate_error("measure", measures)?;
    let clean = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut derived = experiment.scenario.derived.keys();
    let derived = derived.try_for_each(|name| {
        let valid = ensure(name.chars().all(clean), || {
            format!("{name:?}: a metric's name is letters, digits and '_'")
        });
        locate_error(name, valid.and_then(|()| new(name)))
    });
    locate_error("derived", derived)?;
    let checks = experiment.scenario.check.iter().map(|spec| &spec.name);
    locate_error("check", check_distinct("checks", checks))
}

/// Checks that derived metrics, checks, the headline and the paper's figures refer to cells that
/// exist.
fn check_claims(experiment: &ExperimentPlan) -> CheckResult {
    let available = AvailableMetrics::of(experiment);
    let mut derived = experiment.scenario.derived.iter();
    let derived = derived.try_for_each(|(name, text)| {
        let parsed = parse(text, &available);
        let checked = parsed.and_then(|_| check_parts(name, &available));
        locate_error(
            name,
            checked.map_err(|error| error.with_owner(format!("derived.{name}"))),
        )
    });
    locate_error("derived", derived)?;
    let checks = check_each(&experiment.scenario.check, |spec| {
        check_claim(spec, experiment, &available)
            .map_err(|error| error.with_owner(format!("check {:?}", spec.name)))
    });
    locate_error("check", checks)?;
    let references = check_references(experiment, &available);
    locate_error(
        "reference",
        references.map_err(|error| error.with_owner("reference")),
    )?;
    let mut headlines = experiment.scenario.headline.iter();
    let headline = headlines.try_for_each(|spec| check_headline(spec, experiment, &available));
    locate_error(
        "answer",
        headline.map_err(|error| error.with_owner("answer")),
    )
}

/// Checks that one run gives all metrics of a derived metric, and that they are defined before it.
fn check_parts(name: &str, available: &AvailableMetrics) -> CheckResult {
    ensure(
        available.check(name).is_ok(),
        || "no run gives all of its parts, or one of them is defined after it",
    )
}

/// Parses an expression whose metrics all exist.
fn parse(text: &str, available: &AvailableMetrics) -> Result<Expression, ConfigError> {
    let expression = Expression::parse(text).map_err(|error| error.to_string())?;
    available.check_all(&expression)?;
    Ok(expression)
}

fn check_claim(
    spec: &CheckSpec,
    experiment: &ExperimentPlan,
    available: &AvailableMetrics,
) -> CheckResult {
    let expression = locate_error("value", parse(&spec.value, available))?;
    let subjects = match claims::subjects_of(spec, experiment) {
        None => vec![None],
        Some(all) => all.into_iter().map(Some).collect(),
    };
    let some = ensure(!subjects.is_empty(), || "for_each matches no cell");
    locate_error("for_each", some)?;
    locate_error(
        "value",
        check_subjects(&expression, &subjects, experiment, available),
    )?;
    let bound = ensure(Bound::parse(&spec.threshold).is_some(), || {
        format!("{:?} is not a threshold such as \">= 6\"", spec.threshold)
    });
    locate_error("threshold", bound)
}

/// Checks that the expression's cells exist and give its metrics. For at least one subject, the
/// paper must print all figures that the expression uses.
fn check_subjects(
    expression: &Expression,
    subjects: &[Option<usize>],
    experiment: &ExperimentPlan,
    available: &AvailableMetrics,
) -> CheckResult {
    let not_printed = RefCell::new(None);
    let mut compared = false;
    for subject in subjects {
        not_printed.take();
        let one = |name: &str, wanted: &[(String, String)]| {
            let index =
                experiment.find_cell(&claims::cell_selector(experiment, *subject, wanted))?;
            available.check_in(index, name)?;
            let printed = claims::is_printed(experiment, index, name);
            not_printed.replace(not_printed.take().or((!printed).then(|| name.to_owned())));
            Ok::<_, String>(1.0)
        };
        expression.value(&one)?;
        compared |= not_printed.borrow().is_none();
    }
    ensure(compared, || {
        let name = not_printed.take().unwrap_or_default();
        format!("no selected cell has a figure for {name}")
    })
}

fn check_headline(
    spec: &HeadlineSpec,
    experiment: &ExperimentPlan,
    available: &AvailableMetrics,
) -> CheckResult {
    locate_error("metric", available.check(&spec.metric))?;
    let gives = |cell: &Table| {
        let index = experiment.find_cell(&text_pairs(cell))?;
        available.check_in(index, &spec.metric)
    };
    locate_error("cell", gives(&spec.cell))?;
    let baseline = spec.baseline.as_ref();
    locate_error("baseline", baseline.map_or(Ok(()), gives))
}

/// Checks that every figure is of a metric that runs give and belongs to one cell, and that a table
/// has as many values as rows and columns.
fn check_references(experiment: &ExperimentPlan, available: &AvailableMetrics) -> CheckResult {
    check_each(&experiment.scenario.reference, |reference| {
        check_shape(reference)?;
        check_metrics(reference, available)?;
        let mut all = entries(reference).into_iter();
        all.try_for_each(|entry| {
            let found = experiment.find_cell(&entry.cell).map(drop);
            match entry.place {
                None => locate_error("cell", found),
                Some((row, column)) => locate_error(
                    "table",
                    locate_error("values", locate_error(row, locate_error(column, found))),
                ),
            }
        })
    })
}

/// Checks that there are either figures or a table.
fn check_shape(reference: &ReferenceValues) -> CheckResult {
    let Some(table) = &reference.table else {
        return ensure(
            !reference.figures.is_empty(),
            || "[[reference]] has no values; give figures or a table",
        );
    };
    for (key, given) in [
        ("figures", !reference.figures.is_empty()),
        ("exclude", !reference.exclude.is_empty()),
    ] {
        let alone = ensure(
            !given,
            || "[[reference]] has figures and a table; make two [[reference]] of them",
        );
        locate_error(key, alone)?;
    }
    locate_error("table", table.check())
}

/// Checks the names of metrics, and that each excluded figure is printed.
fn check_metrics(reference: &ReferenceValues, available: &AvailableMetrics) -> CheckResult {
    let mut figures = reference.figures.keys();
    locate_error(
        "figures",
        figures.try_for_each(|name| locate_error(name, available.check(name))),
    )?;
    let printed = check_each(&reference.exclude, |name| {
        ensure(reference.figures.contains_key(name), || {
            format!("exclude names {name:?}, but figures has no such metric")
        })
    });
    locate_error("exclude", printed)?;
    match &reference.table {
        Some(table) => locate_error(
            "table",
            locate_error("metric", available.check(&table.metric)),
        ),
        None => Ok(()),
    }
}

impl ReferenceTable {
    fn check(&self) -> CheckResult {
        let [height, width] =
            [("rows", &self.rows), ("columns", &self.columns)].map(|(key, axis)| {
                let values = single_parameter(axis).map(|(_, values)| values.len());
                locate_error(
                    key,
                    values.ok_or("rows and columns name one parameter each"),
                )
            });
        let (height, width) = (height?, width?);
        let fits = self.values.len() == height && self.values.iter().all(|row| row.len() <= width);
        let fits = ensure(fits, || {
            format!(
                "values of {} are not {height} rows of at most {width}",
                self.metric
            )
        });
        locate_error("values", fits)?;
        locate_error(
            "exclude",
            check_each(&self.exclude, |place| self.check_position(*place)),
        )
    }

    fn check_position(&self, (row, column): (usize, usize)) -> CheckResult {
        let exists = self.values.get(row).is_some_and(|row| column < row.len());
        ensure(exists, || {
            format!(
                "exclude names row {row}, column {column}, but values has no such place; both count from 0"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#"
        cell = { relays = true }
        [table]
        metric = "goodput_bps"
        unit = 1e6
        columns = { delay = ["0ms", "1ms"] }
        rows = { loss = [0.0, 0.001] }
        values = [[937, 910], [606]]
        exclude = [[1, 0]]
    "#;

    fn read(text: &str) -> ReferenceValues {
        toml::from_str(text).unwrap()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn a_table_gives_one_figure_per_cell() {
        let reference = read(TABLE);
        check_shape(&reference).unwrap();
        let found = entries(&reference);
        let delays = ["0ms", "1ms", "0ms"];
        let losses = ["0.0", "0.0", "0.001"];
        for ((entry, delay), loss) in found.iter().zip(delays).zip(losses) {
            let place = [
                pair("relays", "true"),
                pair("loss", loss),
                pair("delay", delay),
            ];
            assert_eq!(entry.cell, place);
        }
        let figures: Vec<_> = found
            .iter()
            .map(|entry| (entry.value, entry.excluded))
            .collect();
        assert_eq!(figures, [(937e6, false), (910e6, false), (606e6, true)]);
    }

    #[test]
    fn refuses_a_table_that_does_not_fit_its_axes() {
        let cases = [
            (
                "[[937, 910], [606]]",
                "[[937, 910]]",
                "not 2 rows of at most 2",
            ),
            ("[606]", "[606, 124, 7]", "not 2 rows of at most 2"),
            (
                "[[1, 0]]",
                "[[1, 1]]",
                "row 1, column 1, but values has no such place",
            ),
            ("rows = {", "rows = { size = [1],", "one parameter each"),
            (
                "cell =",
                "figures = { x_bps = 1 }\n cell =",
                "two [[reference]]",
            ),
        ];
        for (from, to, expected) in cases {
            let problem = check_shape(&read(&TABLE.replace(from, to)))
                .unwrap_err()
                .to_string();
            assert!(problem.contains(expected), "{problem}");
        }
        assert!(check_shape(&read("cell = { n = 1 }")).is_err());
    }
}
