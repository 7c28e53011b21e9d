// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of all cells and metrics: median, range, the paper's figure.

use crate::{
    result::{Cell, LabResult, Run},
    summary::Summary,
};
use indexmap::IndexSet;
use longhaul_report::metric::Metric;
use maud::{Markup, html};

/// Cells beyond which the table is folded away: the heat map above it says the same at a glance.
const OPEN_CELLS_MAX: usize = 12;

pub(super) fn section(result: &LabResult) -> Markup {
    let names: IndexSet<&str> = result
        .cells
        .iter()
        .flat_map(|cell| cell.metrics.keys().map(String::as_str))
        .collect();
    html! {
        section {
            h2 { "All figures" }
            @if result.cells.len() <= OPEN_CELLS_MAX { (cells(result, &names)) }
            @else { details { summary { "Every cell" } (cells(result, &names)) } }
            details { summary { "Every run" } (runs(result, &names)) }
        }
    }
}

fn cells(result: &LabResult, names: &IndexSet<&str>) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="All figures" {
            table.values {
                caption {
                    "Median of the runs [smallest – largest]"
                    @if result.has_paper() { "; below it the paper’s figure" }
                    "."
                }
                thead {
                    tr {
                        th scope="col" { "Cell" }
                        th scope="col" { "Runs" }
                        @for name in names { th scope="col" { (Metric::of(name).label) } }
                    }
                }
                tbody { @for cell in &result.cells { (row(cell, names)) } }
            }
        }
    }
}

fn row(cell: &Cell, names: &IndexSet<&str>) -> Markup {
    let failed = cell.runs.iter().filter(|run| run.failed.is_some()).count();
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
                Some(ours) => { strong { (metric.print(ours.median)) } (range(&metric, ours)) }
                None => { "–" }
            }
            @if let Some(paper) = cell.paper.get(name) {
                small.paper {
                    "paper " (metric.print(*paper))
                    @if cell.paper_figure(name).is_none() { " (looks misprinted)" }
                }
            }
        }
    }
}

fn range(metric: &Metric, ours: &Summary) -> Markup {
    html! {
        @if ours.min < ours.max {
            small { "[" (metric.print(ours.min)) " – " (metric.print(ours.max)) "]" }
        }
    }
}

fn runs(result: &LabResult, names: &IndexSet<&str>) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Every run" {
            table {
                thead {
                    tr {
                        th scope="col" { "Cell" }
                        th scope="col" { "Run" }
                        @for name in names { th scope="col" { (Metric::of(name).label) } }
                    }
                }
                tbody {
                    @for cell in &result.cells {
                        @for (n, run) in cell.runs.iter().enumerate() { (single(cell, n, run, names)) }
                    }
                }
            }
        }
    }
}

fn single(cell: &Cell, n: usize, run: &Run, names: &IndexSet<&str>) -> Markup {
    html! {
        tr {
            th scope="row" { (cell.name()) }
            td {
                (n + 1)
                @if let Some(why) = &run.failed { small.fail { "failed: " (why) } }
                @if let Some(why) = &run.disturbed { small.fail { "disturbed: " (why) } }
            }
            @for name in names {
                td { (run.metrics.get(*name).map_or("–".to_owned(), |v| Metric::of(name).print(*v))) }
            }
        }
    }
}
