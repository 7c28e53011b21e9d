// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table of all cells and metrics: median, range and reference value.

use crate::result::{Cell, LabResult, Run};
use indexmap::IndexSet;
use longhaul_report::{
    metric::Metric,
    table::{Table, table},
};
use maud::{Markup, html};

/// Maximum number of cells for which the table is open at first; with more, the heat map above gives the overview.
const OPEN_CELLS_MAX: usize = 12;

pub(super) fn section(result: &LabResult) -> Markup {
    let names = result.metric_names();
    html! {
        section {
            h2 { "All metrics" }
            @if result.cells.len() <= OPEN_CELLS_MAX { (cells(result, &names)) }
            @else { details { summary { "All cells" } (cells(result, &names)) } }
            details { summary { "All runs" } (runs(result, &names)) }
        }
    }
}

fn cells(result: &LabResult, names: &IndexSet<&str>) -> Markup {
    let table = Table {
        label: "All metrics",
        class: "values",
        caption: if result.has_reference() {
            "Median of the runs [minimum – maximum]; below it the reference value."
        } else {
            "Median of the runs [minimum – maximum]."
        },
    };
    let rows = result.cells.iter().map(|cell| cell_row(cell, names));
    table.render(columns("Runs", names), rows)
}

fn columns(second: &str, names: &IndexSet<&str>) -> impl Iterator<Item = String> {
    let labels = names.iter().map(|name| Metric::of(name).label);
    ["Cell", second]
        .map(str::to_owned)
        .into_iter()
        .chain(labels)
}

fn cell_row(cell: &Cell, names: &IndexSet<&str>) -> Markup {
    let failed = cell.runs.len() - cell.successful_runs().count();
    html! {
        tr {
            th scope="row" { (cell.name()) }
            td {
                (cell.runs.len())
                @if failed > 0 { small.fail { (failed) " failed" } }
            }
            @for name in names { (value(cell, name)) }
        }
    }
}

fn value(cell: &Cell, name: &str) -> Markup {
    let metric = Metric::of(name);
    html! {
        td {
            @match cell.metrics.get(name) {
                Some(summary) => { (summary.markup(&metric)) }
                None => { "–" }
            }
            @if let Some(reference) = cell.reference.get(name) {
                small.reference {
                    "reference " (metric.format(*reference))
                    @if cell.reference_value(name).is_none() { " (excluded)" }
                }
            }
        }
    }
}

fn runs(result: &LabResult, names: &IndexSet<&str>) -> Markup {
    let rows = result.cells.iter().flat_map(|cell| {
        let runs = cell.runs.iter().enumerate();
        runs.map(move |(n, run)| run_row(cell, n, run, names))
    });
    table("All runs", columns("Run", names), rows)
}

fn run_row(cell: &Cell, n: usize, run: &Run, names: &IndexSet<&str>) -> Markup {
    html! {
        tr {
            th scope="row" { (cell.name()) }
            td {
                (n + 1)
                @if let Some(why) = &run.failed { small.fail { "failed: " (why) } }
                @if let Some(why) = &run.overload { small.fail { (why) } }
            }
            @for name in names {
                td { (run.metrics.get(*name).map_or("–".to_owned(), |v| Metric::of(name).format(*v))) }
            }
        }
    }
}
