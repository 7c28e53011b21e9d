// SPDX-License-Identifier: MIT OR Apache-2.0
//! The charts that `chart.js` draws: their place on the page, and what their data block holds.

use super::events;
use crate::{result::Event, view::Limit};
use maud::{Markup, html};
use serde::Serialize;

/// One chart over time. The lines share `x`; a missing point is null.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Chart {
    /// The finding.
    pub(super) title: String,
    /// What is drawn.
    pub(super) caption: String,
    /// `bit/s`, `B` or `s`: base units, prefixes are the page's work.
    pub(super) unit: &'static str,
    /// Spans the page instead of half of it.
    pub(super) wide: bool,
    /// Logarithmic y axis.
    pub(super) log: bool,
    /// What is below zero is a quantity too, drawn downwards.
    pub(super) mirrored: bool,
    /// Fixed range of y, so that charts that are compared share it.
    pub(super) range: Option<[f64; 2]>,
    /// Seconds, ascending.
    pub(super) x: Vec<f64>,
    pub(super) lines: Vec<Line>,
    /// Thin labelled lines across the chart.
    pub(super) limits: Vec<Limit>,
    /// Labelled vertical rules.
    pub(super) events: Vec<Event>,
}

/// One line, with a band from `low` to `high` unless they are empty.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Line {
    pub(super) label: String,
    /// Custom property of `longhaul.css` that holds the colour.
    pub(super) colour: &'static str,
    /// Lengths of dash and gap in pixels; empty for a solid line.
    pub(super) dash: &'static [u8],
    /// Many points: thin, and without its name in the chart.
    pub(super) thin: bool,
    pub(super) values: Vec<Option<f64>>,
    pub(super) low: Vec<Option<f64>>,
    pub(super) high: Vec<Option<f64>>,
}

/// Colour and dash of the nth line: told apart without colour too.
pub(super) fn line_style(n: usize) -> (&'static str, &'static [u8]) {
    const STYLES: [(&str, &[u8]); 5] = [
        ("--ours", &[]),
        ("--second", &[8, 3]),
        ("--third", &[2, 3]),
        ("--fourth", &[8, 3, 2, 3]),
        ("--quiet", &[5, 4]),
    ];
    STYLES[n % STYLES.len()]
}

/// Charts that have found their place on the page, for its data block.
#[derive(Debug, Default)]
pub(super) struct Charts(Vec<Chart>);

impl Charts {
    /// The next place; `chart.js` finds it by its id.
    pub(super) fn place(&mut self, chart: Chart) -> Markup {
        let place = place(self.0.len(), &chart);
        self.0.push(chart);
        place
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the data block holds.
    pub(super) fn all(&self) -> &[Chart] {
        &self.0
    }
}

/// How to use such a chart, once for the page.
pub(super) fn help() -> Markup {
    html! {
        p.note {
            "Drag to zoom, double-click to reset. With the keyboard: arrows move the cursor, "
            kbd { "+" } " and " kbd { "−" } " zoom, " kbd { "Esc" } " resets."
        }
        noscript { p { "These charts need JavaScript; the same figures are in result.json." } }
    }
}

fn place(n: usize, chart: &Chart) -> Markup {
    html! {
        figure.chart.wide[chart.wide] id={ "chart-" (n) } {
            figcaption {
                h3 { (chart.title) }
                p { (chart.caption) @if let Some(events) = events::told(chart) { " " (events) } }
            }
            div.plot tabindex="0" role="group" aria-label=(chart.title) {}
            output.readout {}
            details { summary { "Data of this chart" } }
        }
    }
}
