// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text and tables on standard output.

use anyhow::Result;

/// Writes to standard output; exits with 0 if the reader has closed it.
pub(super) fn print(text: &str) -> Result<()> {
    use std::io::{ErrorKind, Write, stdout};
    match stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        outcome => Ok(outcome?),
    }
}

/// Returns a table with aligned columns.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| rows.iter().filter_map(move |row| row.get(at));
    let width = |at| width(at).map(|cell| cell.chars().count()).max();
    let widths: Vec<_> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let line: String = cells
            .map(|(cell, width)| format!("{cell:width$}  "))
            .collect();
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}
