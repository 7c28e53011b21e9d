// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables and figures of a result: cells are arranged on their axes, and titles are filled in.

use super::claims;
use crate::{
    experiment::{Cell, ExperimentPlan},
    scenario::{
        expression::Expression,
        title_template,
        view::{FigureSpec, OptionalNames, ReferenceLineSpec, TableSpec, Values, names_of},
    },
};
use indexmap::{IndexMap, IndexSet};
use longhaul_report::metric::Metric;
use longhaul_results::{
    result,
    view::{Axis, Entry, Facet, Figure, Table},
};
use longhaul_units::Time;
use serde_json::Value;

/// Axis of the cells themselves, by name, in place of a parameter.
pub(crate) const CELL: &str = "cell";

/// Tables of a result.
pub(crate) fn tables(experiment: &ExperimentPlan, cells: &[result::Cell]) -> Vec<Table> {
    let specs = experiment.scenario.table.iter();
    specs
        .filter_map(|spec| spec.resolve(experiment, cells))
        .collect()
}

/// Figures of a result.
pub(crate) fn figures(experiment: &ExperimentPlan, cells: &[result::Cell]) -> Vec<Figure> {
    let specs = experiment.scenario.figure.iter();
    specs
        .filter_map(|spec| spec.resolve(experiment, cells))
        .collect()
}

/// Arrangement of cells in a table or figure.
pub(crate) struct Layout<'a> {
    pub(crate) rows: (&'static str, &'a OptionalNames),
    pub(crate) columns: (&'static str, &'a OptionalNames),
    pub(crate) facet: &'a OptionalNames,
    pub(crate) filter: Option<&'a IndexMap<String, Values>>,
}

impl Layout<'_> {
    /// Returns the panels with their cells; empty if no cell is selected.
    ///
    /// # Errors
    /// Two cells have the same position.
    pub(crate) fn resolve(&self, experiment: &ExperimentPlan) -> Result<Vec<Facet>, String> {
        let (rows, columns, panels) = (
            names_of(self.rows.1),
            names_of(self.columns.1),
            names_of(self.facet),
        );
        let named = [rows, columns, panels].concat();
        let selected = |index: &usize| self.selects(&experiment.cells[*index], &named);
        let all: Vec<usize> = (0..experiment.cells.len()).filter(selected).collect();
        let (row_axis, column_axis) = (
            axis(experiment, &all, rows),
            axis(experiment, &all, columns),
        );
        let panel_entries = axis(experiment, &all, panels).entries.into_iter();
        panel_entries
            .map(|panel| {
                let in_panel = all
                    .iter()
                    .copied()
                    .filter(|index| values(&experiment.cells[*index], panels) == panel.values);
                let cells = grid(experiment, in_panel, [&row_axis, &column_axis])?;
                let shared_values = panels.iter().cloned().zip(panel.values).collect();
                Ok(Facet {
                    shared_values,
                    rows: row_axis.clone(),
                    columns: column_axis.clone(),
                    cells,
                })
            })
            .filter(|panel| {
                panel
                    .as_ref()
                    .is_ok_and(|panel| panel.cells.iter().flatten().any(Option::is_some))
                    || panel.is_err()
            })
            .collect()
    }

    fn selects(&self, cell: &Cell, named: &[String]) -> bool {
        let has_parameters = named
            .iter()
            .all(|name| name == CELL || cell.values.contains_key(name));
        let mut wanted = self.filter.into_iter().flatten();
        has_parameters
            && wanted
                .all(|(name, values)| cell.values.get(name).is_some_and(|value| values.has(value)))
    }
}

/// Values of a cell for these parameters.
pub(crate) fn values(cell: &Cell, parameters: &[String]) -> Vec<Value> {
    let value = |name: &String| match cell.values.get(name) {
        Some(value) => serde_json::to_value(value).unwrap_or_default(),
        None => Value::from(cell.name()),
    };
    parameters.iter().map(value).collect()
}

/// Returns the axis of some parameters: the distinct values that the cells have.
fn axis(experiment: &ExperimentPlan, cells: &[usize], parameters: &[String]) -> Axis {
    let all = || cells.iter().map(|index| &experiment.cells[*index]);
    let mut entries: Vec<Entry> = Vec::new();
    for values in all().map(|cell| values(cell, parameters)) {
        if entries.iter().all(|entry| entry.values != values) {
            entries.push(Entry {
                values,
                label: None,
            });
        }
    }
    let labels: IndexSet<_> = all().map(|cell| cell.label.as_ref()).collect();
    if let ([], [entry], 1) = (parameters, &mut entries[..], labels.len()) {
        entry.label = labels[0].cloned();
    }
    Axis {
        parameters: parameters.to_vec(),
        entries,
    }
}

/// Index of the cell at each row and column.
fn grid(
    experiment: &ExperimentPlan,
    cells: impl Iterator<Item = usize>,
    [rows, columns]: [&Axis; 2],
) -> Result<Vec<Vec<Option<usize>>>, String> {
    let mut grid = vec![vec![None; columns.entries.len()]; rows.entries.len()];
    for index in cells {
        let position = |axis: &Axis| {
            let cell_values = values(&experiment.cells[index], &axis.parameters);
            axis.entries
                .iter()
                .position(|entry| entry.values == cell_values)
        };
        let (Some(row), Some(column)) = (position(rows), position(columns)) else {
            continue;
        };
        if let Some(other) = grid[row][column].replace(index) {
            let [one, other] = [other, index].map(|index: usize| experiment.cells[index].name());
            return Err(format!(
                "{one:?} and {other:?} map to the same row and column; name the parameter that differs, or exclude one with filter"
            ));
        }
    }
    Ok(grid)
}

/// Title with its numbers, or the name of the metric if a number is missing.
fn fill_in_title(
    title: &str,
    metric: &str,
    experiment: &ExperimentPlan,
    cells: &[result::Cell],
) -> String {
    let number = |expression: &Expression| claims::number(expression, experiment, cells);
    let fallback = || format!("{} of the cells that were run", Metric::of(metric).label);
    title_template::fill_in(title, number).unwrap_or_else(fallback)
}

impl TableSpec {
    pub(crate) fn layout(&self) -> Layout<'_> {
        Layout {
            rows: ("rows", &self.rows),
            columns: ("columns", &self.columns),
            facet: &self.facet,
            filter: self.filter.as_ref(),
        }
    }

    pub(crate) fn resolve(
        &self,
        experiment: &ExperimentPlan,
        cells: &[result::Cell],
    ) -> Option<Table> {
        let panels = self.layout().resolve(experiment).ok()?;
        (!panels.is_empty()).then(|| Table {
            name: self.name.clone(),
            title: fill_in_title(&self.title, &self.metric.all()[0], experiment, cells),
            note: self.note.clone(),
            metrics: self.metric.all().to_vec(),
            reference: self.reference,
            facets: panels,
        })
    }
}

impl FigureSpec {
    pub(crate) fn layout(&self) -> Layout<'_> {
        let (rows, columns) = if self.is_grid() {
            (("rows", &self.rows), ("columns", &self.columns))
        } else {
            (("hue", &self.hue), ("x", &self.x))
        };
        Layout {
            rows,
            columns,
            facet: &self.facet,
            filter: self.filter.as_ref(),
        }
    }

    pub(crate) fn resolve(
        &self,
        experiment: &ExperimentPlan,
        cells: &[result::Cell],
    ) -> Option<Figure> {
        let panels = self.layout().resolve(experiment).ok()?;
        let log = self.log.as_deref().unwrap_or_default();
        let seconds = |time: Option<Time>| time.map(Time::as_secs_f64);
        let span = (self.from.is_some() || self.to.is_some()).then(|| {
            [
                seconds(self.from).unwrap_or(0.0),
                seconds(self.to).unwrap_or(run_time_max_s(experiment)),
            ]
        });
        (!panels.is_empty()).then(|| Figure {
            name: self.name.clone(),
            kind: self.kind,
            title: fill_in_title(&self.title, self.first_metric(), experiment, cells),
            note: self.note.clone(),
            metrics: names_of(&self.metric).to_vec(),
            time_series: self
                .time_series_ids()
                .into_iter()
                .map(|(_, name)| name)
                .collect(),
            span_s: span,
            log_x: log.contains('x'),
            log_y: log.contains('y'),
            reference: self.reference,
            reference_lines: self
                .reference_lines
                .iter()
                .filter_map(ReferenceLineSpec::limit)
                .collect(),
            facets: panels,
        })
    }

    /// Name of the first metric in the figure.
    fn first_metric(&self) -> &str {
        let time_series = self.time_series.as_ref();
        let time_series = time_series.and_then(|metrics| metrics.all().first());
        let metric = names_of(&self.metric).first().map(String::as_str);
        metric
            .or(time_series.map(|metric| metric.name()))
            .unwrap_or_default()
    }
}

/// Returns the longest time of a run, seconds.
fn run_time_max_s(experiment: &ExperimentPlan) -> f64 {
    experiment.scenario.timeout.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Choices, file::ScenarioFile};

    const TEXT: &str = r#"title = "t"
question = "q"
[matrix]
loss = [0.0, 0.1]
relays = [false, true]
[[include]]
label = "alone"
values = { from = "b" }
[parameters]
from = "a"
[[links]]
name = "wan"
kind = "veth"
endpoints = ["a", "b"]
[[links]]
name = "lan"
kind = "veth"
endpoints = ["b", "c"]
[[flows]]
name = "get"
program = "curl"
from = "${from}"
to = "c"
size = "1MB"
"#;

    fn experiment(views: &str, only: &[(&str, &str)]) -> ExperimentPlan {
        let own = |text: &&str| (*text).to_owned();
        let source = ScenarioFile {
            name: "t".to_owned(),
            origin: "t.toml".to_owned(),
            text: format!("{TEXT}{views}"),
        };
        let choices = Choices {
            filter: only
                .iter()
                .map(|(key, value)| (own(key), own(value)))
                .collect(),
            ..Choices::default()
        };
        ExperimentPlan::open(source, &choices).unwrap()
    }

    fn cells(experiment: &ExperimentPlan) -> Vec<result::Cell> {
        let cell = |n: usize| {
            let run = result::Run {
                metrics: result::Metrics::from([("goodput_bps".to_owned(), (n + 1) as f64 * 1e8)]),
                ..result::Run::default()
            };
            let mut cell = result::Cell {
                runs: vec![run],
                ..result::Cell::default()
            };
            cell.summarise();
            cell
        };
        (0..experiment.cells.len()).map(cell).collect()
    }

    const GRID: &str = "[[table]]\nname = \"grid\"\nmetric = \"goodput_bps\"\nrows = \"loss\"\n\
        title = \"{goodput_bps{loss=0,relays=true} / goodput_bps{loss=0,relays=false} :x}\"\n";

    #[test]
    fn cells_are_placed_by_their_values() {
        let experiment = experiment(&format!("{GRID}columns = \"relays\"\n"), &[]);
        let tables = tables(&experiment, &cells(&experiment));
        assert_eq!(tables[0].title, "2×");
        let [panel] = &tables[0].facets[..] else {
            panic!("one panel")
        };
        assert_eq!(panel.cells, [[Some(0), Some(1)], [Some(2), Some(3)]]);
        assert_eq!(panel.columns.heading(&panel.columns.entries[1]), "relays");
        assert_eq!(panel.rows.entries[1].values, [Value::from(0.1)]);
    }

    #[test]
    fn panels_split_the_remaining_parameter() {
        let experiment = experiment(&format!("{GRID}facet = \"relays\"\n"), &[]);
        let tables = tables(&experiment, &cells(&experiment));
        let grid: Vec<_> = tables[0]
            .facets
            .iter()
            .map(|panel| panel.cells.clone())
            .collect();
        assert_eq!(grid, [[[Some(0)], [Some(2)]], [[Some(1)], [Some(3)]]]);
        assert_eq!(
            tables[0].facets[1].shared_values["relays"],
            Value::from(true)
        );
    }

    #[test]
    fn rows_can_be_cells_and_only_selects_cells() {
        let every = experiment(
            "[[table]]\nname = \"all\"\ntitle = \"t\"\nmetric = \"goodput_bps\"\nrows = \"cell\"\n",
            &[],
        );
        let tables = tables(&every, &cells(&every));
        let last = tables[0].facets[0].rows.entries.last().unwrap();
        assert_eq!(last.values, [Value::from("alone")]);
        let some = experiment(
            &format!("{GRID}filter = {{ relays = true, loss = [0, 0.5] }}\n"),
            &[],
        );
        let tables = crate::evaluation::view::tables(&some, &cells(&some));
        assert_eq!(tables[0].facets[0].cells, [[Some(1)]]);
    }

    #[test]
    fn selected_cells_give_a_partial_table() {
        let part = experiment(
            &format!("{GRID}columns = \"relays\"\n"),
            &[("relays", "true")],
        );
        let tables = tables(&part, &cells(&part));
        assert_eq!(tables[0].facets[0].cells, [[Some(0)], [Some(1)]]);
        assert_eq!(
            tables[0].title, "Goodput of the cells that were run",
            "the cell that it compares with was not run"
        );
        let none = experiment(&format!("{GRID}columns = \"relays\"\n"), &[("from", "b")]);
        assert!(crate::evaluation::view::tables(&none, &cells(&none)).is_empty());
    }

    #[test]
    fn figure_over_time_names_its_time_series() {
        let figure = "[[figure]]\nname = \"f\"\nkind = \"line\"\ntitle = \"t\"\ntime_series = [\"goodput_bps\", \"cwnd_bytes\"]\n\
            flow = \"get\"\nhue = [\"loss\", \"relays\"]\nfrom = \"2s\"\nto = \"4s\"\nlog = \"y\"\n\
            reference_lines = [{ value = \"1gbit\", label = \"line\" }]\n";
        let experiment = experiment(figure, &[]);
        let figures = figures(&experiment, &cells(&experiment));
        let courses: Vec<_> = figures[0]
            .time_series
            .iter()
            .map(|course| (course.metric.as_str(), course.flow.as_deref()))
            .collect();
        assert_eq!(
            courses,
            [("goodput_bps", Some("get")), ("cwnd_bytes", Some("get"))]
        );
        assert_eq!(
            (figures[0].span_s, figures[0].log_y),
            (Some([2.0, 4.0]), true)
        );
        assert_eq!(figures[0].reference_lines[0].value, 1e9);
        assert_eq!(figures[0].facets[0].cells.len(), 4);
    }
}
