// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables and figures as `result.json` holds them: what the report shall show, decided and checked
//! when the scenario was read (`lab/src/verdict/view.rs`), with the cells that go where. A page only draws.
//!
//! Every number that is shown comes from `cells`: a table names metrics and says by index which cell
//! stands where. So a table never disagrees with the raw result, and costs next to nothing.

use super::setting::{Vary, plain, setting};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One `[[table]]`: cells in rows and columns, in each place every metric of `metrics`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Names it in the scenario; letters, digits, `-`, `_`: fit for an anchor.
    pub name: String,
    /// What it shows, with the figures that the scenario asked for put in.
    pub title: String,
    /// What a reader should know beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Metrics of each place, in this order; at least one.
    pub metrics: Vec<String>,
    /// Whether the paper's figures stand beside ours (`Cell::paper`, and `Cell::paper_suspect`).
    #[serde(default)]
    pub paper: bool,
    /// One below the other, as many as the parameters of `panels` have values; one without.
    pub panels: Vec<Panel>,
}

/// One `[[figure]]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// As of a table.
    pub name: String,
    /// The kind of the figure.
    pub kind: FigureKind,
    /// The finding, with the figures that the scenario asked for put in.
    pub title: String,
    /// What is drawn, and what a reader should know beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Metrics that are drawn; empty if courses over time are. A matrix has one or two: the second
    /// is that of the column's side. Bars and series have one or more: a line or colour each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<String>,
    /// What is drawn over time (series) or as a distribution over time (cdf), instead of metrics: these
    /// courses of each cell's runs ([`Course`]), by their `of` and `flow`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub courses: Vec<CourseName>,
    /// Seconds of the run to draw, if not all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span_s: Option<[f64; 2]>,
    /// Logarithmic axes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log_x: bool,
    /// Whether the vertical axis is logarithmic.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log_y: bool,
    /// Whether the paper's figures are drawn beside ours.
    #[serde(default)]
    pub paper: bool,
    /// Thin labelled lines across the chart, in the unit of what is drawn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// Small multiples on one scale; one if the scenario asks for none.
    pub panels: Vec<Panel>,
}

/// What a figure looks like, and what the rows and columns of its panels are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FigureKind {
    /// Lines: a row each, and in it a line for each metric or course. Over time if there are `courses`
    /// (then there is one column), else over the columns' parameter.
    #[default]
    Series,
    /// Bars in groups: a group for each column, a colour for each row.
    Bars,
    /// A place for each row and column, coloured by the one metric.
    Heatmap,
    /// As a heat map, of two that meet: what the row's side got (`metrics[0]`) over what the column's
    /// side got (`metrics[1]`, if there is one).
    Matrix,
    /// A distribution for each row: of the metric over all runs of the row's cells, or of a course's values over
    /// all bins.
    Cdf,
}

/// A part of a table or figure that has its own heading.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// The values that its cells share; empty if there is only one panel.
    #[serde(default, skip_serializing_if = "Vary::is_empty")]
    pub of: Vary,
    /// The rows.
    pub rows: Axis,
    /// The columns.
    pub columns: Axis,
    /// `cells[row][column]`: an index into the cells of the result. Absent where no such cell was run. As many
    /// as `rows.entries`, and in each as many as `columns.entries`.
    pub cells: Vec<Vec<Option<usize>>>,
}

/// What goes down or across.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Varied parameters, the outermost first. Empty: the axis has one entry without values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    /// In the order of the scenario.
    pub entries: Vec<Entry>,
}

/// One row, column, line or group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// One value for each parameter of `by`.
    pub values: Vec<Value>,
    /// A name for people, if all cells of the entry have one label and there are no values to tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl Axis {
    /// The heading of an entry: "relays", "5 ms, no relays"; empty if the axis has no parameters.
    pub fn heading(&self, entry: &Entry) -> String {
        if let Some(label) = &entry.label {
            return label.clone();
        }
        let named = |(by, value): (&String, &Value)| match value {
            Value::Bool(true) => by.clone(),
            Value::Bool(false) => format!("no {by}"),
            other => setting(by, other),
        };
        let words: Vec<String> = self.by.iter().zip(&entry.values).map(named).collect();
        words.join(", ")
    }

    /// Where an entry lies on a numeric axis: of its one value the number, without its unit, in the unit's
    /// base (seconds, bits a second, bytes). `None` of what is no number.
    pub fn position(entry: &Entry) -> Option<f64> {
        let [only] = entry.values.as_slice() else {
            return None;
        };
        only.as_f64().or_else(|| quantity(&plain(only)))
    }
}

/// `"5ms"` as 0.005, `"1gbit"` as 1e9, `"64MB"` as 64e6.
pub fn quantity(text: &str) -> Option<f64> {
    let time = || text.parse().ok().map(longhaul_units::Time::as_secs_f64);
    let rate = || {
        text.parse()
            .ok()
            .map(|rate: longhaul_units::BitRate| rate.bits() as f64)
    };
    let bytes = || {
        text.parse()
            .ok()
            .map(|size: longhaul_units::Bytes| size.get() as f64)
    };
    time().or_else(bytes).or_else(rate)
}

/// A line across a chart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The value.
    pub value: f64,
    /// The words for it.
    pub label: String,
}

/// Which course: the same words as in [`Course`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CourseName {
    /// `goodput_bps`, `cwnd_bytes`, `srtt_us`, `retransmits_per_s`, `jain_ratio`: ends in its unit, as metrics do.
    pub of: String,
    /// The flow that it is of; absent: all flows together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
}

/// How a quantity went over the time of one run (`Series::courses`). Only what some figure draws is kept, at most
/// [`Course::BINS_MAX`] bins of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// The figure over time.
    #[serde(flatten)]
    pub name: CourseName,
    /// Width of a bin in milliseconds; the first begins at the start of the run.
    pub bin_ms: f64,
    /// A value for each bin, in the unit that `of` ends with; null where there is none.
    pub values: Vec<Option<f64>>,
}

impl Course {
    /// About as many points as a page is wide.
    pub const BINS_MAX: usize = 1200;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn entries_are_called_by_their_values() {
        let axis = Axis {
            by: vec!["delay".to_owned(), "relays".to_owned()],
            entries: Vec::new(),
        };
        let heading = |values: Value| {
            let values = values.as_array().unwrap().clone();
            axis.heading(&Entry {
                values,
                label: None,
            })
        };
        assert_eq!(heading(json!(["1ms", false])), "1 ms, no relays");
        assert_eq!(heading(json!(["1ms", true])), "1 ms, relays");
        assert_eq!(Axis::default().heading(&Entry::default()), "");
    }

    #[test]
    fn quantities_lie_on_a_numeric_axis_in_base_units() {
        let position = |value: Value| {
            Axis::position(&Entry {
                values: vec![value],
                label: None,
            })
        };
        assert_eq!(position(json!(0.5)), Some(0.5));
        assert_eq!(position(json!("5ms")), Some(0.005));
        assert_eq!(position(json!("1gbit")), Some(1e9));
        assert_eq!(position(json!("64MB")), Some(64e6));
        assert_eq!(position(json!("cubic")), None);
    }
}
