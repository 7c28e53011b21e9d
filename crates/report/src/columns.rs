// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain-text tables.

/// Spaces between two columns.
const GAP: usize = 3;

/// Aligns rows: pads each column to the same width, without spaces at the end of a line.
pub fn align(rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|text| text.chars().count())
            .max()
    };
    let pad = |(column, text): (usize, &String)| {
        format!("{text:<width$}", width = width(column).unwrap_or(0) + GAP)
    };
    let line = |row: &Vec<String>| {
        let padded: String = row.iter().enumerate().map(pad).collect();
        padded.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Joins lines to a text, each line terminated.
pub fn join_lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}
