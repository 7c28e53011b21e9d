// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reference values by cell, from lists and from tables.

use crate::{
    scenario::{
        claim::{ReferenceTable, ReferenceValues},
        value::plain_text,
    },
    source::{Cell, text_pairs},
};
use indexmap::IndexMap;
use longhaul_results::result::Metrics;
use toml::Value;

/// Reference values of one cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CellReference {
    pub(crate) values: Metrics,
    pub(crate) excluded: Vec<String>,
}

/// Returns the reference values of `cell`.
pub(crate) fn reference_of_cell(all: &[ReferenceValues], cell: &Cell) -> CellReference {
    let mut reference = CellReference::default();
    for entry in all.iter().flat_map(entries) {
        if cell.matches(&entry.cell) {
            let metric = entry.metric.to_owned();
            reference
                .excluded
                .extend(entry.excluded.then(|| metric.clone()));
            reference.values.insert(metric, entry.value);
        }
    }
    reference
}

/// Returns the parameter of an axis, if it is exactly one.
pub(crate) fn single_parameter(
    axis: &IndexMap<String, Vec<Value>>,
) -> Option<(&String, &Vec<Value>)> {
    axis.first().filter(|_| axis.len() == 1)
}

/// One reference value, as the paper prints it.
pub(crate) struct ReferenceEntry<'a> {
    /// Varied values of its cell.
    pub(crate) cell: Vec<(String, String)>,
    pub(crate) metric: &'a str,
    pub(crate) value: f64,
    /// Whether it looks misprinted.
    pub(crate) excluded: bool,
    /// Row and column, if it is from a table.
    pub(crate) place: Option<(usize, usize)>,
}

/// Returns the values of one `[[reference]]`, from its list or its table.
pub(crate) fn entries(reference: &ReferenceValues) -> Vec<ReferenceEntry<'_>> {
    match &reference.table {
        Some(table) => from_table(&text_pairs(&reference.cell), table),
        None => from_list(reference).collect(),
    }
}

fn from_list(reference: &ReferenceValues) -> impl Iterator<Item = ReferenceEntry<'_>> {
    let cell = text_pairs(&reference.cell);
    reference
        .figures
        .iter()
        .map(move |(metric, value)| ReferenceEntry {
            cell: cell.clone(),
            metric,
            value: *value,
            excluded: reference.exclude.contains(metric),
            place: None,
        })
}

fn from_table<'a>(
    common: &[(String, String)],
    table: &'a ReferenceTable,
) -> Vec<ReferenceEntry<'a>> {
    let (Some(rows), Some(columns)) = (
        single_parameter(&table.rows),
        single_parameter(&table.columns),
    ) else {
        return Vec::new();
    };
    let mut entries = Vec::new();
    for (r, (row, values)) in rows.1.iter().zip(&table.values).enumerate() {
        for (c, (column, value)) in columns.1.iter().zip(values).enumerate() {
            let mut cell = common.to_vec();
            cell.push((rows.0.clone(), plain_text(row)));
            cell.push((columns.0.clone(), plain_text(column)));
            entries.push(ReferenceEntry {
                cell,
                metric: &table.metric,
                value: value * table.unit,
                excluded: table.exclude.contains(&(r, c)),
                place: Some((r, c)),
            });
        }
    }
    entries
}
