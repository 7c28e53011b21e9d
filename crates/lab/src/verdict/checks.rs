// SPDX-License-Identifier: MIT OR Apache-2.0
//! Evaluation of derived metrics and checks.

use super::paper;
use crate::{
    scenario::{
        CheckPlan, Scenario,
        expression::{Bound, Expression},
    },
    source::{Book, pairs},
};
use longhaul_results::result::{Cell, Check, Metrics};
use serde_json::Value;

/// Adds the scenario's derived metrics to those of one run. A metric with a missing part is left
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

/// Evaluates every check that applies to this kind of run and whose cells were run.
pub(crate) fn checks(book: &Book, cells: &[Cell]) -> Vec<Check> {
    let meant = |plan: &&CheckPlan| plan.quick || !book.quick;
    let plans = book.base.check.iter().filter(meant);
    plans.filter_map(|plan| check(plan, book, cells)).collect()
}

/// Evaluates a check; `None` if one of its cells was excluded (`--only`).
fn check(plan: &CheckPlan, book: &Book, cells: &[Cell]) -> Option<Check> {
    let bound = Bound::parse(&plan.want)?;
    let expression = Expression::parse(&plan.value).ok()?;
    let subjects = every(plan, book).map_or(vec![None], |all| all.into_iter().map(Some).collect());
    let figures: Vec<Figure> = subjects
        .into_iter()
        .map(|of| figure(&expression, of, book, cells))
        .collect();
    let (found, undecided) = decisive(&figures, bound);
    let value = match found {
        Figure::Unasked => return None,
        Figure::Missing => Value::from("no figure: no run gave one"),
        Figure::Infinite => Value::from("no number: it divides by 0"),
        Figure::Found {
            value, of: None, ..
        } => Value::from(value),
        Figure::Found {
            value,
            of: Some(cell),
            ..
        } => Value::from(format!(
            "{value:.4} in the worst case, {}",
            cells[cell].name()
        )),
    };
    Some(Check {
        name: plan.name.clone(),
        pass: !undecided && found.keeps(bound),
        undecided: undecided.then(|| TOO_BUSY.to_owned()),
        value,
        want: plan.want.clone(),
    })
}

/// Reason of an undecided check.
const TOO_BUSY: &str = "the machine was too busy";

/// Returns the deciding value, and whether the check stays undecided.
///
/// A value from runs for which the machine was too busy neither satisfies nor violates the bound.
/// One valid value that violates it decides.
fn decisive(figures: &[Figure], bound: Bound) -> (Figure, bool) {
    let worst = |disturbed: bool| {
        let figures = figures.iter().copied();
        figures
            .filter(|figure| figure.is_disturbed() == disturbed)
            .fold(Figure::Unasked, |worst, one| worst.or_worse(one, bound))
    };
    match (worst(false), worst(true)) {
        (certain, Figure::Unasked) => (certain, false),
        (certain, _) if certain != Figure::Unasked && !certain.keeps(bound) => (certain, false),
        (_, open) => (open, true),
    }
}

/// Cells for which a check holds one by one; `None` for a check without `every`.
pub(crate) fn every(plan: &CheckPlan, book: &Book) -> Option<Vec<usize>> {
    let wanted = pairs(plan.every.as_ref()?);
    let matching = |index: &usize| book.cells[*index].matches(&wanted);
    Some((0..book.cells.len()).filter(matching).collect())
}

/// Varied values of the cell that differs from the one at `subject` only in `different`.
pub(crate) fn beside(
    book: &Book,
    subject: Option<usize>,
    different: &[(String, String)],
) -> Vec<(String, String)> {
    let own = subject.map_or_else(Vec::new, |index| pairs(&book.cells[index].vary));
    let kept = own
        .into_iter()
        .filter(|(key, _)| different.iter().all(|(other, _)| other != key));
    kept.chain(different.iter().cloned()).collect()
}

/// Prefix of a metric in a check: the paper's figure instead of the measured one.
const PRINTED: &str = "paper.";

/// Whether `name` is a measured metric, or a figure that the paper prints for the cell at `index`.
pub(crate) fn is_printed(book: &Book, index: usize, name: &str) -> bool {
    name.strip_prefix(PRINTED).is_none_or(|metric| {
        let printed = paper::printed(&book.base.paper, &book.cells[index]);
        printed.figures.contains_key(metric)
    })
}

/// Value of an expression over the medians of cells; `None` if a cell was not run or has no value.
pub(crate) fn number(expression: &Expression, book: &Book, cells: &[Cell]) -> Option<f64> {
    match figure(expression, None, book, cells) {
        Figure::Found { value, .. } => Some(value),
        Figure::Unasked | Figure::Missing | Figure::Infinite => None,
    }
}

/// Value of a check's expression.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Figure {
    /// A cell was excluded, or the paper has no figure for it.
    Unasked,
    /// The runs gave no value.
    Missing,
    /// The expression divides by 0.
    Infinite,
    /// Computed value, with the cell if there are several. `disturbed`: a cell without any valid
    /// run was used.
    Found {
        value: f64,
        of: Option<usize>,
        disturbed: bool,
    },
}

impl Figure {
    fn keeps(self, bound: Bound) -> bool {
        matches!(self, Self::Found { value, .. } if bound.holds(value))
    }

    fn is_disturbed(self) -> bool {
        matches!(
            self,
            Self::Found {
                disturbed: true,
                ..
            }
        )
    }

    /// Returns the value that violates the bound more.
    fn or_worse(self, other: Self, bound: Bound) -> Self {
        match (self, other) {
            (Self::Unasked, one) | (one, Self::Unasked) => one,
            (Self::Missing, _) | (_, Self::Missing) => Self::Missing,
            (Self::Infinite, _) | (_, Self::Infinite) => Self::Infinite,
            (Self::Found { value: a, .. }, Self::Found { value: b, .. }) => {
                match bound.margin(a) <= bound.margin(b) {
                    true => self,
                    false => other,
                }
            }
        }
    }
}

fn figure(expression: &Expression, of: Option<usize>, book: &Book, cells: &[Cell]) -> Figure {
    let disturbed = std::cell::Cell::new(false);
    let look_up = |name: &str, wanted: &[(String, String)]| {
        let index = book
            .one_cell(&beside(book, of, wanted))
            .map_err(|_| Figure::Unasked)?;
        if let Some(metric) = name.strip_prefix(PRINTED) {
            let printed = cells.get(index).and_then(|cell| cell.paper_figure(metric));
            return printed.ok_or(Figure::Unasked);
        }
        let cell = cells.get(index);
        disturbed.set(disturbed.get() || cell.is_some_and(Cell::is_disturbed));
        let summary = cell.and_then(|cell| cell.metrics.get(name));
        summary.map(|summary| summary.median).ok_or(Figure::Missing)
    };
    match expression.value(&look_up) {
        Ok(value) if value.is_finite() => Figure::Found {
            value,
            of,
            disturbed: disturbed.get(),
        },
        Ok(_) => Figure::Infinite,
        Err(figure) => figure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Choices, Source};
    use Figure::{Found, Infinite, Missing, Unasked};

    #[test]
    fn worst_value_has_the_smallest_margin() {
        let found = |value| Found {
            value,
            of: None,
            disturbed: false,
        };
        let worst = |want, all: [Figure; 3]| {
            let bound = Bound::parse(want).unwrap();
            all.into_iter()
                .fold(Unasked, |worst, one| worst.or_worse(one, bound))
        };
        let all = [found(0.99), found(0.95), found(1.01)];
        assert_eq!(worst(">= 0.97", all), found(0.95));
        assert_eq!(worst("<= 0.97", all), found(1.01));
        assert_eq!(worst("== 1", all), found(0.95));
        assert_eq!(worst(">= 0", [found(1.0), Missing, found(2.0)]), Missing);
        assert_eq!(worst(">= 0", [Unasked, found(1.0), Unasked]), found(1.0));
        assert_eq!(worst(">= 0", [Unasked; 3]), Unasked);
    }

    #[test]
    fn division_by_zero_fails_the_check() {
        let expression = Expression::parse("0 / (1 - 1)").unwrap();
        let text = "title = 't'\nquestion = 'q'\n[[links]]\nname = 'w'\nbetween = ['a', 'b']\n\
                    [[flows]]\nname = 'f'\nprogram = 'curl'\nfrom = 'a'\nto = 'b'\nsize = '1MB'\n";
        let source = Source {
            name: "t".to_owned(),
            origin: "t.toml".to_owned(),
            text: text.to_owned(),
            path: None,
        };
        let book = Book::open(&source, &Choices::default()).unwrap();
        let found = figure(&expression, None, &book, &[]);
        assert_eq!(found, Infinite);
        let bound = Bound::parse(">= 0").unwrap();
        assert_eq!(decisive(&[found], bound), (Infinite, false));
        assert!(!found.keeps(bound));
    }

    #[test]
    fn value_of_a_busy_machine_leaves_the_check_undecided() {
        let found = |value, disturbed| Found {
            value,
            of: None,
            disturbed,
        };
        let decided = |all: &[Figure]| decisive(all, Bound::parse(">= 0.9").unwrap());
        let (good, bad) = (found(0.95, false), found(0.5, false));
        assert_eq!(decided(&[good]), (good, false));
        for value in [0.76, 0.99] {
            let busy = found(value, true);
            assert_eq!(decided(&[busy]), (busy, true));
            assert_eq!(decided(&[good, busy]), (busy, true));
            // One valid value that violates the bound decides.
            assert_eq!(decided(&[bad, busy]), (bad, false));
            assert_eq!(decided(&[Missing, busy]), (Missing, false));
        }
        assert_eq!(decided(&[Unasked]), (Unasked, false));
    }
}
