// SPDX-License-Identifier: MIT OR Apache-2.0
//! Line chart of metrics over a parameter. Each row and metric has a line, and a dashed line for its reference values.
//! A metric whose name begins with `model_` is computed by a formula. Its line has no marks.

use super::{
    bars::row_label,
    grid::{Grid, grids, heading, headings, join_nonempty, names},
};
use crate::{
    result::{Cell, LabResult},
    view::{self, Figure},
};
use longhaul_report::metric::Metric;
use longhaul_report::{
    lines::{Axis, LineStyle, Lines, Point, Series, Tick},
    scale::Scale,
};
use maud::{Markup, html};

/// Share of the width that stays free on each side, so that marks do not touch the frame.
const MARGIN: f64 = 0.03;
/// Ratio of the largest to the smallest positive value above which the axis is logarithmic.
const LOG_RATIO: f64 = 50.0;
/// Maximum number of labels on the horizontal axis.
const LABELS_MAX: usize = 10;
/// Prefix of metrics that are computed by a formula.
const MODEL_PREFIX: &str = "model_";

pub(super) fn figure(result: &LabResult, figure: &Figure) -> Markup {
    let grids = grids(result, &figure.facets);
    let y = vertical_scale(figure, &grids);
    html! {
        figure.chart.wide {
            (heading(figure))
            @for grid in &grids {
                @if !grid.name().is_empty() { h4 { (grid.name()) } }
                (lines(figure, grid, y).render())
            }
        }
    }
}

/// Returns the vertical scale, which all facets share.
fn vertical_scale(figure: &Figure, grids: &[Grid<'_>]) -> Scale {
    let cells = || grids.iter().flat_map(Grid::all);
    let measured = figure
        .metrics
        .iter()
        .flat_map(|name| cells().filter_map(move |cell| cell.metrics.get(name)));
    let references = figure
        .metrics
        .iter()
        .flat_map(|name| cells().filter_map(move |cell| reference_value(figure, cell, name)));
    let reference_lines = figure.reference_lines.iter().map(|line| line.value);
    let values: Vec<f64> = measured
        .flat_map(|summary| [summary.min, summary.max])
        .chain(references)
        .chain(reference_lines)
        .collect();
    if figure.log_y {
        Scale::log(values)
    } else {
        Scale::from_zero(values)
    }
}

fn reference_value(figure: &Figure, cell: &Cell, metric: &str) -> Option<f64> {
    cell.reference_value(metric).filter(|_| figure.reference)
}

fn lines(figure: &Figure, grid: &Grid<'_>, y: Scale) -> Lines {
    let columns = ColumnPositions::new(grid.columns(), figure.log_x);
    let metric = Metric::of(figure.metrics.first().map_or("", String::as_str));
    let tick = |value: f64, text: String| Tick {
        at: y.at(value),
        text,
    };
    Lines {
        title: join_nonempty([figure.title.as_str(), &grid.name()], " "),
        x: Axis {
            name: grid.columns().parameters.join(", "),
            ticks: columns.ticks(),
        },
        y: Axis {
            name: String::new(),
            ticks: y
                .ticks()
                .into_iter()
                .map(|value| tick(value, metric.format(value)))
                .collect(),
        },
        series: series(figure, grid, &columns, y),
        reference_lines: figure
            .reference_lines
            .iter()
            .map(|line| tick(line.value, line.label.clone()))
            .collect(),
    }
}

/// Returns the measured line and the reference line of each row and metric. Lines without a point are left out.
fn series(figure: &Figure, grid: &Grid<'_>, positions: &ColumnPositions, y: Scale) -> Vec<Series> {
    let rows = names(grid.rows());
    let has_several_metrics = figure.metrics.len() > 1;
    let mut all = Vec::new();
    let mut measured = 0;
    for (row, name) in rows.iter().enumerate() {
        for metric in &figure.metrics {
            let model = metric.starts_with(MODEL_PREFIX);
            let style = if model {
                LineStyle::Model
            } else {
                LineStyle::Measured(measured)
            };
            measured += usize::from(!model);
            let name = row_label(name, metric, has_several_metrics);
            let reference_name = join_nonempty(["reference", name.as_str()], " ");
            let name = if name.is_empty() {
                "measured".to_owned()
            } else {
                name
            };
            all.push(line(grid, row, positions, (name, style), |cell| {
                measured_point(cell, metric, y)
            }));
            all.push(line(
                grid,
                row,
                positions,
                (reference_name, LineStyle::Reference),
                |cell| reference_point(figure, cell, metric, y),
            ));
        }
    }
    all.retain(|series| !series.points.is_empty());
    all
}

fn line(
    grid: &Grid<'_>,
    row: usize,
    positions: &ColumnPositions,
    (name, style): (String, LineStyle),
    value: impl Fn(&Cell) -> Option<Point>,
) -> Series {
    let point = |column: usize| {
        let x = positions.ticks.get(column)?;
        Some(Point {
            x: x.at,
            x_text: x.text.clone(),
            ..value(grid.at(row, column)?)?
        })
    };
    let mut points: Vec<Point> = (0..positions.ticks.len()).filter_map(point).collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    Series {
        name,
        style,
        points,
        marked: style != LineStyle::Model,
    }
}

fn measured_point(cell: &Cell, name: &str, y: Scale) -> Option<Point> {
    let (metric, found) = (Metric::of(name), cell.metrics.get(name)?);
    Some(Point {
        y: y.at(found.median),
        low: y.at(found.min),
        high: y.at(found.max),
        text: found.text(&metric),
        ..Point::default()
    })
    .filter(|point| point.y.is_finite())
}

fn reference_point(figure: &Figure, cell: &Cell, name: &str, y: Scale) -> Option<Point> {
    let value = reference_value(figure, cell, name)?;
    Some(Point {
        y: y.at(value),
        text: Metric::of(name).format(value),
        ..Point::default()
    })
    .filter(|point| point.y.is_finite())
}

/// Horizontal positions of the columns.
#[derive(Debug)]
struct ColumnPositions {
    ticks: Vec<Tick>,
}

impl ColumnPositions {
    /// Computes the positions from the columns' values. Columns are evenly spaced if a value is not a number, or if a
    /// logarithmic axis would be needed but a value is not above zero.
    fn new(axis: &view::Axis, log: bool) -> Self {
        let numbers: Option<Vec<f64>> = axis.entries.iter().map(view::Axis::position).collect();
        let count = axis.entries.len();
        let scale = numbers.as_deref().and_then(|numbers| scale(numbers, log));
        let at = |n: usize| match (scale, &numbers) {
            (Some(scale), Some(numbers)) => scale.at(numbers[n]),
            _ => (n as f64 + 0.5) / count as f64,
        };
        let tick = |(n, text)| Tick {
            at: MARGIN + (1.0 - 2.0 * MARGIN) * at(n),
            text,
        };
        Self {
            ticks: headings(axis).into_iter().enumerate().map(tick).collect(),
        }
    }

    /// Returns the labelled ticks: all columns, or every n-th one if there are more than [`LABELS_MAX`].
    fn ticks(&self) -> Vec<Tick> {
        let step = self.ticks.len().div_ceil(LABELS_MAX).max(1);
        self.ticks.iter().step_by(step).cloned().collect()
    }
}

/// Returns the horizontal scale for these values. It is logarithmic if `log` is set or the values span a ratio above
/// [`LOG_RATIO`]. `None` if it should be logarithmic but a value is not above zero.
fn scale(numbers: &[f64], log: bool) -> Option<Scale> {
    let positive = numbers.iter().all(|x| *x > 0.0);
    let most = numbers.iter().copied().fold(0.0, f64::max);
    let least = numbers
        .iter()
        .copied()
        .filter(|x| *x > 0.0)
        .fold(f64::INFINITY, f64::min);
    let values = || numbers.iter().copied();
    match (positive, log || most > least * LOG_RATIO) {
        (true, true) => Some(Scale::log(values())),
        (false, true) => None,
        (_, false) => Some(Scale::tight(values())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn positions(values: &[Value]) -> Vec<f64> {
        let entries = values.iter().map(|value| view::Entry {
            values: vec![value.clone()],
            label: None,
        });
        let axis = view::Axis {
            parameters: vec!["x".to_owned()],
            entries: entries.collect(),
        };
        ColumnPositions::new(&axis, false)
            .ticks
            .iter()
            .map(|tick| (tick.at * 100.0).round())
            .collect()
    }

    #[test]
    fn positions_numbers_by_value_and_words_evenly() {
        assert_eq!(
            positions(&[json!(1), json!(2), json!(5)]),
            [3.0, 27.0, 97.0]
        );
        assert_eq!(positions(&[json!("a"), json!("b")]), [27.0, 74.0]);
        assert_eq!(
            positions(&[json!(1), json!(100), json!(10000)]),
            [3.0, 50.0, 97.0]
        );
        assert_eq!(
            positions(&[json!(0.0), json!(0.00001), json!(0.001)]),
            [19.0, 50.0, 81.0]
        );
    }
}
