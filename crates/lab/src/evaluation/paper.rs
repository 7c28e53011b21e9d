// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of the paper by cell, from lists and from tables.

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

/// Printed figures of one cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CellFigures {
    pub(crate) figures: Metrics,
    pub(crate) excluded: Vec<String>,
}

/// Returns the paper's figures for `cell`.
pub(crate) fn figures_of(all: &[ReferenceValues], cell: &Cell) -> CellFigures {
    let mut printed = CellFigures::default();
    for entry in all.iter().flat_map(entries) {
        if cell.matches(&entry.cell) {
            let metric = entry.metric.to_owned();
            printed
                .excluded
                .extend(entry.excluded.then(|| metric.clone()));
            printed.figures.insert(metric, entry.figure);
        }
    }
    printed
}

/// Returns the parameter of an axis, if it is exactly one.
pub(crate) fn single_parameter(
    axis: &IndexMap<String, Vec<Value>>,
) -> Option<(&String, &Vec<Value>)> {
    axis.first().filter(|_| axis.len() == 1)
}

/// One printed figure.
pub(crate) struct Entry<'a> {
    /// Varied values of its cell.
    pub(crate) cell: Vec<(String, String)>,
    pub(crate) metric: &'a str,
    pub(crate) figure: f64,
    /// Whether it looks misprinted.
    pub(crate) excluded: bool,
    /// Row and column, if it is from a table.
    pub(crate) place: Option<(usize, usize)>,
}

pub(crate) fn entries(paper: &ReferenceValues) -> Vec<Entry<'_>> {
    match &paper.table {
        Some(table) => from_table(&text_pairs(&paper.cell), table),
        None => from_list(paper).collect(),
    }
}

fn from_list(paper: &ReferenceValues) -> impl Iterator<Item = Entry<'_>> {
    let cell = text_pairs(&paper.cell);
    paper.figures.iter().map(move |(metric, figure)| Entry {
        cell: cell.clone(),
        metric,
        figure: *figure,
        excluded: paper.exclude.contains(metric),
        place: None,
    })
}

fn from_table<'a>(common: &[(String, String)], table: &'a ReferenceTable) -> Vec<Entry<'a>> {
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
            entries.push(Entry {
                cell,
                metric: &table.metric,
                figure: value * table.unit,
                excluded: table.exclude.contains(&(r, c)),
                place: Some((r, c)),
            });
        }
    }
    entries
}
