// SPDX-License-Identifier: MIT OR Apache-2.0
//! Horizontal bars, grouped if a figure has several rows; the reference value is dashed below. Positions are
//! percentages, so that the text keeps its size on a phone.

use super::grid::{Grid, grids, heading, names};
use crate::{
    result::{Cell, LabResult},
    summary::Summary,
    view::Figure,
};
use longhaul_report::metric::Metric;
use maud::{Markup, html};

/// Length of the longest bar, percent of the width; the rest is for its value.
const LONGEST_PERCENT: f64 = 62.0;
/// Height of a bar with its name, and of the reference bar below it, pixels.
const ROW_PX: u32 = 44;
const REFERENCE_PX: u32 = 18;
/// Number of fills that can be distinguished.
const FILL_COUNT: usize = 4;

pub(super) fn figure(result: &LabResult, figure: &Figure) -> Markup {
    let facets: Vec<(String, Vec<Group>)> = grids(result, &figure.facets)
        .iter()
        .map(|grid| (grid.name(), groups(result, figure, grid)))
        .collect();
    let bars = || {
        facets
            .iter()
            .flat_map(|(_, groups)| groups)
            .flat_map(|group| &group.bars)
    };
    let scale = LONGEST_PERCENT / bars().map(Bar::max_value).fold(f64::MIN_POSITIVE, f64::max);
    html! {
        figure.bars {
            (heading(figure))
            p.note { (legend(&bars().collect::<Vec<_>>())) }
            @for (name, groups) in &facets {
                @if !name.is_empty() { h4 { (name) } }
                @for group in groups { (draw_group(group, scale)) }
            }
        }
    }
}

/// Group of bars; a group of a single bar has no heading.
struct Group {
    name: String,
    bars: Vec<Bar>,
}

/// Bar: one metric of one cell.
struct Bar {
    name: String,
    fill: String,
    runs: usize,
    metric: Metric,
    summary: Summary,
    reference: Option<f64>,
}

fn groups(result: &LabResult, figure: &Figure, grid: &Grid<'_>) -> Vec<Group> {
    let rows = names(grid.rows());
    let group = |(column, name): (usize, String)| {
        let single = rows.len() * figure.metrics.len() == 1;
        let positions =
            (0..rows.len()).flat_map(|row| figure.metrics.iter().map(move |metric| (row, metric)));
        let bars = positions.enumerate().filter_map(|(n, (row, metric))| {
            let cell = grid.at(row, column)?;
            Some(Bar {
                name: if single {
                    name.clone()
                } else {
                    row_label(&rows[row], metric, figure.metrics.len() > 1)
                },
                fill: if is_baseline(result, cell) && single {
                    "baseline".to_owned()
                } else {
                    format!("fill-{}", n % FILL_COUNT)
                },
                runs: cell.successful_runs().count(),
                summary: *cell.metrics.get(metric)?,
                reference: cell.reference_value(metric).filter(|_| figure.reference),
                metric: Metric::of(metric),
            })
        });
        Group {
            bars: bars.collect(),
            name: if single { String::new() } else { name.clone() },
        }
    };
    names(grid.columns())
        .into_iter()
        .enumerate()
        .map(group)
        .collect()
}

/// Returns whether the cell is the baseline of the headline, which has a neutral colour.
fn is_baseline(result: &LabResult, cell: &Cell) -> bool {
    let baseline = result
        .headline
        .as_ref()
        .and_then(|headline| result.cells.get(headline.baseline?));
    baseline.is_some_and(|baseline| std::ptr::eq(baseline, cell))
}

/// Returns the name of a row, with that of the metric if there are several.
pub(super) fn row_label(row: &str, metric: &str, several: bool) -> String {
    match (several, row.is_empty()) {
        (false, _) => row.to_owned(),
        (true, true) => Metric::of(metric).label,
        (true, false) => format!("{row}: {}", Metric::of(metric).label),
    }
}

impl Bar {
    fn height_px(&self) -> u32 {
        ROW_PX
            + if self.reference.is_some() {
                REFERENCE_PX
            } else {
                0
            }
    }

    fn max_value(&self) -> f64 {
        self.summary.max.max(self.reference.unwrap_or(0.0))
    }

    /// Describes the bar: "two relays: 2.4 Gbit/s, reference 2.35 Gbit/s".
    fn describe(&self) -> String {
        let measured = format!("{}: {}", self.name, self.metric.format(self.summary.median));
        match self.reference {
            Some(reference) => {
                format!("{measured}, reference {}", self.metric.format(reference))
            }
            None => measured,
        }
    }
}

fn legend(bars: &[&Bar]) -> Markup {
    let runs = bars.iter().map(|bar| bar.runs).max().unwrap_or(0);
    let reference = bars.iter().any(|bar| bar.reference.is_some());
    html! {
        @match runs {
            0 | 1 => { "Solid bar: one run." }
            n => { "Solid bar: median of " (n) " runs; whisker: minimum to maximum." }
        }
        @if reference { " Dashed bar: reference value." }
    }
}

fn draw_group(group: &Group, scale: f64) -> Markup {
    let descriptions: Vec<String> = group.bars.iter().map(Bar::describe).collect();
    html! {
        div.group {
            @if !group.name.is_empty() { p.group-name { (group.name) } }
            div role="img" aria-label=(descriptions.join("; ")) {
                @for bar in &group.bars {
                    svg width="100%" height=(bar.height_px()) { (draw_bar(bar, scale)) }
                }
            }
        }
    }
}

fn draw_bar(bar: &Bar, scale: f64) -> Markup {
    let at = |value: f64| format!("{:.2}%", value.max(0.0) * scale);
    let whisker = bar.summary.min < bar.summary.max;
    html! {
        text.name x="0" y="13" { (bar.name) }
        rect.measured.(bar.fill) x="0" y="19" width=(at(bar.summary.median)) height="17" {}
        @if whisker {
            line.whisker x1=(at(bar.summary.min)) x2=(at(bar.summary.max)) y1="27.5" y2="27.5" {}
            @for end in [bar.summary.min, bar.summary.max] {
                line.whisker x1=(at(end)) x2=(at(end)) y1="23" y2="32" {}
            }
        }
        text.figure x=(at(bar.summary.max)) dx="8" y="32" { (bar.metric.format(bar.summary.median)) }
        @if let Some(reference) = bar.reference {
            rect.reference x="0.5" y="40" width=(at(reference)) height="12" {}
            text.small x=(at(reference)) dx="8" y="50" { "reference " (bar.metric.format(reference)) }
        }
    }
}
