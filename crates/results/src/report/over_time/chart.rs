// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts over time: their elements on the page, and the data from which `chart.js` draws them.

use crate::{result::Event, view::ReferenceLine};
use longhaul_report::{figure, metric::Metric};
use maud::{Markup, html};
use serde::Serialize;

/// Chart over time. The lines share `x`; a missing point is null.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Chart {
    /// Title: the finding.
    pub(crate) title: String,
    /// Caption: the metrics drawn.
    pub(crate) caption: String,
    /// Unit of y: `bit/s`, `B` or `s`. The page adds SI prefixes.
    pub(crate) unit: &'static str,
    /// True if the chart is as wide as the page, false if half as wide.
    pub(crate) wide: bool,
    /// True for a logarithmic y axis.
    pub(crate) log: bool,
    /// True if negative values are a second metric, drawn downwards.
    pub(crate) mirrored: bool,
    /// Range of y, if it is fixed: charts that are compared have the same one.
    pub(crate) range: Option<[f64; 2]>,
    /// Times, seconds, ascending.
    pub(crate) x: Vec<f64>,
    pub(crate) lines: Vec<Line>,
    /// Labelled reference lines across the chart.
    pub(crate) reference_lines: Vec<ReferenceLine>,
    /// Events: labelled vertical lines.
    pub(crate) events: Vec<Event>,
}

/// Line of a chart, with a band from `low` to `high` unless these are empty.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Line {
    pub(crate) label: String,
    /// Name of the CSS custom property in `longhaul.css` that has the colour.
    pub(crate) colour: &'static str,
    /// Lengths of dash and gap in pixels; empty for a solid line.
    pub(crate) dash: &'static [u8],
    /// True for a thin line without its name in the chart.
    pub(crate) thin: bool,
    pub(crate) values: Vec<Option<f64>>,
    pub(crate) low: Vec<Option<f64>>,
    pub(crate) high: Vec<Option<f64>>,
}

/// Returns the colour and the dash pattern of line `n`. The first five lines differ in both.
pub(crate) fn line_style(n: usize) -> (&'static str, &'static [u8]) {
    const STYLES: [(&str, &[u8]); 5] = [
        ("--first", &[]),
        ("--second", &[8, 3]),
        ("--third", &[2, 3]),
        ("--fourth", &[8, 3, 2, 3]),
        ("--quiet", &[5, 4]),
    ];
    STYLES[n % STYLES.len()]
}

/// All charts over time of a page. Serialized, they are the page's data block `charts`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Charts(Vec<Chart>);

impl Charts {
    /// Adds a chart. Returns its element, which `chart.js` finds by the element's id.
    pub(crate) fn add(&mut self, chart: Chart) -> Markup {
        let element = chart_element(self.0.len(), &chart);
        self.0.push(chart);
        element
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the instructions for charts. A page shows them once.
pub(crate) fn help() -> Markup {
    html! {
        (figure::chart_help(""))
        noscript { p { "These charts need JavaScript; result.json has the same data." } }
    }
}

/// Describes the events within the chart's time range: "At 30 s: delay 19 → 40 ms; at 90 s: delay 40 → 19 ms."
fn describe_events(chart: &Chart) -> Option<String> {
    let span = *chart.x.first()?..=*chart.x.last()?;
    let events = chart.events.iter();
    let events = events.filter(|event| span.contains(&event.at_s));
    let describe = |event: &Event| {
        let at = Metric::of("x_s").format(event.at_s);
        format!("at {at}: {}", event.label)
    };
    let all: Vec<String> = events.map(describe).collect();
    // The first "at" becomes "At".
    (!all.is_empty()).then(|| format!("A{}.", &all.join("; ")[1..]))
}

/// Returns the element of chart `n`: an empty figure with title and caption.
fn chart_element(n: usize, chart: &Chart) -> Markup {
    let events = describe_events(chart).map_or(String::new(), |events| format!(" {events}"));
    let note = chart.caption.clone() + &events;
    html! {
        figure.chart.wide[chart.wide] id={ "chart-" (n) } {
            (figure::time_chart(&chart.title, &note, &chart.title))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_only_events_within_the_chart() {
        let loss = |at_s| Event {
            at_s,
            label: "loss".to_owned(),
        };
        let mut chart = Chart {
            x: vec![5.0, 60.0],
            events: [1.0, 29.85, 60.0].map(loss).to_vec(),
            ..Chart::default()
        };
        assert_eq!(
            describe_events(&chart).unwrap(),
            "At 29.9 s: loss; at 60 s: loss."
        );
        chart.events.truncate(1);
        assert_eq!(describe_events(&chart), None);
    }
}
