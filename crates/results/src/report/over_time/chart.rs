// SPDX-License-Identifier: MIT OR Apache-2.0
//! The charts that `chart.js` draws: their place on the page, and what their data block holds.

use crate::{result::Event, view::Limit};
use longhaul_report::{figure, metric::Metric};
use maud::{Markup, html};
use serde::Serialize;

/// One chart over time. The lines share `x`; a missing point is null.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Chart {
    /// The finding.
    pub(crate) title: String,
    /// What is drawn.
    pub(crate) caption: String,
    /// `bit/s`, `B` or `s`: base units, prefixes are the page's work.
    pub(crate) unit: &'static str,
    /// Spans the page instead of half of it.
    pub(crate) wide: bool,
    /// Logarithmic y axis.
    pub(crate) log: bool,
    /// What is below zero is a quantity too, drawn downwards.
    pub(crate) mirrored: bool,
    /// Fixed range of y, so that charts that are compared share it.
    pub(crate) range: Option<[f64; 2]>,
    /// Seconds, ascending.
    pub(crate) x: Vec<f64>,
    pub(crate) lines: Vec<Line>,
    /// Thin labelled lines across the chart.
    pub(crate) limits: Vec<Limit>,
    /// Labelled vertical rules.
    pub(crate) events: Vec<Event>,
}

/// One line, with a band from `low` to `high` unless they are empty.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Line {
    pub(crate) label: String,
    /// Custom property of `longhaul.css` that holds the colour.
    pub(crate) colour: &'static str,
    /// Lengths of dash and gap in pixels; empty for a solid line.
    pub(crate) dash: &'static [u8],
    /// Many points: thin, and without its name in the chart.
    pub(crate) thin: bool,
    pub(crate) values: Vec<Option<f64>>,
    pub(crate) low: Vec<Option<f64>>,
    pub(crate) high: Vec<Option<f64>>,
}

/// Colour and dash of the nth line: told apart without colour too.
pub(crate) fn line_style(n: usize) -> (&'static str, &'static [u8]) {
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
#[derive(Debug, Default, Serialize)]
pub(crate) struct Charts(Vec<Chart>);

impl Charts {
    /// The next place; `chart.js` finds it by its id.
    pub(crate) fn place(&mut self, chart: Chart) -> Markup {
        let place = place(self.0.len(), &chart);
        self.0.push(chart);
        place
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How to use such a chart, once for the page.
pub(crate) fn help() -> Markup {
    html! {
        (figure::help(""))
        noscript { p { "These charts need JavaScript; the same figures are in result.json." } }
    }
}

/// "At 30 s: delay 19 → 40 ms; at 90 s: delay 40 → 19 ms.", of what lies within the chart.
fn told(chart: &Chart) -> Option<String> {
    let span = *chart.x.first()?..=*chart.x.last()?;
    let within = chart.events.iter();
    let within = within.filter(|event| span.contains(&event.at_s));
    let said = |event: &Event| {
        let at = Metric::of("x_s").print(event.at_s);
        format!("at {at}: {}", event.label)
    };
    let all: Vec<String> = within.map(said).collect();
    (!all.is_empty()).then(|| format!("A{}.", &all.join("; ")[1..]))
}

fn place(n: usize, chart: &Chart) -> Markup {
    let events = told(chart).map_or(String::new(), |events| format!(" {events}"));
    let note = chart.caption.clone() + &events;
    html! {
        figure.chart.wide[chart.wide] id={ "chart-" (n) } {
            (figure::over_time(&chart.title, &note, &chart.title))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_of_what_is_drawn() {
        let loss = |at_s| Event {
            at_s,
            label: "loss".to_owned(),
        };
        let mut chart = Chart {
            x: vec![5.0, 60.0],
            events: [1.0, 29.85, 60.0].map(loss).to_vec(),
            ..Chart::default()
        };
        assert_eq!(told(&chart).unwrap(), "At 29.9 s: loss; at 60 s: loss.");
        chart.events.truncate(1);
        assert_eq!(told(&chart), None);
    }
}
