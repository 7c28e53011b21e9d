// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of what the scenario says about all cells together: repetitions, derived metrics, checks,
//! the headline and the paper's figures.

use super::{
    available_metrics::{AvailableMetrics, metrics_of_programs},
    reference_values,
};
use crate::{
    evaluation::checks,
    scenario::{
        CheckSpec, HeadlineSpec,
        config_error::{
            CheckResult, ConfigError, check_distinct, check_each, check_range, ensure, locate_error,
        },
        expression::{Bound, Expression},
    },
    source::{ExperimentPlan, text_pairs},
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
    let references = reference_values::check(experiment, &available);
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
    let subjects = match checks::subjects_of(spec, experiment) {
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
                experiment.find_cell(&checks::cell_selector(experiment, *subject, wanted))?;
            available.check_in(index, name)?;
            let printed = checks::is_printed(experiment, index, name);
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
