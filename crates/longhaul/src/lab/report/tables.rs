// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables that a scenario asks for: cells in rows and columns, in each place its metrics with
//! their range, the paper's figure and the ratio.

use super::{cells::grids, heat::ratio};
use crate::lab::{
    metric::{Metric, times},
    result::{Cell, LabResult},
    view::Table,
};
use maud::{Markup, html};

pub(super) fn section(result: &LabResult) -> Markup {
    html! {
        @if !result.tables.is_empty() {
            section.tables {
                h2 { "As tables" }
                @for table in &result.tables { (draw(result, table)) }
            }
        }
    }
}

fn draw(result: &LabResult, table: &Table) -> Markup {
    let caption = match table.metrics.as_slice() {
        [only] => Metric::of(only).label,
        _ => String::new(),
    };
    html! {
        div.view id={ "table-" (table.name) } {
            h3 { (table.title) }
            @if let Some(note) = &table.note { p.note { (note) } }
            @for grid in grids(result, &table.panels) {
                (grid.table("values", &table.title, &caption, |cell| place(cell, table)))
            }
        }
    }
}

fn place(cell: &Cell, table: &Table) -> Markup {
    let several = table.metrics.len() > 1;
    html! { td { @for name in &table.metrics { (figure(cell, name, several, table.paper)) } } }
}

fn figure(cell: &Cell, name: &str, named: bool, paper: bool) -> Markup {
    let metric = Metric::of(name);
    let range = |min, max| format!("[{} – {}]", metric.print(min), metric.print(max));
    html! {
        div.figure {
            @if named { small { (metric.label) } }
            @match cell.metrics.get(name) {
                Some(ours) => {
                    strong { (metric.print(ours.median)) }
                    @if ours.min < ours.max { small { (range(ours.min, ours.max)) } }
                }
                None => { "–" }
            }
            @if let Some(value) = cell.paper.get(name).filter(|_| paper) {
                small.paper {
                    "paper " (metric.print(*value))
                    @if let Some(ratio) = ratio(cell, name) { " · " (times(ratio)) }
                    @if cell.paper_figure(name).is_none() { " (misprint?)" }
                }
            }
        }
    }
}
