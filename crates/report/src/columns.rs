// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables in plain text.

/// Spaces between two columns.
const GAP: usize = 3;

/// The rows with their columns padded to one width each.
pub fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|text| text.chars().count())
            .max()
    };
    let pad = |(column, text): (usize, &String)| {
        format!("{text:<width$}", width = width(column).unwrap_or(0) + GAP)
    };
    rows.iter()
        .map(|row| row.iter().enumerate().map(pad).collect())
        .collect()
}
