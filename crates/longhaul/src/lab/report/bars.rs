// SPDX-License-Identifier: MIT OR Apache-2.0
//! Horizontal bars of the main metric, one cell below the other, the paper's figure dashed beside
//! ours. Positions are percentages, so that the text keeps its size on a phone.

use crate::lab::{
    metric::Metric,
    result::{Cell, LabResult},
    summary::Summary,
};
use maud::{Markup, html};

/// Share of the width that the longest bar takes; the rest is for its figure.
const LONGEST_PERCENT: f64 = 62.0;
const ROW_PX: u32 = 62;

/// The figure, or nothing if no cell has the main metric.
pub(super) fn section(result: &LabResult) -> Markup {
    let Some(name) = result.main_metric() else {
        return html! {};
    };
    let bars: Vec<Bar> = result
        .cells
        .iter()
        .filter_map(|cell| Bar::of(cell, name))
        .collect();
    let longest = bars.iter().map(Bar::reach).fold(0.0, f64::max);
    let scale = LONGEST_PERCENT / longest.max(f64::MIN_POSITIVE);
    let metric = Metric::of(name);
    html! {
        @if longest > 0.0 {
            figure.bars {
                figcaption {
                    h2 { (finding(&bars, &metric)) }
                    p { (legend(&bars)) }
                }
                svg width="100%" height=(bars.len() as u32 * ROW_PX) role="img"
                    aria-label=(finding(&bars, &metric)) {
                    @for (row, bar) in bars.iter().enumerate() {
                        svg y=(row as u32 * ROW_PX) width="100%" height=(ROW_PX) {
                            (draw(bar, &metric, scale))
                        }
                    }
                }
            }
        }
    }
}

/// What one row shows.
struct Bar {
    name: String,
    runs: usize,
    ours: Summary,
    paper: Option<f64>,
}

impl Bar {
    fn of(cell: &Cell, metric: &str) -> Option<Self> {
        Some(Self {
            name: cell.name(),
            runs: cell.runs.len(),
            ours: *cell.metrics.get(metric)?,
            paper: cell.paper_figure(metric),
        })
    }

    fn reach(&self) -> f64 {
        self.ours.max.max(self.paper.unwrap_or(0.0))
    }
}

/// The chart's title: the figures themselves while they fit a line.
fn finding(bars: &[Bar], metric: &Metric) -> String {
    let said = |bar: &Bar| format!("{} {}", metric.print(bar.ours.median), bar.name);
    match bars.len() {
        0..=3 => {
            let figures: Vec<String> = bars.iter().map(said).collect();
            format!("{}: {}", metric.label, figures.join(", "))
        }
        n => format!("{} of {n} cells", metric.label),
    }
}

fn legend(bars: &[Bar]) -> Markup {
    let runs = bars.iter().map(|bar| bar.runs).max().unwrap_or(0);
    html! {
        @match runs {
            0 | 1 => { "Solid: one run." }
            n => { "Solid: median of " (n) " runs, with the smallest and the largest." }
        }
        @if bars.iter().any(|bar| bar.paper.is_some()) { " Dashed: the paper." }
    }
}

fn draw(bar: &Bar, metric: &Metric, scale: f64) -> Markup {
    let at = |value: f64| format!("{:.2}%", value * scale);
    let whisker = bar.ours.min < bar.ours.max;
    html! {
        text.name x="0" y="13" { (bar.name) }
        rect.ours x="0" y="19" width=(at(bar.ours.median)) height="17" {}
        @if whisker {
            line.whisker x1=(at(bar.ours.min)) x2=(at(bar.ours.max)) y1="27.5" y2="27.5" {}
            @for end in [bar.ours.min, bar.ours.max] {
                line.whisker x1=(at(end)) x2=(at(end)) y1="23" y2="32" {}
            }
        }
        text.figure x=(at(bar.ours.max)) dx="8" y="32" { (metric.print(bar.ours.median)) }
        @if let Some(paper) = bar.paper {
            rect.paper x="0.5" y="40" width=(at(paper)) height="12" {}
            text.small x=(at(paper)) dx="8" y="50" { "paper " (metric.print(paper)) }
        }
    }
}
