// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a scenario claims: checks, the number that answers the question, and the figures that its paper prints.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// A claim that the run must meet.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckPlan {
    pub(crate) name: String,
    /// An expression over the medians of cells.
    pub(crate) value: String,
    /// It must hold of every cell with these varied values: a metric without braces is that cell's,
    /// one with braces that of the cell that differs from it in just those.
    pub(crate) every: Option<Table>,
    /// `>= 6`.
    pub(crate) want: String,
    /// Whether it must hold for runs shortened by `--quick` too.
    #[serde(default = "super::notation::yes")]
    pub(crate) quick: bool,
}

/// The number that answers the question.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerPlan {
    /// Holds `{}` where the number goes.
    pub(crate) sentence: String,
    pub(crate) metric: String,
    pub(crate) cell: Table,
    pub(crate) baseline: Option<Table>,
}

/// What one place of the paper says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaperFigures {
    /// The varied values of the cell; with a table, those that all its cells have in common.
    #[serde(default)]
    pub(crate) cell: Table,
    /// By metric.
    #[serde(default)]
    pub(crate) figures: IndexMap<String, f64>,
    /// Metrics whose printed figure looks wrong: shown, never compared.
    #[serde(default)]
    pub(crate) suspect: Vec<String>,
    /// A whole table instead of `figures`.
    pub(crate) table: Option<PaperTable>,
}

/// A printed table: one metric over two varied parameters.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaperTable {
    pub(crate) metric: String,
    /// What a printed 1 stands for: 1e6 where the paper prints Mbit/s.
    #[serde(default = "one")]
    pub(crate) unit: f64,
    /// The parameter of the columns and its values, in their printed order.
    pub(crate) columns: IndexMap<String, Vec<Value>>,
    pub(crate) rows: IndexMap<String, Vec<Value>>,
    /// Row by row. A row may end early, as those of half a matrix do.
    pub(crate) values: Vec<Vec<f64>>,
    /// Row and column, from 0, of figures that look misprinted.
    #[serde(default)]
    pub(crate) suspect: Vec<(usize, usize)>,
}

fn one() -> f64 {
    1.0
}
