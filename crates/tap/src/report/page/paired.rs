// SPDX-License-Identifier: MIT OR Apache-2.0
//! Section with the charts of two directions. Charts of the same kind are one above the other and share their
//! axes (`tap.js`).

use super::{
    charts::{self, Chart},
    direction::{DirectionView, histograms},
    histogram,
    timeline::{self, Axis},
};
use longhaul_report::chart::{self, Charts};
use maud::{Markup, html};

const SIDES: [&str; 2] = ["A", "B"];

/// Returns the section of both; their chart data have the numbers 0 and 1 on the page. Adds its histograms to `charts`.
pub(crate) fn section(pair: [DirectionView<'_>; 2], charts: &mut Charts) -> Markup {
    let length_ns = pair.iter().map(|view| view.axis().length_ns).max();
    let axis = |view: &DirectionView<'_>| Axis {
        length_ns: length_ns.unwrap_or(0),
        ..view.axis()
    };
    html! {
        section.direction id="pair" data-compare="" {
            h2 { "Over time, each from its start" }
            (chart::help("All charts over time share one axis, and both charts of a kind share their y axis. ", "series files have the same figures"))
            p.view { output.in-view {} }
            @for (side, view) in SIDES.iter().zip(&pair) {
                p.compared { (side) ": " (view.name()) }
                (timeline::timelines(view.direction(), axis(view)))
            }
            div.charts {
                @for kind in kinds(&pair) { @for (n, view) in pair.iter().enumerate() {
                    @for chart in charts::charts(view.direction(), view.series) {
                        @if chart.kind == kind { (charts::placeholder(&with_side(chart, SIDES[n]), n, SIDES[n])) }
                    }
                } }
                @for which in 0..3 { @for (n, view) in pair.iter().enumerate() {
                    (histogram::figure(&histogram_with_side(view, which, SIDES[n]), charts))
                } }
            }
        }
    }
}

/// Returns the kinds of charts that at least one of both has, in order.
fn kinds(pair: &[DirectionView<'_>; 2]) -> Vec<&'static str> {
    let of = |view: &DirectionView<'_>| charts::charts(view.direction(), view.series);
    let mut kinds: Vec<&str> = of(&pair[0]).iter().map(|chart| chart.kind).collect();
    for chart in of(&pair[1]) {
        if !kinds.contains(&chart.kind) {
            kinds.push(chart.kind);
        }
    }
    kinds
}

/// Makes a chart as wide as the page and adds its side to the title.
fn with_side(chart: Chart, side: &str) -> Chart {
    Chart {
        title: format!("{side}: {}", chart.title),
        wide: true,
        ..chart
    }
}

fn histogram_with_side<'a>(
    view: &DirectionView<'a>,
    which: usize,
    side: &str,
) -> histogram::Histogram<'a> {
    let [ack_diff, gaps, bursts] = histograms(view.direction());
    let histogram = match which {
        0 => ack_diff,
        1 => gaps,
        _ => bursts,
    };
    histogram::Histogram {
        title: format!("{side}: {}", histogram.title),
        ..histogram
    }
}
