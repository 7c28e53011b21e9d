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
/// Cells whose figures the title names one by one.
const SAID_MAX: usize = 3;
/// Height of a row that has no figure of the paper.
const SHORT_ROW_PX: u32 = 44;

/// The figure, or nothing if no cell has the main metric.
pub(super) fn section(result: &LabResult) -> Markup {
    let Some(name) = result.main_metric() else {
        return html! {};
    };
    let baseline = result.answer.as_ref().and_then(|answer| answer.baseline);
    let bars: Vec<Bar> = result
        .cells
        .iter()
        .enumerate()
        .filter_map(|(n, cell)| Bar::of(cell, name, baseline == Some(n)))
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
                div role="img" aria-label=(finding(&bars, &metric)) {
                    @for bar in &bars {
                        svg width="100%" height=(bar.height_px()) { (draw(bar, &metric, scale)) }
                    }
                }
            }
        }
    }
}

/// What one row shows.
struct Bar {
    name: String,
    /// What the answer compares with; drawn quietly.
    baseline: bool,
    runs: usize,
    ours: Summary,
    paper: Option<f64>,
}

impl Bar {
    fn of(cell: &Cell, metric: &str, baseline: bool) -> Option<Self> {
        Some(Self {
            name: cell.name(),
            baseline,
            runs: cell.runs.iter().filter(|run| run.failed.is_none()).count(),
            ours: *cell.metrics.get(metric)?,
            paper: cell.paper_figure(metric),
        })
    }

    fn height_px(&self) -> u32 {
        if self.paper.is_some() {
            ROW_PX
        } else {
            SHORT_ROW_PX
        }
    }

    fn reach(&self) -> f64 {
        self.ours.max.max(self.paper.unwrap_or(0.0))
    }
}

/// The chart's title: the figures themselves while they fit a line, else the least and the most.
fn finding(bars: &[Bar], metric: &Metric) -> String {
    let said = |bar: &&Bar| format!("{} {}", metric.print(bar.ours.median), bar.name);
    let mut bars: Vec<&Bar> = bars.iter().collect();
    let joint = if bars.len() > SAID_MAX { " to " } else { ", " };
    if bars.len() > SAID_MAX {
        bars.sort_by(|a, b| a.ours.median.total_cmp(&b.ours.median));
        bars.drain(1..bars.len() - 1);
    }
    let figures: Vec<String> = bars.iter().map(said).collect();
    format!("{}: {}", metric.label, figures.join(joint))
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
        rect.ours.baseline[bar.baseline] x="0" y="19" width=(at(bar.ours.median)) height="17" {}
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(medians: &[f64]) -> Vec<Bar> {
        let bar = |median: &f64| {
            let ours = Summary::of([*median]).unwrap();
            Bar {
                name: format!("c{median}"),
                baseline: false,
                runs: 1,
                ours,
                paper: None,
            }
        };
        medians.iter().map(bar).collect()
    }

    #[test]
    fn the_title_names_all_figures_or_the_least_and_the_most() {
        let metric = Metric::of("flows");
        assert_eq!(finding(&bars(&[2.0, 1.0]), &metric), "Flows: 2 c2, 1 c1");
        assert_eq!(
            finding(&bars(&[2.0, 1.0, 4.0, 3.0]), &metric),
            "Flows: 1 c1 to 4 c4"
        );
    }
}
