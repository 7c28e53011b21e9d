// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables in plain text.

/// Spaces between two columns.
const GAP: usize = 3;

/// The rows with their columns padded to one width each, without spaces at the end.
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
    let line = |row: &Vec<String>| {
        let padded: String = row.iter().enumerate().map(pad).collect();
        padded.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Lines as a text, each of them ended.
pub fn text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}
