// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics over a parameter: a line for each row, the paper's figures dashed beside it. A metric whose
//! name begins with `model_` is what a formula says, and has no marks.

use super::{
    cells::{Grid, filled, grids, heading, headings, names},
    grouped::said,
};
use crate::{
    result::{Cell, LabResult},
    view::{self, Figure},
};
use longhaul_report::metric::Metric;
use longhaul_report::{
    lines::{Axis, Lines, Look, Point, Series, Tick},
    scale::Scale,
};
use maud::{Markup, html};

/// Share of the width that stays free on both sides, so that marks don't lie on the frame.
const MARGIN: f64 = 0.03;
/// Positive values further apart than this are drawn on a logarithmic axis.
const FAR: f64 = 50.0;
/// Values of the parameter that are labelled; of more, every second or third.
const LABELS_MAX: usize = 10;
/// How a metric that a formula gives begins.
const MODEL: &str = "model_";

pub(super) fn figure(result: &LabResult, figure: &Figure) -> Markup {
    let grids = grids(result, &figure.panels);
    let y = vertical(figure, &grids);
    html! {
        figure.chart.wide {
            (heading(figure))
            @for grid in &grids {
                @if !grid.name().is_empty() { h4 { (grid.name()) } }
                (lines(figure, grid, y).drawn())
            }
        }
    }
}

/// One scale for all panels.
fn vertical(figure: &Figure, grids: &[Grid<'_>]) -> Scale {
    let cells = || grids.iter().flat_map(Grid::all);
    let ours = figure
        .metrics
        .iter()
        .flat_map(|name| cells().filter_map(move |cell| cell.metrics.get(name)));
    let theirs = figure
        .metrics
        .iter()
        .flat_map(|name| cells().filter_map(move |cell| paper(figure, cell, name)));
    let limits = figure.limits.iter().map(|limit| limit.value);
    let values: Vec<f64> = ours
        .flat_map(|summary| [summary.min, summary.max])
        .chain(theirs)
        .chain(limits)
        .collect();
    match figure.log_y {
        true => Scale::log(values),
        false => Scale::from_zero(values),
    }
}

fn paper(figure: &Figure, cell: &Cell, metric: &str) -> Option<f64> {
    cell.paper_figure(metric).filter(|_| figure.paper)
}

fn lines(figure: &Figure, grid: &Grid<'_>, y: Scale) -> Lines {
    let across = Horizontal::of(grid.columns(), figure.log_x);
    let metric = Metric::of(figure.metrics.first().map_or("", String::as_str));
    let tick = |value: f64, text: String| Tick {
        at: y.at(value),
        text,
    };
    Lines {
        title: filled([figure.title.as_str(), &grid.name()], " "),
        x: Axis {
            name: grid.columns().by.join(", "),
            ticks: across.ticks(),
        },
        y: Axis {
            name: String::new(),
            ticks: y
                .ticks()
                .into_iter()
                .map(|value| tick(value, metric.print(value)))
                .collect(),
        },
        series: series(figure, grid, &across, y),
        limits: figure
            .limits
            .iter()
            .map(|limit| tick(limit.value, limit.label.clone()))
            .collect(),
    }
}

/// For each row and metric our line and the paper's; lines without a point are left out.
fn series(figure: &Figure, grid: &Grid<'_>, across: &Horizontal, y: Scale) -> Vec<Series> {
    let rows = names(grid.rows());
    let several = figure.metrics.len() > 1;
    let mut all = Vec::new();
    let mut ours = 0;
    for (row, name) in rows.iter().enumerate() {
        for metric in &figure.metrics {
            let model = metric.starts_with(MODEL);
            let look = if model { Look::Model } else { Look::Ours(ours) };
            ours += usize::from(!model);
            let name = said(name, metric, several);
            let paper_name = filled(["paper", name.as_str()], " ");
            let name = if name.is_empty() {
                "ours".to_owned()
            } else {
                name
            };
            all.push(line(grid, row, across, (name, look), |cell| {
                measured(cell, metric, y)
            }));
            all.push(line(grid, row, across, (paper_name, Look::Paper), |cell| {
                printed(figure, cell, metric, y)
            }));
        }
    }
    all.retain(|series| !series.points.is_empty());
    all
}

fn line(
    grid: &Grid<'_>,
    row: usize,
    across: &Horizontal,
    (name, look): (String, Look),
    value: impl Fn(&Cell) -> Option<Point>,
) -> Series {
    let point = |column: usize| {
        let x = across.places.get(column)?;
        Some(Point {
            x: x.at,
            x_text: x.text.clone(),
            ..value(grid.at(row, column)?)?
        })
    };
    let mut points: Vec<Point> = (0..across.places.len()).filter_map(point).collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    Series {
        name,
        look,
        points,
        marked: look != Look::Model,
    }
}

fn measured(cell: &Cell, name: &str, y: Scale) -> Option<Point> {
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

fn printed(figure: &Figure, cell: &Cell, name: &str, y: Scale) -> Option<Point> {
    let value = paper(figure, cell, name)?;
    Some(Point {
        y: y.at(value),
        text: Metric::of(name).print(value),
        ..Point::default()
    })
    .filter(|point| point.y.is_finite())
}

/// Where the columns lie.
#[derive(Debug)]
struct Horizontal {
    places: Vec<Tick>,
}

impl Horizontal {
    /// By their numbers, or evenly apart if they are none, or if zero lies beside values that only a
    /// logarithmic axis would tell apart.
    fn of(axis: &view::Axis, log: bool) -> Self {
        let numbers: Option<Vec<f64>> = axis.entries.iter().map(view::Axis::position).collect();
        let count = axis.entries.len();
        let scale = numbers.as_deref().and_then(|numbers| scale(numbers, log));
        let at = |n: usize| match (scale, &numbers) {
            (Some(scale), Some(numbers)) => scale.at(numbers[n]),
            _ => (n as f64 + 0.5) / count as f64,
        };
        let place = |(n, text)| Tick {
            at: MARGIN + (1.0 - 2.0 * MARGIN) * at(n),
            text,
        };
        Self {
            places: headings(axis).into_iter().enumerate().map(place).collect(),
        }
    }

    fn ticks(&self) -> Vec<Tick> {
        let every = self.places.len().div_ceil(LABELS_MAX).max(1);
        self.places.iter().step_by(every).cloned().collect()
    }
}

fn scale(numbers: &[f64], log: bool) -> Option<Scale> {
    let positive = numbers.iter().all(|x| *x > 0.0);
    let most = numbers.iter().copied().fold(0.0, f64::max);
    let least = numbers
        .iter()
        .copied()
        .filter(|x| *x > 0.0)
        .fold(f64::INFINITY, f64::min);
    let values = || numbers.iter().copied();
    match (positive, log || most > least * FAR) {
        (true, true) => Some(Scale::log(values())),
        (false, true) => None,
        (_, false) => Some(Scale::tight(values())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn places(values: &[Value]) -> Vec<f64> {
        let entries = values.iter().map(|value| view::Entry {
            values: vec![value.clone()],
            label: None,
        });
        let axis = view::Axis {
            by: vec!["x".to_owned()],
            entries: entries.collect(),
        };
        Horizontal::of(&axis, false)
            .places
            .iter()
            .map(|place| (place.at * 100.0).round())
            .collect()
    }

    #[test]
    fn values_lie_by_their_numbers_and_words_evenly() {
        assert_eq!(places(&[json!(1), json!(2), json!(5)]), [3.0, 27.0, 97.0]);
        assert_eq!(places(&[json!("a"), json!("b")]), [27.0, 74.0]);
        assert_eq!(
            places(&[json!(1), json!(100), json!(10000)]),
            [3.0, 50.0, 97.0]
        );
        assert_eq!(
            places(&[json!(0.0), json!(0.00001), json!(0.001)]),
            [19.0, 50.0, 81.0]
        );
    }
}
