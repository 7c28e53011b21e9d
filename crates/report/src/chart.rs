// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts over a number: their elements on the page, and the data from which `chart.js` draws them with uPlot.

use crate::unit::Unit;
use maud::{Markup, html};
use serde::{Deserialize, Serialize, Serializer};

/// Chart. A missing value of a line is null.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Chart {
    /// Title: the finding.
    pub title: String,
    /// Caption: the quantities drawn.
    #[serde(skip)]
    pub caption: String,
    /// Heading and content of the table below; without it, `chart.js` lists the data.
    #[serde(skip)]
    pub table: Option<(&'static str, Markup)>,
    /// Horizontal axis; time in seconds if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x_axis: Option<Axis>,
    /// Name of the vertical axis; empty if the title says it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub y_name: String,
    /// Unit of the values: `bit/s`, `B` or `s`. The page adds SI prefixes.
    pub unit: &'static str,
    /// True if the chart is as wide as the page, false if half as wide.
    pub wide: bool,
    /// True for a logarithmic vertical axis.
    #[serde(skip_serializing_if = "is_false")]
    pub log: bool,
    /// True if negative values are a second metric, drawn downwards.
    #[serde(skip_serializing_if = "is_false")]
    pub mirrored: bool,
    /// True if lines have their names at their ends, right of the chart, and not above them.
    #[serde(skip_serializing_if = "is_false")]
    pub names_at_ends: bool,
    /// Value above which values do not extend the vertical axis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<f64>,
    /// Name of the vertical axis that this chart shares with others of the page, and of the horizontal axis unless that
    /// is time. Empty: it shares none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub shared_axes: String,
    /// Lines, in the order of the legend.
    pub lines: Vec<Line>,
    /// Labelled reference lines across the chart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reference_lines: Vec<ReferenceLine>,
    /// Events: labelled vertical lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
}

/// Horizontal axis of a chart that is not over time.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Axis {
    /// Name of the axis.
    pub name: String,
    /// Unit, as of the values.
    pub unit: &'static str,
    /// True for a logarithmic axis.
    pub log: bool,
    /// Positions with their labels; round values if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ticks: Vec<(f64, String)>,
}

/// Line of a chart.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Line {
    /// Name of the line.
    pub label: String,
    /// Colour and dash pattern.
    #[serde(flatten)]
    pub style: LineStyle,
    /// Shape of the marks of its points; none if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<usize>,
    /// True for a thin line without its name in the chart.
    #[serde(skip_serializing_if = "is_false")]
    pub thin: bool,
    /// True for a step function, each value of which holds until the next.
    #[serde(skip_serializing_if = "is_false")]
    pub stepped: bool,
    /// True if the area below is filled.
    #[serde(skip_serializing_if = "is_false")]
    pub filled: bool,
    /// Horizontal positions of the values, ascending.
    pub x: Positions,
    /// Values.
    #[serde(serialize_with = "rounded")]
    pub values: Vec<Option<f64>>,
    /// Lower ends of the values' ranges: a band, or a whisker at each mark. Empty if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "rounded")]
    pub low: Vec<Option<f64>>,
    /// Upper ends of the values' ranges.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "rounded")]
    pub high: Vec<Option<f64>>,
}

/// Horizontal positions.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Positions {
    /// Bins of equal width.
    Bins {
        /// Start of the first bin.
        from: f64,
        /// Width of a bin.
        step: f64,
    },
    /// Positions one by one.
    At(#[serde(serialize_with = "rounded_positions")] Vec<f64>),
}

impl Default for Positions {
    fn default() -> Self {
        Self::At(Vec::new())
    }
}

/// Colour and dash pattern of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LineStyle {
    /// Name of the CSS custom property in `longhaul.css` that has the colour.
    pub colour: &'static str,
    /// Lengths of dash and gap in pixels; empty for a solid line.
    #[serde(skip_serializing_if = "<[u8]>::is_empty")]
    pub dash: &'static [u8],
}

impl LineStyle {
    /// Style of reference values.
    pub const REFERENCE: Self = Self {
        colour: "--reference",
        dash: &[4, 3],
    };
    /// Style of the values of a formula or of the simulator.
    pub const MODEL: Self = Self {
        colour: "--quiet",
        dash: &[10, 4],
    };

    /// Returns the style of measured line `n`. Twenty lines differ; the first four in colour and dash pattern.
    pub fn nth(n: usize) -> Self {
        const COLOURS: [&str; 5] = ["--first", "--second", "--third", "--fourth", "--quiet"];
        const DASHES: [&[u8]; 4] = [&[], &[8, 3], &[2, 3], &[8, 3, 2, 3]];
        Self {
            colour: COLOURS[n % COLOURS.len()],
            dash: DASHES[n % DASHES.len()],
        }
    }

    /// Returns a solid line's style.
    pub fn solid(colour: &'static str) -> Self {
        Self { colour, dash: &[] }
    }
}

/// Labelled reference line across a chart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReferenceLine {
    /// Value.
    pub value: f64,
    /// Label.
    pub label: String,
}

impl ReferenceLine {
    /// Returns the line of the bottleneck's rate, bit/s.
    pub fn bottleneck(rate_bps: f64) -> Self {
        Self {
            value: rate_bps,
            label: format!("bottleneck {}", Unit::BitsPerSecond.format(rate_bps)),
        }
    }
}

/// Event that charts over time mark with a vertical line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Time since the start of the run, seconds.
    pub at_s: f64,
    /// Label for the chart.
    pub label: String,
}

/// All charts of a page. Serialized, they are the page's data block `charts`.
#[derive(Debug, Default, Serialize)]
pub struct Charts(Vec<Chart>);

impl Charts {
    /// Adds a chart. Returns its element, which `chart.js` finds by the element's id.
    pub fn add(&mut self, chart: Chart) -> Markup {
        let element = chart.element(self.0.len());
        self.0.push(chart);
        element
    }

    /// Returns whether the page has no chart.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Chart {
    /// Returns whether a line has a value.
    pub fn has_values(&self) -> bool {
        self.lines
            .iter()
            .any(|line| line.values.iter().any(Option::is_some))
    }

    /// Returns the element of chart `n`: an empty figure with title and caption.
    fn element(&self, n: usize) -> Markup {
        let note = format!("{}{}", self.caption, self.describe_events());
        html! {
            figure.chart.wide[self.wide] id={ "chart-" (n) } {
                (content(&self.title, &note, &self.title, self.table.as_ref()))
            }
        }
    }

    /// Describes the events in the chart: " At 30 s: delay 19 → 40 ms; at 90 s: delay 40 → 19 ms."
    fn describe_events(&self) -> String {
        let ends = self.lines.iter().filter_map(Line::ends);
        let ends = ends.reduce(|(from, to), (low, high)| (from.min(low), to.max(high)));
        let inside =
            |event: &&Event| ends.is_some_and(|(from, to)| (from..=to).contains(&event.at_s));
        let describe =
            |event: &Event| format!("at {}: {}", Unit::Seconds.format(event.at_s), event.label);
        let all: Vec<String> = self.events.iter().filter(inside).map(describe).collect();
        match all.join("; ").strip_prefix('a') {
            Some(rest) => format!(" A{rest}."),
            None => String::new(),
        }
    }
}

impl Line {
    /// Returns the first and the last position.
    fn ends(&self) -> Option<(f64, f64)> {
        match &self.x {
            Positions::Bins { from, step } => {
                let last = self.values.len().checked_sub(1)?;
                Some((*from, from + last as f64 * step))
            }
            Positions::At(all) => Some((*all.first()?, *all.last()?)),
        }
    }
}

/// Returns the content of a chart's `figure` element. `chart.js` draws into it and lists its data, unless there is a
/// table. `label` is the chart's name for screen readers.
pub fn content(
    title: &str,
    note: &str,
    label: &str,
    table: Option<&(&'static str, Markup)>,
) -> Markup {
    html! {
        (caption(title, note))
        div.plot tabindex="0" role="group" aria-label=(label) {}
        output.readout {}
        @match table {
            Some((heading, table)) => { details { summary { (heading) } (table) } }
            None => { details { summary { "Data of this chart" } } }
        }
    }
}

/// Returns the caption of a figure: its title (the finding) and a note.
pub fn caption(title: &str, note: &str) -> Markup {
    html! { figcaption { h3 { (title) } @if !note.is_empty() { p { (note) } } } }
}

/// Returns the instructions for charts, after an introductory `sentence`. A page shows them once. `data` says where the
/// data are for a reader without JavaScript.
pub fn help(sentence: &str, data: &str) -> Markup {
    html! {
        p.note {
            (sentence) "Drag to zoom, double-click to reset. With the keyboard: arrows move the cursor, "
            kbd { "+" } " and " kbd { "−" } " zoom, " kbd { "Esc" } " resets."
        }
        noscript { p { "These charts need JavaScript; " (data) "." } }
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !*value
}

/// Rounds to six significant digits, which no screen shows more of.
fn round(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

fn rounded<S: Serializer>(values: &[Option<f64>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|value| value.map(round)))
}

fn rounded_positions<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().copied().map(round))
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
        let line = Line {
            x: Positions::At(vec![5.0, 60.0]),
            ..Line::default()
        };
        let mut chart = Chart {
            lines: vec![Line::default(), line],
            events: [1.0, 29.85, 60.0].map(loss).to_vec(),
            ..Chart::default()
        };
        assert_eq!(chart.describe_events(), " At 29.9 s: loss; at 60 s: loss.");
        chart.events.truncate(1);
        assert_eq!(chart.describe_events(), "");
    }

    #[test]
    fn lines_differ_in_colour_or_dash_pattern() {
        for (a, b) in (0..20).flat_map(|a| (0..a).map(move |b| (a, b))) {
            assert_ne!(LineStyle::nth(a), LineStyle::nth(b), "{a} and {b}");
        }
    }

    #[test]
    fn data_have_six_digits() {
        let line = Line {
            values: vec![Some(1.0 / 3.0), None, Some(1e9 / 7.0), Some(0.0)],
            ..Line::default()
        };
        let json = serde_json::to_value(&line).unwrap();
        assert_eq!(
            json["values"],
            serde_json::json!([0.333333, null, 142857000.0, 0.0])
        );
    }
}
