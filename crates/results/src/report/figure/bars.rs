// SPDX-License-Identifier: MIT OR Apache-2.0
//! Horizontal bars, grouped if a figure has several rows; the paper's figure is dashed below ours. Positions are
//! percentages, so that the text keeps its size on a phone.

use super::grid::{Grid, grids, heading, names};
use crate::{
    result::{Cell, LabResult},
    summary::Summary,
    view::Figure,
};
use longhaul_report::metric::Metric;
use maud::{Markup, html};

/// Length of the longest bar, percent of the width; the rest is for its figure.
const LONGEST_PERCENT: f64 = 62.0;
/// Height of a bar with its name, and of the paper's bar below it, pixels.
const ROW_PX: u32 = 44;
const PAPER_PX: u32 = 18;
/// Number of fills that can be distinguished.
const FILL_COUNT: usize = 4;

pub(super) fn figure(result: &LabResult, figure: &Figure) -> Markup {
    let panels: Vec<(String, Vec<Group>)> = grids(result, &figure.panels)
        .iter()
        .map(|grid| (grid.name(), groups(result, figure, grid)))
        .collect();
    let bars = || {
        panels
            .iter()
            .flat_map(|(_, groups)| groups)
            .flat_map(|group| &group.bars)
    };
    let scale = LONGEST_PERCENT / bars().map(Bar::max_value).fold(f64::MIN_POSITIVE, f64::max);
    html! {
        figure.bars {
            (heading(figure))
            p.note { (legend(&bars().collect::<Vec<_>>())) }
            @for (name, groups) in &panels {
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

/// Bar: the figure of one cell and metric.
struct Bar {
    name: String,
    fill: String,
    runs: usize,
    metric: Metric,
    ours: Summary,
    paper: Option<f64>,
}

fn groups(result: &LabResult, figure: &Figure, grid: &Grid<'_>) -> Vec<Group> {
    let rows = names(grid.rows());
    let group = |(column, name): (usize, String)| {
        let single = rows.len() * figure.metrics.len() == 1;
        let positions =
            (0..rows.len()).flat_map(|row| figure.metrics.iter().map(move |metric| (row, metric)));
        let bars = positions.enumerate().filter_map(|(n, (row, metric))| {
            let cell = grid.at(row, column)?;
            let bar = bar(cell, metric, figure.paper)?;
            let name = match single {
                true => name.clone(),
                false => row_label(&rows[row], metric, figure.metrics.len() > 1),
            };
            let fill = match is_baseline(result, cell) && single {
                true => "baseline".to_owned(),
                false => format!("fill-{}", n % FILL_COUNT),
            };
            Some(Bar { name, fill, ..bar })
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

/// Returns whether the cell is the baseline of the answer, which has a neutral colour.
fn is_baseline(result: &LabResult, cell: &Cell) -> bool {
    let baseline = result
        .answer
        .as_ref()
        .and_then(|answer| result.cells.get(answer.baseline?));
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

fn bar(cell: &Cell, metric: &str, paper: bool) -> Option<Bar> {
    Some(Bar {
        name: String::new(),
        fill: String::new(),
        runs: cell.successful_runs().count(),
        ours: *cell.metrics.get(metric)?,
        paper: cell.paper_figure(metric).filter(|_| paper),
        metric: Metric::of(metric),
    })
}

impl Bar {
    fn height_px(&self) -> u32 {
        ROW_PX + if self.paper.is_some() { PAPER_PX } else { 0 }
    }

    fn max_value(&self) -> f64 {
        self.ours.max.max(self.paper.unwrap_or(0.0))
    }

    /// Describes the bar: "two relays: 2.4 Gbit/s, the paper 2.35 Gbit/s".
    fn describe(&self) -> String {
        let ours = format!("{}: {}", self.name, self.metric.format(self.ours.median));
        match self.paper {
            Some(paper) => format!("{ours}, the paper {}", self.metric.format(paper)),
            None => ours,
        }
    }
}

fn legend(bars: &[&Bar]) -> Markup {
    let runs = bars.iter().map(|bar| bar.runs).max().unwrap_or(0);
    let paper = bars.iter().any(|bar| bar.paper.is_some());
    html! {
        @match runs {
            0 | 1 => { "Solid: one run." }
            n => { "Solid: median of " (n) " runs, with the smallest and the largest." }
        }
        @if paper { " Dashed: the paper." }
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
    let whisker = bar.ours.min < bar.ours.max;
    html! {
        text.name x="0" y="13" { (bar.name) }
        rect.ours.(bar.fill) x="0" y="19" width=(at(bar.ours.median)) height="17" {}
        @if whisker {
            line.whisker x1=(at(bar.ours.min)) x2=(at(bar.ours.max)) y1="27.5" y2="27.5" {}
            @for end in [bar.ours.min, bar.ours.max] {
                line.whisker x1=(at(end)) x2=(at(end)) y1="23" y2="32" {}
            }
        }
        text.figure x=(at(bar.ours.max)) dx="8" y="32" { (bar.metric.format(bar.ours.median)) }
        @if let Some(paper) = bar.paper {
            rect.paper x="0.5" y="40" width=(at(paper)) height="12" {}
            text.small x=(at(paper)) dx="8" y="50" { "paper " (bar.metric.format(paper)) }
        }
    }
}
