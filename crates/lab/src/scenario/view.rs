// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[table]]` and `[[figure]]`: what the report shall show.

use super::{
    measure::Quantity,
    value::{self, plain},
};
use indexmap::IndexMap;
use longhaul_results::view::{CourseName, FigureKind, Limit, quantity};
use longhaul_units::Time;
use serde::{Deserialize, Serialize};

/// One name or several.
#[derive(Debug, Clone, Serialize, Deserialize)]
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

/// One value or several.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Values {
    Several(Vec<toml::Value>),
    One(toml::Value),
}

impl Values {
    pub(crate) fn has(&self, value: &toml::Value) -> bool {
        let is = |one: &toml::Value| value::names(&plain(one), value);
        match self {
            Self::One(one) => is(one),
            Self::Several(all) => all.iter().any(is),
        }
    }
}

/// One quantity over time, or several.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected goodput_bps, cwnd_bytes, srtt_us, retransmits_per_s or jain_ratio, or a list of them"
)]
pub(crate) enum Quantities {
    One(Quantity),
    Several(Vec<Quantity>),
}

impl Quantities {
    pub(crate) fn all(&self) -> &[Quantity] {
        match self {
            Self::One(quantity) => std::slice::from_ref(quantity),
            Self::Several(quantities) => quantities,
        }
    }
}

pub(crate) type Listed = Option<Names>;

pub(crate) fn listed(names: &Listed) -> &[String] {
    names.as_ref().map_or(&[], Names::all)
}

/// `[[table]]` as the file says it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TablePlan {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) note: Option<String>,
    pub(crate) metric: Names,
    /// Varied parameters, or `cell`.
    pub(crate) rows: Listed,
    pub(crate) columns: Listed,
    pub(crate) panels: Listed,
    /// Only the cells with these values.
    pub(crate) only: Option<IndexMap<String, Values>>,
    /// Whether the paper's figures stand beside ours.
    #[serde(default = "super::notation::yes")]
    pub(crate) paper: bool,
}

/// `[[figure]]` as the file says it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FigurePlan {
    pub(crate) name: String,
    pub(crate) kind: FigureKind,
    pub(crate) title: String,
    pub(crate) note: Option<String>,
    pub(crate) metric: Listed,
    /// Instead of a metric: quantities over time.
    pub(crate) of: Option<Quantities>,
    /// Of these flows, a line each; of all together if absent.
    pub(crate) flow: Listed,
    /// Part of the run, and the width of a bin.
    pub(crate) from: Option<Time>,
    pub(crate) to: Option<Time>,
    pub(crate) bin: Option<Time>,
    /// Series, bars: what goes along the axis. With `of` it is time.
    pub(crate) over: Listed,
    /// Series, bars, cdf: what makes lines or colours.
    pub(crate) by: Listed,
    /// Heat map, matrix.
    pub(crate) rows: Listed,
    pub(crate) columns: Listed,
    pub(crate) panels: Listed,
    pub(crate) only: Option<IndexMap<String, Values>>,
    /// `x`, `y` or `xy`.
    pub(crate) log: Option<String>,
    #[serde(default = "super::notation::yes")]
    pub(crate) paper: bool,
    #[serde(default)]
    pub(crate) limits: Vec<LimitPlan>,
}

impl FigurePlan {
    pub(crate) fn is_grid(&self) -> bool {
        matches!(self.kind, FigureKind::Heatmap | FigureKind::Matrix)
    }

    pub(crate) fn courses(&self) -> Vec<(Quantity, CourseName)> {
        let name = |quantity: &Quantity, flow: Option<&String>| {
            let (of, flow) = (quantity.name().to_owned(), flow.cloned());
            (*quantity, CourseName { of, flow })
        };
        let quantities = self.of.as_ref().map_or(&[][..], Quantities::all);
        let each = |quantity| match listed(&self.flow) {
            [] => vec![name(quantity, None)],
            flows => flows
                .iter()
                .map(|flow| name(quantity, Some(flow)))
                .collect(),
        };
        quantities.iter().flat_map(each).collect()
    }
}

/// A line across a chart.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitPlan {
    pub(crate) value: toml::Value,
    pub(crate) label: String,
}

impl LimitPlan {
    pub(crate) fn limit(&self) -> Option<Limit> {
        let value = &self.value;
        let number = value
            .as_float()
            .or(value.as_integer().map(|whole| whole as f64));
        Some(Limit {
            value: number.or_else(|| quantity(value.as_str()?))?,
            label: self.label.clone(),
        })
    }
}
