// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of `[[table]]` and `[[figure]]`: contents of the report.

#[cfg(test)]
use super::schema;
use super::{
    measure::TimeSeriesMetric,
    value::{self, plain_text},
};
use indexmap::IndexMap;
use longhaul_results::view::{FigureKind, ReferenceLine, TimeSeriesId, parse_quantity};
use longhaul_units::Time;
use serde::{Deserialize, Serialize};

/// One name, or a list of names.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "expected a name or a list of names")]
pub(crate) enum Names {
    One(String),
    Several(Vec<String>),
}

impl Names {
    pub(crate) fn all(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

/// One value, or a list of values.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Values {
    Several(Vec<toml::Value>),
    One(toml::Value),
}

impl Values {
    pub(crate) fn has(&self, value: &toml::Value) -> bool {
        let is = |one: &toml::Value| value::matches(&plain_text(one), value);
        match self {
            Self::One(one) => is(one),
            Self::Several(all) => all.iter().any(is),
        }
    }
}

/// One metric over time, or a list of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(
    untagged,
    expecting = "expected goodput_bps, cwnd_bytes, srtt_us, retransmits_per_s or jain_ratio, or a list of them"
)]
pub(crate) enum TimeSeriesMetrics {
    One(TimeSeriesMetric),
    Several(Vec<TimeSeriesMetric>),
}

impl TimeSeriesMetrics {
    pub(crate) fn all(&self) -> &[TimeSeriesMetric] {
        match self {
            Self::One(metric) => std::slice::from_ref(metric),
            Self::Several(metrics) => metrics,
        }
    }
}

pub(crate) type OptionalNames = Option<Names>;

pub(crate) fn names_of(names: &OptionalNames) -> &[String] {
    names.as_ref().map_or(&[], Names::all)
}

/// Table of the report, `[[table]]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct TableSpec {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) note: Option<String>,
    pub(crate) metric: Names,
    /// Varied parameters of the rows, or `cell`.
    pub(crate) rows: OptionalNames,
    pub(crate) columns: OptionalNames,
    pub(crate) facet: OptionalNames,
    /// Selects the cells with these values.
    #[cfg_attr(test, schemars(with = "Option<schema::Table>"))]
    pub(crate) filter: Option<IndexMap<String, Values>>,
    /// Whether to show the paper's figures too.
    #[serde(default = "super::notation::default_true")]
    pub(crate) reference: bool,
}

/// Figure of the report, `[[figure]]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct FigureSpec {
    pub(crate) name: String,
    #[cfg_attr(test, schemars(with = "schema::FigureKind"))]
    pub(crate) kind: FigureKind,
    pub(crate) title: String,
    pub(crate) note: Option<String>,
    pub(crate) metric: OptionalNames,
    /// Metrics over time, instead of `metric`.
    pub(crate) time_series: Option<TimeSeriesMetrics>,
    /// Flows of `time_series`, one line each; all flows together if absent.
    pub(crate) flow: OptionalNames,
    /// Start of the shown part of the run, with `time_series`.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) from: Option<Time>,
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) to: Option<Time>,
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) bin: Option<Time>,
    /// Parameter on the x axis (line, bars). With `time_series`, the x axis is time.
    pub(crate) x: OptionalNames,
    /// Parameter of lines or colours (line, bars, cdf).
    pub(crate) hue: OptionalNames,
    /// Parameters of the rows (heat map, matrix).
    pub(crate) rows: OptionalNames,
    pub(crate) columns: OptionalNames,
    pub(crate) facet: OptionalNames,
    #[cfg_attr(test, schemars(with = "Option<schema::Table>"))]
    pub(crate) filter: Option<IndexMap<String, Values>>,
    /// Logarithmic axes: `x`, `y` or `xy`.
    pub(crate) log: Option<String>,
    #[serde(default = "super::notation::default_true")]
    pub(crate) reference: bool,
    #[serde(default)]
    pub(crate) reference_lines: Vec<ReferenceLineSpec>,
}

impl FigureSpec {
    pub(crate) fn is_grid(&self) -> bool {
        matches!(self.kind, FigureKind::Heatmap | FigureKind::Matrix)
    }

    pub(crate) fn time_series_ids(&self) -> Vec<(TimeSeriesMetric, TimeSeriesId)> {
        let name = |metric: &TimeSeriesMetric, flow: Option<&String>| {
            let (of, flow) = (metric.name().to_owned(), flow.cloned());
            (*metric, TimeSeriesId { metric: of, flow })
        };
        let metrics = self
            .time_series
            .as_ref()
            .map_or(&[][..], TimeSeriesMetrics::all);
        let each = |metric| match names_of(&self.flow) {
            [] => vec![name(metric, None)],
            flows => flows.iter().map(|flow| name(metric, Some(flow))).collect(),
        };
        metrics.iter().flat_map(each).collect()
    }
}

/// Reference line across a chart.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ReferenceLineSpec {
    #[cfg_attr(test, schemars(with = "schema::Value"))]
    pub(crate) value: toml::Value,
    pub(crate) label: String,
}

impl ReferenceLineSpec {
    pub(crate) fn limit(&self) -> Option<ReferenceLine> {
        let value = &self.value;
        let number = value
            .as_float()
            .or(value.as_integer().map(|whole| whole as f64));
        Some(ReferenceLine {
            value: number.or_else(|| parse_quantity(value.as_str()?))?,
            label: self.label.clone(),
        })
    }
}
