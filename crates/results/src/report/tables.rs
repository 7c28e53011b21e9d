// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables that a scenario selects: cells in rows and columns, each with its metrics, their range, the reference
//! value and the ratio.

use super::figure::{
    grid::{Grid, grids, headings},
    heat::ratio,
};
use crate::{
    result::{Cell, LabResult},
    view::Table,
};
use longhaul_report::{
    metric::{Metric, format_factor},
    table as page,
};
use maud::{Markup, html};

pub(super) fn section(result: &LabResult) -> Markup {
    html! {
        @if !result.tables.is_empty() {
            section.tables {
                h2 { "Tables" }
                @for table in &result.tables { (render(result, table)) }
            }
        }
    }
}

fn render(result: &LabResult, table: &Table) -> Markup {
    let caption = match table.metrics.as_slice() {
        [only] => Metric::of(only).label,
        _ => String::new(),
    };
    html! {
        div.view id={ "table-" (table.name) } {
            h3 { (table.title) }
            @if let Some(note) = &table.note { p.note { (note) } }
            @for grid in grids(result, &table.facets) {
                @if table.metrics.len() > 1 && grid.columns().parameters.is_empty() { (metric_columns(&grid, table)) }
                @else { (grid.table("values", &table.title, &caption, |cell| cell_field(cell, table))) }
            }
        }
    }
}

/// Returns a table with a column for each metric, for views without a column parameter.
fn metric_columns(grid: &Grid<'_>, table: &Table) -> Markup {
    let labels = table.metrics.iter().map(|name| Metric::of(name).label);
    let columns = std::iter::once(grid.rows().parameters.join(", ")).chain(labels);
    let field = |row, name| {
        let cell = grid.at(row, 0);
        cell.map_or(html! { "–" }, |cell| {
            value(cell, name, false, table.reference)
        })
    };
    let row = |(row, heading)| {
        html! { tr {
            th scope="row" { (heading) }
            @for name in &table.metrics { td { (field(row, name)) } }
        } }
    };
    let rows = headings(grid.rows()).into_iter().enumerate().map(row);
    let name = grid.name();
    let table_style = page::Table {
        label: &format!("Table · {} {name}", table.title),
        class: "values",
        caption: &name,
    };
    table_style.render(columns, rows)
}

fn cell_field(cell: &Cell, table: &Table) -> Markup {
    let several = table.metrics.len() > 1;
    html! { td { @for name in &table.metrics { (value(cell, name, several, table.reference)) } } }
}

fn value(cell: &Cell, name: &str, named: bool, reference: bool) -> Markup {
    let metric = Metric::of(name);
    html! {
        div.value {
            @if named { small { (metric.label) } }
            @match cell.metrics.get(name) {
                Some(summary) => { (summary.markup(&metric)) }
                None => { "–" }
            }
            @if let Some(found) = cell.reference.get(name).filter(|_| reference) {
                small.reference {
                    "reference " (metric.format(*found))
                    @if let Some(ratio) = ratio(cell, name) { " · " (format_factor(ratio)) }
                    @if cell.reference_value(name).is_none() { " (excluded)" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    #[test]
    fn uses_metrics_as_columns_without_column_parameter() {
        let result = fixtures::every_figure();
        let table = |panels| Table {
            facets: panels,
            ..result.tables[0].clone()
        };
        let render_table = |table: &Table| render(&result, table).into_string();
        let across = render_table(&table(vec![fixtures::one_column()]));
        let heads: Vec<&str> = across.split("<th scope=\"col\">").skip(1).collect();
        assert_eq!(heads.len(), 3, "{across}");
        assert!(heads[1].starts_with("Goodput<") && heads[2].starts_with("Other<"));
        assert_eq!(across.matches("<td>").count(), 4);
        let below = render_table(&result.tables[0]);
        assert!(below.contains("<small>Other</small>"), "{below}");
    }
}
