// SPDX-License-Identifier: MIT OR Apache-2.0
//! Claims of a scenario: checks, the headline, and the figures that the
//! paper prints.

#[cfg(test)]
use super::schema;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// Check that the result must pass.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckSpec {
    pub(crate) name: String,
    /// An expression over the medians of cells.
    pub(crate) value: String,
    /// Varied values of the cells for which it must hold, each on its own. A metric without braces
    /// is that cell's; one with braces is of the cell that differs from it in just those values.
    #[cfg_attr(test, schemars(with = "Option<schema::Table>"))]
    pub(crate) for_each: Option<Table>,
    /// Threshold, such as `>= 6`.
    pub(crate) threshold: String,
    /// Whether it applies to runs shortened by `--quick` too.
    #[serde(default = "super::notation::default_true")]
    pub(crate) quick: bool,
}

/// Headline of the result: a sentence with the number that answers the question.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct HeadlineSpec {
    /// Sentence with `{}` in place of the number.
    #[serde(rename = "headline")]
    pub(crate) template: String,
    pub(crate) metric: String,
    #[cfg_attr(test, schemars(with = "schema::Table"))]
    pub(crate) cell: Table,
    #[cfg_attr(test, schemars(with = "Option<schema::Table>"))]
    pub(crate) baseline: Option<Table>,
}

/// Figures from one place of the paper.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ReferenceValues {
    /// Varied values of the cell; with a table, those that all its cells have in common.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "schema::Table"))]
    pub(crate) cell: Table,
    /// Printed figures by metric.
    #[serde(default)]
    pub(crate) figures: IndexMap<String, f64>,
    /// Metrics whose printed figure looks wrong. It is shown, but not compared.
    #[serde(default)]
    pub(crate) exclude: Vec<String>,
    /// A whole table instead of `figures`.
    pub(crate) table: Option<ReferenceTable>,
}

/// A printed table: one metric over two varied parameters.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ReferenceTable {
    pub(crate) metric: String,
    /// Factor of the printed values: 1e6 where the paper prints Mbit/s.
    #[serde(default = "one")]
    pub(crate) unit: f64,
    /// Parameter of the columns with its values, in their printed order.
    #[cfg_attr(test, schemars(with = "IndexMap<String, Vec<schema::Value>>"))]
    pub(crate) columns: IndexMap<String, Vec<Value>>,
    #[cfg_attr(test, schemars(with = "IndexMap<String, Vec<schema::Value>>"))]
    pub(crate) rows: IndexMap<String, Vec<Value>>,
    /// Values row by row. A row may be short, as in half a matrix.
    pub(crate) values: Vec<Vec<f64>>,
    /// Row and column, from 0, of values that look misprinted.
    #[serde(default)]
    pub(crate) exclude: Vec<(usize, usize)>,
}

fn one() -> f64 {
    1.0
}
