// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of `[[table]]` and `[[figure]]`: metrics and parameters exist, and the kind supports its
//! keys.

use super::{known::Known, measures::named_flow};
use crate::{
    measure::Flows,
    network::Topology,
    scenario::{
        expression::Expression,
        fault::{Checked, at, each, ensure},
        finding,
        view::{FigurePlan, LimitPlan, Names, TablePlan, Values, listed},
    },
    source::{Book, Cell},
    verdict::view::{CELL, Layout},
};
use indexmap::IndexSet;
use longhaul_results::view::FigureKind;

/// Checks all tables and figures against the available metrics.
pub(crate) fn check(book: &Book, known: &Known) -> Checked {
    let mut names = IndexSet::new();
    let tables = each(&book.base.table, |plan| {
        at("name", named(&plan.name, &mut names))?;
        plan.check(book, known)
    });
    at("table", tables)?;
    let figures = each(&book.base.figure, |plan| {
        at("name", named(&plan.name, &mut names))?;
        plan.check(book, known)
    });
    at("figure", figures)
}

fn named<'a>(name: &'a String, seen: &mut IndexSet<&'a String>) -> Checked {
    let clean = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let good = (1..=64).contains(&name.len()) && name.chars().all(clean);
    ensure(good, || {
        format!("{name:?}: a name is 1 to 64 letters, digits, '-' and '_'")
    })?;
    ensure(seen.insert(name), || {
        format!("two tables or figures are called {name:?}")
    })
}

impl Layout<'_> {
    fn check(&self, book: &Book) -> Checked {
        for (key, names) in [self.rows, self.columns, ("panels", self.panels)] {
            let mut all = listed(names).iter();
            at(key, all.try_for_each(|name| varied(book, name)))?;
        }
        let mut only = self.only.into_iter().flatten();
        let only = only.try_for_each(|(name, values)| at(name, some_has(book, name, values)));
        at("only", only)?;
        ensure(
            !self.resolve(book)?.is_empty(),
            || "no cell has all of these parameters",
        )
    }
}

fn varied(book: &Book, name: &String) -> Result<(), String> {
    let mut names: IndexSet<&str> = book
        .cells
        .iter()
        .flat_map(|cell| cell.vary.keys().map(String::as_str))
        .collect();
    names.insert(CELL);
    match names.contains(name.as_str()) {
        true => Ok(()),
        false => {
            let known: Vec<&str> = names.into_iter().collect();
            Err(format!(
                "no cell varies {name:?} (there are: {})",
                known.join(", ")
            ))
        }
    }
}

fn some_has(book: &Book, name: &String, values: &Values) -> Result<(), String> {
    varied(book, name)?;
    let has = |cell: &Cell| cell.vary.get(name).is_some_and(|value| values.has(value));
    match book.cells.iter().any(has) {
        true => Ok(()),
        false => Err(format!("no cell has such a {name}")),
    }
}

fn check_metrics(metrics: &Names, known: &Known) -> Checked {
    let mut all = metrics.all().iter();
    ensure(all.len() > 0, || "at least one metric")?;
    Ok(all.try_for_each(|name| known.check(name))?)
}

/// Checks that the numbers of a title are of cells and metrics that exist.
fn check_title(title: &str, book: &Book, known: &Known) -> Checked {
    let sound = |expression: &Expression| {
        known.check_all(expression)?;
        let one = |name: &str, wanted: &[(String, String)]| {
            let index = book.one_cell(wanted)?;
            known.check_in(index, name).map(|()| 1.0)
        };
        expression.value(&one).map(drop)
    };
    Ok(finding::check(title, sound)?)
}

impl TablePlan {
    fn check(&self, book: &Book, known: &Known) -> Checked {
        at("metric", check_metrics(&self.metric, known))?;
        at("title", check_title(&self.title, book, known))?;
        self.layout().check(book)
    }
}

impl FigurePlan {
    fn check(&self, book: &Book, known: &Known) -> Checked {
        self.check_source()?;
        self.check_axes()?;
        self.check_kind()?;
        at("log", self.check_log())?;
        if let Some(metrics) = &self.metric {
            at("metric", check_metrics(metrics, known))?;
        }
        at("flow", self.check_flows(book))?;
        at(
            "limits",
            each(&self.limits, |limit| at("value", limit.check())),
        )?;
        at("title", check_title(&self.title, book, known))?;
        self.layout().check(book)
    }

    /// Checks the source: a metric, or a quantity over time with its keys.
    fn check_source(&self) -> Checked {
        let over_time = self.of.is_some();
        let one = ensure(
            over_time != self.metric.is_some(),
            || "a figure draws either a metric or, over time, what of names",
        );
        at("of", one)?;
        let spread = matches!(self.kind, FigureKind::Series | FigureKind::Cdf);
        let drawn = ensure(
            !over_time || spread,
            || "only series and cdf draw what of names",
        );
        at("kind", drawn)?;
        let of_time = [
            ("flow", self.flow.is_some()),
            ("from", self.from.is_some()),
            ("to", self.to.is_some()),
            ("bin", self.bin.is_some()),
        ];
        if let Some((key, _)) = of_time.into_iter().find(|(_, given)| *given && !over_time) {
            return at(key, Err("flow, from, to and bin belong to of"));
        }
        let onward = self.to.is_none_or(|to| to > self.from.unwrap_or_default());
        at("to", ensure(onward, || "to must be later than from"))
    }

    /// Checks that the kind supports the axes.
    fn check_axes(&self) -> Checked {
        let (others, problem) = match self.is_grid() {
            true => (
                [("over", &self.over), ("by", &self.by)],
                "a heat map or matrix has rows and columns, not over and by",
            ),
            false => (
                [("rows", &self.rows), ("columns", &self.columns)],
                "series, bars and cdf have over and by, not rows and columns",
            ),
        };
        match others.into_iter().find(|(_, names)| names.is_some()) {
            None => Ok(()),
            Some((key, _)) => at(key, Err(problem)),
        }
    }

    fn check_kind(&self) -> Checked {
        let metrics = listed(&self.metric).len();
        let grid = [&self.rows, &self.columns];
        match self.kind {
            FigureKind::Series if self.of.is_some() => {
                let bare = ensure(
                    self.over.is_none(),
                    || "what of names is drawn over time; leave over out",
                );
                at("over", bare)
            }
            FigureKind::Series => {
                let one = ensure(
                    listed(&self.over).len() == 1,
                    || "a series of a metric goes over one parameter",
                );
                at("over", one)
            }
            FigureKind::Bars => Ok(()),
            FigureKind::Cdf => at(
                "over",
                ensure(self.over.is_none(), || "a cdf has by, not over"),
            ),
            FigureKind::Heatmap => ensure(
                metrics == 1 && grid.iter().all(|names| names.is_some()),
                || "a heat map has one metric, rows and columns",
            ),
            FigureKind::Matrix => ensure(
                (1..=2).contains(&metrics) && grid.iter().all(|names| listed(names).len() == 1),
                || "a matrix has one or two metrics, and one parameter each for rows and columns",
            ),
        }
    }

    fn check_log(&self) -> Checked {
        let log = self.log.as_deref();
        ensure(
            log.is_none_or(|log| ["x", "y", "xy"].contains(&log)),
            || "log is \"x\", \"y\" or \"xy\"",
        )
    }

    fn check_flows(&self, book: &Book) -> Checked {
        let Some(of) = &self.of else {
            return Ok(());
        };
        for scenario in book.cells.iter().map(|cell| &cell.scenario) {
            let flows = Flows::of(scenario, &Topology::of(scenario));
            for name in listed(&self.flow) {
                let mut all = of.all().iter();
                all.try_for_each(|quantity| named_flow(scenario, &flows, name, *quantity))?;
            }
        }
        Ok(())
    }
}

impl LimitPlan {
    fn check(&self) -> Checked {
        ensure(
            self.limit().is_some(),
            || "a limit is a number or a quantity",
        )
    }
}
