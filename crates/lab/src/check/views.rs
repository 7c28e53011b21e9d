// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of `[[table]]` and `[[figure]]`: metrics and parameters exist, and the kind supports its
//! keys.

use super::{available_metrics::AvailableMetrics, measures::check_named_flow};
use crate::{
    evaluation::view::{CELL, Layout},
    experiment::{Cell, ExperimentPlan},
    measure::Flows,
    network::Topology,
    scenario::{
        config_error::{CheckResult, check_each, ensure, locate_error},
        expression::Expression,
        title_template,
        value::plain_text,
        view::{FigureSpec, Names, ReferenceLineSpec, TableSpec, Values, names_of},
    },
};
use indexmap::IndexSet;
use longhaul_results::view::FigureKind;

/// Checks all tables and figures against the available metrics.
pub(crate) fn check(experiment: &ExperimentPlan, available: &AvailableMetrics) -> CheckResult {
    let mut names = IndexSet::new();
    let tables = check_each(&experiment.scenario.table, |spec| {
        locate_error("name", check_view_name(&spec.name, &mut names))?;
        spec.check(experiment, available)
    });
    locate_error("table", tables)?;
    let figures = check_each(&experiment.scenario.figure, |spec| {
        locate_error("name", check_view_name(&spec.name, &mut names))?;
        spec.check(experiment, available)
    });
    locate_error("figure", figures)
}

fn check_view_name<'a>(name: &'a String, seen: &mut IndexSet<&'a String>) -> CheckResult {
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
    fn check(&self, experiment: &ExperimentPlan) -> CheckResult {
        for (key, names) in [self.rows, self.columns, ("facet", self.facet)] {
            let mut all = names_of(names).iter();
            locate_error(key, all.try_for_each(|name| check_varied(experiment, name)))?;
        }
        let mut only = self.filter.into_iter().flatten();
        let only = only.try_for_each(|(name, values)| {
            locate_error(name, check_value(experiment, name, values))
        });
        locate_error("filter", only)?;
        ensure(
            !self.resolve(experiment)?.is_empty(),
            || "no cell has all of these parameters",
        )
    }
}

fn check_varied(experiment: &ExperimentPlan, name: &String) -> Result<(), String> {
    let mut names: IndexSet<&str> = experiment
        .cells
        .iter()
        .flat_map(|cell| cell.values.keys().map(String::as_str))
        .collect();
    names.insert(CELL);
    if names.contains(name.as_str()) {
        Ok(())
    } else {
        let available: Vec<&str> = names.into_iter().collect();
        Err(format!(
            "{name:?} is not a varied parameter (there are: {})",
            available.join(", ")
        ))
    }
}

fn check_value(experiment: &ExperimentPlan, name: &String, values: &Values) -> Result<(), String> {
    check_varied(experiment, name)?;
    let has = |cell: &Cell| cell.values.get(name).is_some_and(|value| values.has(value));
    if experiment.cells.iter().any(has) {
        Ok(())
    } else {
        let known: IndexSet<String> = experiment
            .cells
            .iter()
            .filter_map(|cell| cell.values.get(name))
            .map(plain_text)
            .collect();
        Err(format!(
            "no cell has this value of {name} (there are: {})",
            known.into_iter().collect::<Vec<_>>().join(", ")
        ))
    }
}

fn check_metrics(metrics: &Names, available: &AvailableMetrics) -> CheckResult {
    let mut all = metrics.all().iter();
    ensure(
        all.len() > 0,
        || "metric is empty; name at least one metric",
    )?;
    Ok(all.try_for_each(|name| available.check(name))?)
}

/// Checks that the numbers of a title are of cells and metrics that exist.
fn check_title(
    title: &str,
    experiment: &ExperimentPlan,
    available: &AvailableMetrics,
) -> CheckResult {
    let check_numbers = |expression: &Expression| {
        available.check_all(expression)?;
        let one = |name: &str, wanted: &[(String, String)]| {
            let index = experiment.find_cell(wanted)?;
            available.check_in(index, name).map(|()| 1.0)
        };
        expression.value(&one).map(drop)
    };
    Ok(title_template::check(title, check_numbers)?)
}

impl TableSpec {
    fn check(&self, experiment: &ExperimentPlan, available: &AvailableMetrics) -> CheckResult {
        locate_error("metric", check_metrics(&self.metric, available))?;
        locate_error("title", check_title(&self.title, experiment, available))?;
        self.layout().check(experiment)
    }
}

impl FigureSpec {
    fn check(&self, experiment: &ExperimentPlan, available: &AvailableMetrics) -> CheckResult {
        self.check_source()?;
        self.check_axes()?;
        self.check_kind()?;
        locate_error("log", self.check_log())?;
        if let Some(metrics) = &self.metric {
            locate_error("metric", check_metrics(metrics, available))?;
        }
        locate_error("flow", self.check_flows(experiment))?;
        locate_error(
            "reference_lines",
            check_each(&self.reference_lines, |limit| {
                locate_error("value", limit.check())
            }),
        )?;
        locate_error("title", check_title(&self.title, experiment, available))?;
        self.layout().check(experiment)
    }

    /// Checks the source: a metric, or a quantity over time with its keys.
    fn check_source(&self) -> CheckResult {
        let over_time = self.time_series.is_some();
        let one = ensure(
            over_time != self.metric.is_some(),
            || "a figure draws either metric or, over time, time_series",
        );
        locate_error("time_series", one)?;
        let spread = matches!(self.kind, FigureKind::Line | FigureKind::Cdf);
        let drawn = ensure(
            !over_time || spread,
            || "only line and cdf draw time_series",
        );
        locate_error("kind", drawn)?;
        let of_time = [
            ("flow", self.flow.is_some()),
            ("from", self.from.is_some()),
            ("to", self.to.is_some()),
            ("bin", self.bin.is_some()),
        ];
        if let Some((key, _)) = of_time.into_iter().find(|(_, given)| *given && !over_time) {
            return locate_error(key, Err("flow, from, to and bin need time_series"));
        }
        let is_later = self.to.is_none_or(|to| to > self.from.unwrap_or_default());
        locate_error("to", ensure(is_later, || "to must be later than from"))
    }

    /// Checks that the kind supports the axes.
    fn check_axes(&self) -> CheckResult {
        let (others, problem) = if self.is_grid() {
            (
                [("x", &self.x), ("hue", &self.hue)],
                "a heat map or matrix has rows and columns, not x and hue",
            )
        } else {
            (
                [("rows", &self.rows), ("columns", &self.columns)],
                "line, bars and cdf have x and hue, not rows and columns",
            )
        };
        match others.into_iter().find(|(_, names)| names.is_some()) {
            None => Ok(()),
            Some((key, _)) => locate_error(key, Err(problem)),
        }
    }

    fn check_kind(&self) -> CheckResult {
        let metrics = names_of(&self.metric).len();
        let grid = [&self.rows, &self.columns];
        match self.kind {
            FigureKind::Line if self.time_series.is_some() => {
                let bare = ensure(
                    self.x.is_none(),
                    || "time_series is drawn over time; leave out x",
                );
                locate_error("x", bare)
            }
            FigureKind::Line => {
                let one = ensure(
                    names_of(&self.x).len() == 1,
                    || "a line figure of a metric needs one parameter in x",
                );
                locate_error("x", one)
            }
            FigureKind::Bars => Ok(()),
            FigureKind::Cdf => {
                locate_error("x", ensure(self.x.is_none(), || "a cdf has hue, not x"))
            }
            FigureKind::Heatmap => ensure(
                metrics == 1 && grid.iter().all(|names| names.is_some()),
                || "a heat map has one metric, rows and columns",
            ),
            FigureKind::Matrix => ensure(
                (1..=2).contains(&metrics) && grid.iter().all(|names| names_of(names).len() == 1),
                || "a matrix has one or two metrics, and one parameter each for rows and columns",
            ),
        }
    }

    fn check_log(&self) -> CheckResult {
        let log = self.log.as_deref();
        ensure(
            log.is_none_or(|log| ["x", "y", "xy"].contains(&log)),
            || "log is \"x\", \"y\" or \"xy\"",
        )
    }

    fn check_flows(&self, experiment: &ExperimentPlan) -> CheckResult {
        let Some(of) = &self.time_series else {
            return Ok(());
        };
        for scenario in experiment.cells.iter().map(|cell| &cell.scenario) {
            let flows = Flows::of(scenario, &Topology::of(scenario));
            for name in names_of(&self.flow) {
                let mut all = of.all().iter();
                all.try_for_each(|metric| check_named_flow(scenario, &flows, name, *metric))?;
            }
        }
        Ok(())
    }
}

impl ReferenceLineSpec {
    fn check(&self) -> CheckResult {
        ensure(
            self.limit().is_some(),
            || "a reference line is a number or a quantity",
        )
    }
}
