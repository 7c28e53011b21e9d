// SPDX-License-Identifier: MIT OR Apache-2.0
//! Derived metrics and checks: what the runs say, put against what the scenario wants.

use super::{
    book::Book,
    expression::{Bound, Expression},
    result::{Cell, Check, Metrics},
    scenario::{CheckPlan, Scenario},
    validate::one_cell,
};
use serde_json::Value;

/// Adds the scenario's derived metrics to those of one run; one whose parts are missing is left
/// out.
pub(crate) fn derive(scenario: &Scenario, metrics: &mut Metrics) {
    for (name, text) in &scenario.derived {
        let own = |name: &str, _: &[(String, String)]| metrics.get(name).copied().ok_or(());
        let value = Expression::parse(text)
            .ok()
            .and_then(|expression| expression.value(&own).ok());
        if let Some(value) = value.filter(|value| value.is_finite()) {
            metrics.insert(name.clone(), value);
        }
    }
}

/// The outcome of every check that is meant for such a run and whose cells were run.
pub(crate) fn checks(book: &Book, cells: &[Cell]) -> Vec<Check> {
    let meant = |plan: &&CheckPlan| plan.quick || !book.quick;
    let plans = book.base.check.iter().filter(meant);
    plans.filter_map(|plan| check(plan, book, cells)).collect()
}

/// `None` if a cell that it speaks of was not to be run (`--only`).
fn check(plan: &CheckPlan, book: &Book, cells: &[Cell]) -> Option<Check> {
    let look_up = |name: &str, wanted: &[(String, String)]| {
        let index = one_cell(book, wanted).map_err(|_| Missing::Cell)?;
        let summary = cells.get(index).and_then(|cell| cell.metrics.get(name));
        summary.map(|summary| summary.median).ok_or(Missing::Metric)
    };
    let value = match Expression::parse(&plan.value).ok()?.value(&look_up) {
        Ok(value) => Some(value).filter(|value| value.is_finite()),
        Err(Missing::Metric) => None,
        Err(Missing::Cell) => return None,
    };
    let holds = |value| Bound::parse(&plan.want).is_some_and(|bound| bound.holds(value));
    Some(Check {
        name: plan.name.clone(),
        pass: value.is_some_and(holds),
        value: value.map_or_else(|| Value::from("no figure: its runs failed"), Value::from),
        want: plan.want.clone(),
    })
}

/// Why an expression has no value.
enum Missing {
    Cell,
    Metric,
}
