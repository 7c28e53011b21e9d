// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of what the scenario says about all cells together: repetitions, derived metrics, checks,
//! the answer and the paper's figures.

use super::{
    known::{Known, unaided},
    paper,
};
use crate::{
    scenario::{
        AnswerPlan, CheckPlan,
        expression::{Bound, Expression},
        fault::{Checked, Fault, at, distinct, each, ensure, within},
    },
    source::{Book, pairs},
    verdict::checks,
};
use std::{cell::RefCell, collections::HashSet};
use toml::Table;

/// Checks everything that is not specific to one cell. Each cell must have been checked before.
pub(crate) fn book(book: &Book) -> Checked {
    let (repetitions, warmup) = (book.base.repetitions, book.base.warmup);
    at("repetitions", within("repetitions", repetitions, 1, 1000))?;
    at("retakes", within("retakes", book.base.retakes, 0, 10))?;
    at("warmup", within("warmup", warmup, 0, 10))?;
    new_names(book)?;
    claims(book)
}

/// Checks that measures, derived metrics and checks have distinct names. A derived metric with the
/// name of a measured one would replace it.
fn new_names(book: &Book) -> Checked {
    let cells = book.cells.iter();
    let mut taken: HashSet<String> = cells.flat_map(|cell| unaided(&cell.scenario)).collect();
    let mut new = |name: &String| {
        ensure(taken.insert(name.clone()), || {
            format!("there is a metric {name:?} already")
        })
    };
    let measures = each(&book.base.measure, |plan| at("name", new(&plan.name)));
    at("measure", measures)?;
    let clean = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut derived = book.base.derived.keys();
    let derived = derived.try_for_each(|name| {
        let word = ensure(name.chars().all(clean), || {
            format!("{name:?}: a metric's name is letters, digits and '_'")
        });
        at(name, word.and_then(|()| new(name)))
    });
    at("derived", derived)?;
    let checks = book.base.check.iter().map(|plan| &plan.name);
    at("check", distinct("checks", checks))
}

/// Checks that derived metrics, checks, the answer and the paper's figures refer to cells that
/// exist.
fn claims(book: &Book) -> Checked {
    let known = Known::of(book);
    let mut derived = book.base.derived.iter();
    let derived = derived.try_for_each(|(name, text)| {
        let parsed = parsed(text, &known);
        let sound = parsed.and_then(|_| together(name, &known));
        at(
            name,
            sound.map_err(|fault| fault.of(format!("derived.{name}"))),
        )
    });
    at("derived", derived)?;
    let checks = each(&book.base.check, |plan| {
        check(plan, book, &known).map_err(|fault| fault.of(format!("check {:?}", plan.name)))
    });
    at("check", checks)?;
    let papers = paper::check(book, &known);
    at("paper", papers.map_err(|fault| fault.of("paper")))?;
    let mut answers = book.base.answer.iter();
    let answers = answers.try_for_each(|plan| answer(plan, book, &known));
    at("answer", answers.map_err(|fault| fault.of("answer")))
}

/// Checks that one run gives all metrics of a derived metric, and that they are defined before it.
fn together(name: &str, known: &Known) -> Checked {
    ensure(
        known.check(name).is_ok(),
        || "no run gives all of its parts, or one of them stands behind it",
    )
}

/// Parses an expression whose metrics all exist.
fn parsed(text: &str, known: &Known) -> Result<Expression, Fault> {
    let expression = Expression::parse(text).map_err(|error| error.to_string())?;
    known.check_all(&expression)?;
    Ok(expression)
}

fn check(plan: &CheckPlan, book: &Book, known: &Known) -> Checked {
    let expression = at("value", parsed(&plan.value, known))?;
    let subjects = match checks::every(plan, book) {
        None => vec![None],
        Some(all) => all.into_iter().map(Some).collect(),
    };
    let some = ensure(!subjects.is_empty(), || "no cell is meant by every");
    at("every", some)?;
    at("value", judged(&expression, &subjects, book, known))?;
    let bound = ensure(Bound::parse(&plan.want).is_some(), || {
        format!("want = {:?} is no bound such as \">= 6\"", plan.want)
    });
    at("want", bound)
}

/// Checks that the expression's cells exist and give its metrics. For at least one subject, the
/// paper must print all figures that the expression uses.
fn judged(
    expression: &Expression,
    subjects: &[Option<usize>],
    book: &Book,
    known: &Known,
) -> Checked {
    let unprinted = RefCell::new(None);
    let mut compared = false;
    for subject in subjects {
        unprinted.take();
        let one = |name: &str, wanted: &[(String, String)]| {
            let index = book.one_cell(&checks::beside(book, *subject, wanted))?;
            known.check_in(index, name)?;
            let printed = checks::is_printed(book, index, name);
            unprinted.replace(unprinted.take().or((!printed).then(|| name.to_owned())));
            Ok::<_, String>(1.0)
        };
        expression.value(&one)?;
        compared |= unprinted.borrow().is_none();
    }
    ensure(compared, || {
        let name = unprinted.take().unwrap_or_default();
        format!("no cell that is meant has a figure for {name}")
    })
}

fn answer(plan: &AnswerPlan, book: &Book, known: &Known) -> Checked {
    at("metric", known.check(&plan.metric))?;
    let gives = |cell: &Table| {
        let index = book.one_cell(&pairs(cell))?;
        known.check_in(index, &plan.metric)
    };
    at("cell", gives(&plan.cell))?;
    let baseline = plan.baseline.as_ref();
    at("baseline", baseline.map_or(Ok(()), gives))
}
