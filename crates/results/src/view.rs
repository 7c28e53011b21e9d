// SPDX-License-Identifier: MIT OR Apache-2.0
//! Layout of tables and figures in `result.json`. It is chosen and validated when the scenario is read
//! (`lab/src/evaluation/view.rs`), with the position of each cell. A page only draws it.
//!
//! All numbers come from `cells`: a table has names of metrics and indices of cells. So a table cannot disagree with
//! the raw result, and needs little space.

use super::setting::{Parameters, format_value, json_text};
pub use longhaul_report::chart::ReferenceLine;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Table (`[[table]]`): cells in rows and columns, with all `metrics` at each position.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Name in the scenario: letters, digits, `-`, `_`, usable as an anchor.
    pub name: String,
    /// Title, with the values that the scenario refers to inserted.
    pub title: String,
    /// Note for the reader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Metrics at each position, in this order; at least one.
    pub metrics: Vec<String>,
    /// Shows the reference values too (`Cell::reference`, `Cell::reference_excluded`).
    #[serde(default)]
    pub reference: bool,
    /// Facets, one below the other: one for each combination of the facet parameters, or a single one.
    pub facets: Vec<Facet>,
}

/// Figure (`[[figure]]`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Name in the scenario: letters, digits, `-`, `_`, usable as an anchor.
    pub name: String,
    /// Kind of the figure.
    pub kind: FigureKind,
    /// Title: the finding, with the values that the scenario refers to inserted.
    pub title: String,
    /// Description of the content, and notes for the reader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Metrics that are drawn; empty if time series are. A matrix has one or two: the second is for the column's side.
    /// Lines and bars have one or more: a line or colour for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<String>,
    /// Time series of each cell's runs ([`TimeSeries`]) that are drawn instead of metrics, over time (line) or as a
    /// distribution (cdf); by metric and flow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub time_series: Vec<TimeSeriesId>,
    /// Part of the run to draw, seconds; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span_s: Option<[f64; 2]>,
    /// Logarithmic horizontal axis.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log_x: bool,
    /// Logarithmic vertical axis.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log_y: bool,
    /// Draws the reference values too.
    #[serde(default)]
    pub reference: bool,
    /// Labelled reference lines across the chart, in the unit of the drawn metric.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reference_lines: Vec<ReferenceLine>,
    /// Facets (small multiples) on one scale, or a single one.
    pub facets: Vec<Facet>,
}

/// Kind of a figure, and the meaning of the rows and columns of its facets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FigureKind {
    /// Lines for each row, one for each metric or time series. The horizontal axis is time if there are `time_series`
    /// (with one column), else the columns' parameter.
    #[default]
    Line,
    /// Grouped bars: a group for each column, a colour for each row.
    Bars,
    /// Heat map: a field for each row and column, coloured by the single metric.
    Heatmap,
    /// Heat map of two competing sides: `metrics[0]` of the row's side over `metrics[1]` of the column's side, if there
    /// is one.
    Matrix,
    /// Distribution for each row: of the metric over all runs of the row's cells, or of the values of a time series
    /// over all bins.
    Cdf,
}

/// Facet: a part of a table or figure with its own heading.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Facet {
    /// Parameters that its cells share; empty if there is only one facet.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub shared_values: Parameters,
    /// Rows.
    pub rows: Axis,
    /// Columns.
    pub columns: Axis,
    /// Index into the cells of the result at `cells[row][column]`; absent if no such cell was run. The lengths are
    /// those of `rows.entries` and `columns.entries`.
    pub cells: Vec<Vec<Option<usize>>>,
}

/// Axis of a facet: its rows or its columns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Varied parameters, the outermost first. Empty: the axis has one entry without values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<String>,
    /// Entries, in the order of the scenario.
    pub entries: Vec<Entry>,
}

/// Entry of an axis: a row, column, line or group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Value of each parameter of the axis.
    pub values: Vec<Value>,
    /// Name for users, if all cells of the entry have the same label and there are no values to name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl Axis {
    /// Returns the heading of an entry: "relays", "5 ms, no relays"; empty if the axis has no parameters.
    pub fn heading(&self, entry: &Entry) -> String {
        if let Some(label) = &entry.label {
            return label.clone();
        }
        let named = |(by, value): (&String, &Value)| match value {
            Value::Bool(true) => by.clone(),
            Value::Bool(false) => format!("no {by}"),
            other => format_value(by, other),
        };
        let words: Vec<String> = self
            .parameters
            .iter()
            .zip(&entry.values)
            .map(named)
            .collect();
        words.join(", ")
    }

    /// Returns the position of an entry on a numeric axis: its single value in base units (seconds, bit/s, bytes).
    /// Returns `None` for values that are not numeric.
    pub fn position(entry: &Entry) -> Option<f64> {
        let [only] = entry.values.as_slice() else {
            return None;
        };
        only.as_f64().or_else(|| parse_quantity(&json_text(only)))
    }
}

/// Parses a quantity in base units: `"5ms"` as 0.005, `"1gbit"` as 1e9, `"64MB"` as 64e6.
pub fn parse_quantity(text: &str) -> Option<f64> {
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

/// Identity of a time series ([`TimeSeries`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TimeSeriesId {
    /// Metric: `goodput_bps`, `cwnd_bytes`, `srtt_us`, `retransmits_per_s`, `jain_ratio`.
    pub metric: String,
    /// Name of the flow; all flows together if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
}

/// Time series of a metric in one run (`Series::time_series`). Only series that a figure draws are stored, with at
/// most [`TimeSeries::BINS_MAX`] bins.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSeries {
    /// Metric and flow.
    #[serde(flatten)]
    pub name: TimeSeriesId,
    /// Width of a bin, ms; the first begins at the start of the run.
    pub bin_ms: f64,
    /// Value of each bin, in the unit of the metric; null if there is none.
    pub values: Vec<Option<f64>>,
}

impl TimeSeries {
    /// Maximum number of bins: about the width of a page in pixels.
    pub const BINS_MAX: usize = 1200;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_entries_by_their_values() {
        let axis = Axis {
            parameters: vec!["delay".to_owned(), "relays".to_owned()],
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
    fn positions_quantities_in_base_units() {
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
