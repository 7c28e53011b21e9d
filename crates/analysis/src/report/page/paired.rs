// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two directions' charts in one section: each of the one above the same of the other, on axes that
//! both share (`tap.js`).

use super::{
    charts::{self, Chart},
    direction::{Shown, histograms},
    histogram,
    strip::{self, Axis},
};
use longhaul_report::figure::help;
use maud::{Markup, html};

const SIDES: [&str; 2] = ["A", "B"];

/// The section of both; their courses have the numbers 0 and 1 on the page.
pub(crate) fn section(pair: [Shown<'_>; 2]) -> Markup {
    let length_ns = pair.iter().map(|shown| shown.axis().length_ns).max();
    let axis = |shown: &Shown<'_>| Axis {
        length_ns: length_ns.unwrap_or(0),
        ..shown.axis()
    };
    html! {
        section.direction id="pair" data-compare="" {
            h2 { "Over time, each from its beginning" }
            (help("All charts share one time axis, and both of a kind their height. "))
            p.view { output.in-view {} }
            @for (side, shown) in SIDES.iter().zip(&pair) {
                p.compared { (side) ": " (shown.name()) }
                (strip::strips(shown.direction(), axis(shown)))
            }
            div.charts {
                @for kind in kinds(&pair) { @for (n, shown) in pair.iter().enumerate() {
                    @for chart in charts::charts(shown.direction(), shown.course) {
                        @if chart.kind == kind { (charts::place(&sided(chart, SIDES[n]), n, SIDES[n])) }
                    }
                } }
                @for which in 0..3 { @for (n, shown) in pair.iter().enumerate() {
                    (histogram::figure(&named(shown, which, SIDES[n])))
                } }
            }
        }
    }
}

/// Kinds of charts that either has, in order.
fn kinds(pair: &[Shown<'_>; 2]) -> Vec<&'static str> {
    let of = |shown: &Shown<'_>| charts::charts(shown.direction(), shown.course);
    let mut kinds: Vec<&str> = of(&pair[0]).iter().map(|chart| chart.kind).collect();
    for chart in of(&pair[1]) {
        if !kinds.contains(&chart.kind) {
            kinds.push(chart.kind);
        }
    }
    kinds
}

/// As wide as the page, so that one lies above the other.
fn sided(chart: Chart, side: &str) -> Chart {
    Chart {
        title: format!("{side}: {}", chart.title),
        wide: true,
        ..chart
    }
}

fn named<'a>(shown: &Shown<'a>, which: usize, side: &str) -> histogram::Histogram<'a> {
    let [ack_diff, gaps, bursts] = histograms(shown.direction());
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
