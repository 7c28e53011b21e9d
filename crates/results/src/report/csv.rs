// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics as comma-separated values (RFC 4180): a line for each cell, or for each run. Values are in the units at the
//! end of the metrics' names.

use crate::result::{Cell, LabResult, Run, json_text};
use indexmap::IndexSet;
use std::{fs, io, path::Path};

/// Names of the files in a result's directory.
pub(super) const CELLS_FILE: &str = "cells.csv";
pub(super) const RUNS_FILE: &str = "runs.csv";

/// Metric that is a hash: it has no median.
const HASH: &str = "loss_pattern";

/// Writes both files into the directory of a result.
pub(super) fn write(result: &LabResult, directory: &Path) -> io::Result<()> {
    fs::write(directory.join(CELLS_FILE), cells(result))?;
    fs::write(directory.join(RUNS_FILE), runs(result))
}

/// Returns a line for each cell: its parameters, the numbers of its runs, failed runs and runs with a late emulator, and
/// median, minimum, maximum and reference value of each metric over the valid runs.
pub(super) fn cells(result: &LabResult) -> String {
    let mut names = metrics(result);
    names.retain(|name| !name.ends_with(HASH));
    let parts = |name: &str| ["", "_min", "_max", "_reference"].map(|part| format!("{name}{part}"));
    let heading = parameter_columns(result)
        .into_iter()
        .chain(["runs", "failed", "late"])
        .map(str::to_owned)
        .chain(names.iter().flat_map(|name| parts(name)));
    let row = |cell: &Cell| {
        let count = |is: fn(&&Run) -> bool| cell.runs.iter().filter(is).count().to_string();
        let counts = [
            count(|_| true),
            count(|run| run.failed.is_some()),
            count(|run| run.overload.is_some()),
        ];
        let values = names.iter().flat_map(|name| {
            let summary = cell.metrics.get(*name);
            [
                summary.map(|s| s.median),
                summary.map(|s| s.min),
                summary.map(|s| s.max),
                cell.reference.get(*name).copied(),
            ]
        });
        line(
            parameter_values(result, cell)
                .into_iter()
                .chain(counts)
                .chain(values.map(number)),
        )
    };
    line(heading) + &result.cells.iter().map(row).collect::<String>()
}

/// Returns a line for each run. A failed run has the reason and no metrics. A run with a late emulator has the reason
/// why it does not count; `retries` is the number of such runs before it that were discarded.
pub(super) fn runs(result: &LabResult) -> String {
    let names = metrics(result);
    let owned = |text: &str| text.to_owned();
    let heading = parameter_columns(result)
        .into_iter()
        .chain(["run", "failed", "late", "retries"])
        .chain(names.iter().copied());
    let row = |cell: &Cell, n: usize, run: &Run| {
        let state = [
            (n + 1).to_string(),
            run.failed.clone().unwrap_or_default(),
            run.overload.clone().unwrap_or_default(),
            run.retries.to_string(),
        ];
        let values = names
            .iter()
            .map(|name| number(run.metrics.get(*name).copied()));
        line(
            parameter_values(result, cell)
                .into_iter()
                .chain(state)
                .chain(values),
        )
    };
    let of_cell = |cell: &Cell| {
        let rows = cell
            .runs
            .iter()
            .enumerate()
            .map(|(n, run)| row(cell, n, run));
        rows.collect::<String>()
    };
    line(heading.map(owned)) + &result.cells.iter().map(of_cell).collect::<String>()
}

fn metrics(result: &LabResult) -> IndexSet<&str> {
    result
        .cells
        .iter()
        .flat_map(|cell| {
            cell.metrics
                .keys()
                .chain(cell.reference.keys())
                .map(String::as_str)
        })
        .collect()
}

/// Returns the names of the first columns: the cell, and every varied parameter.
fn parameter_columns(result: &LabResult) -> IndexSet<&str> {
    let varied = result
        .cells
        .iter()
        .flat_map(|cell| cell.parameters.keys().map(String::as_str));
    ["cell"].into_iter().chain(varied).collect()
}

fn parameter_values(result: &LabResult, cell: &Cell) -> Vec<String> {
    let value = |key: &str| cell.parameters.get(key).map(json_text).unwrap_or_default();
    let keys = parameter_columns(result);
    let values = keys.iter().skip(1).map(|key| value(key));
    [cell.name()].into_iter().chain(values).collect()
}

fn number(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

fn line(fields: impl Iterator<Item = String>) -> String {
    let fields: Vec<String> = fields.map(|field| quote(&field)).collect();
    fields.join(",") + "\r\n"
}

fn quote(field: &str) -> String {
    if field.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result() -> LabResult {
        let run = json!({"goodput_bps": 1e6, "ping_loss_pattern": 77});
        let run: Run = serde_json::from_value(run).unwrap();
        let late = Run {
            overload: Some("emulator late".to_owned()),
            retries: 2,
            ..Run::default()
        };
        let failed = Run {
            failed: Some("reset, \"late\"".to_owned()),
            ..Run::default()
        };
        let parameters = serde_json::from_value(json!({"loss": 0.1})).unwrap();
        let mut cell = Cell {
            parameters,
            runs: vec![run, failed, late],
            ..Cell::default()
        };
        cell.summarise();
        cell.reference.insert("goodput_bps".to_owned(), 2e6);
        LabResult {
            cells: vec![cell],
            ..LabResult::default()
        }
    }

    #[test]
    fn writes_parameters_summary_and_reference_per_cell() {
        assert_eq!(
            cells(&result()),
            "cell,loss,runs,failed,late,goodput_bps,goodput_bps_min,goodput_bps_max,goodput_bps_reference\r\n\
             loss 10 %,0.1,3,1,1,1000000,1000000,1000000,2000000\r\n"
        );
    }

    #[test]
    fn quotes_the_reasons_of_failed_and_late_runs() {
        assert_eq!(
            runs(&result()),
            "cell,loss,run,failed,late,retries,goodput_bps,ping_loss_pattern\r\n\
             loss 10 %,0.1,1,,,0,1000000,77\r\n\
             loss 10 %,0.1,2,\"reset, \"\"late\"\"\",,0,,\r\n\
             loss 10 %,0.1,3,,emulator late,2,,\r\n"
        );
    }
}
