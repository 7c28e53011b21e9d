// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of metrics over a parameter. Each row and metric has a line, and a dashed line for its reference values. A
//! metric whose name begins with `model_` is computed by a formula. Its line has no marks.

use super::{
    bars::row_label,
    grid::{Grid, grids, headings, join_nonempty, names},
    time_series::scaled_reference_lines,
};
use crate::{
    result::{Cell, LabResult},
    summary::Summary,
    view::{self, Figure},
};
use longhaul_report::{
    chart::{Axis, Chart, Line, LineStyle, Positions},
    metric::Metric,
};

/// Ratio of the largest to the smallest positive value above which the axis is logarithmic.
const LOG_RATIO: f64 = 50.0;
/// Prefix of metrics that are computed by a formula.
const MODEL_PREFIX: &str = "model_";

/// Returns a chart for each facet.
pub(super) fn charts(result: &LabResult, figure: &Figure) -> Vec<Chart> {
    let grids = grids(result, &figure.facets);
    grids.iter().map(|grid| chart(figure, grid)).collect()
}

fn chart(figure: &Figure, grid: &Grid<'_>) -> Chart {
    let columns = Columns::new(grid.columns(), figure.log_x);
    let metric = figure.metrics.first().map_or("", String::as_str);
    Chart {
        title: grid.name(),
        unit: Metric::of(metric).unit.symbol(),
        wide: true,
        log: figure.log_y,
        names_at_ends: true,
        shared_axes: figure.name.clone(),
        lines: lines(figure, grid, &columns),
        x_axis: Some(Axis {
            name: grid.columns().parameters.join(", "),
            log: columns.log,
            ticks: columns.ticks,
            ..Axis::default()
        }),
        reference_lines: scaled_reference_lines(figure, metric),
        ..Chart::default()
    }
}

/// Returns the measured line and the reference line of each row and metric. Lines without a point are left out.
fn lines(figure: &Figure, grid: &Grid<'_>, columns: &Columns) -> Vec<Line> {
    let rows = names(grid.rows());
    let has_several_metrics = figure.metrics.len() > 1;
    let mut all = Vec::new();
    let mut measured = 0;
    for (row, name) in rows.iter().enumerate() {
        for metric in &figure.metrics {
            let name = row_label(name, metric, has_several_metrics);
            let reference_label = join_nonempty(["reference", name.as_str()], " ");
            let label = if name.is_empty() {
                "measured".to_owned()
            } else {
                name
            };
            let (style, mark) = if metric.starts_with(MODEL_PREFIX) {
                (LineStyle::MODEL, None)
            } else {
                measured += 1;
                (LineStyle::nth(measured - 1), Some(measured - 1))
            };
            let value = |cell: &Cell| cell.metrics.get(metric).copied();
            all.push(Line {
                label,
                style,
                mark,
                ..line(metric, &cells(grid, row, columns), value)
            });
            let reference = |cell: &Cell| {
                let value = cell.reference_value(metric).filter(|_| figure.reference)?;
                Summary::of([value])
            };
            all.push(Line {
                label: reference_label,
                style: LineStyle::REFERENCE,
                mark: Some(0),
                ..line(metric, &cells(grid, row, columns), reference)
            });
        }
    }
    all.retain(|line| !line.values.is_empty());
    all
}

/// Returns the cells of a row that were run, with their positions, from left to right.
fn cells<'a>(grid: &Grid<'a>, row: usize, columns: &Columns) -> Vec<(f64, &'a Cell)> {
    let ticks = columns.ticks.iter().enumerate();
    let found = ticks.filter_map(|(column, (at, _))| Some((*at, grid.at(row, column)?)));
    let mut cells: Vec<(f64, &Cell)> = found.collect();
    cells.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    cells
}

/// Returns the line through the medians, with the range of each.
fn line(metric: &str, cells: &[(f64, &Cell)], value: impl Fn(&Cell) -> Option<Summary>) -> Line {
    let factor = Metric::of(metric).unit.factor();
    let found: Vec<(f64, Summary)> = cells
        .iter()
        .filter_map(|(at, cell)| Some((*at, value(cell)?)))
        .collect();
    let column = |part: fn(&Summary) -> f64| {
        let values = found
            .iter()
            .map(|(_, summary)| Some(part(summary) * factor));
        values.collect()
    };
    Line {
        x: Positions::At(found.iter().map(|(at, _)| *at).collect()),
        values: column(|summary| summary.median),
        low: column(|summary| summary.min),
        high: column(|summary| summary.max),
        ..Line::default()
    }
}

/// Horizontal positions of the columns, with their labels.
#[derive(Debug)]
struct Columns {
    ticks: Vec<(f64, String)>,
    log: bool,
}

impl Columns {
    /// Computes the positions from the columns' values. Columns are evenly spaced if a value is not a number, or if a
    /// logarithmic axis would be needed but a value is not above zero. The axis is logarithmic if `log` is set or the
    /// values span a ratio above [`LOG_RATIO`].
    fn new(axis: &view::Axis, log: bool) -> Self {
        let numbers: Option<Vec<f64>> = axis.entries.iter().map(view::Axis::position).collect();
        let numbers = numbers.unwrap_or_default();
        let positive = || numbers.iter().copied().filter(|x| *x > 0.0);
        let most = positive().fold(0.0, f64::max);
        let log = log || most > positive().fold(f64::INFINITY, f64::min) * LOG_RATIO;
        let even = numbers.is_empty() || (log && positive().count() < numbers.len());
        let at = |n: usize| if even { n as f64 } else { numbers[n] };
        let labels = headings(axis).into_iter().enumerate();
        Self {
            ticks: labels.map(|(n, label)| (at(n), label)).collect(),
            log: log && !even,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn positions(values: &[Value]) -> (Vec<f64>, bool) {
        let entries = values.iter().map(|value| view::Entry {
            values: vec![value.clone()],
            label: None,
        });
        let axis = view::Axis {
            parameters: vec!["x".to_owned()],
            entries: entries.collect(),
        };
        let columns = Columns::new(&axis, false);
        (
            columns.ticks.iter().map(|(at, _)| *at).collect(),
            columns.log,
        )
    }

    #[test]
    fn positions_numbers_by_value_and_words_evenly() {
        let (linear, log) = (false, true);
        assert_eq!(
            positions(&[json!(1), json!(2), json!(5)]),
            (vec![1.0, 2.0, 5.0], linear)
        );
        assert_eq!(
            positions(&[json!("a"), json!("b")]),
            (vec![0.0, 1.0], linear)
        );
        assert_eq!(
            positions(&[json!(1), json!(100), json!(10000)]),
            (vec![1.0, 100.0, 10000.0], log)
        );
        assert_eq!(
            positions(&[json!(0.0), json!(0.00001), json!(0.001)]),
            (vec![0.0, 1.0, 2.0], linear)
        );
    }
}
