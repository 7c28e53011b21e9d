// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrix of two sides that compete: the row names one side, the column names the other. Each field has the row side's
//! value and, below it, the column side's value. The colour shows their ratio.

use super::{
    grid::{grids, heading},
    heat::{self, ratio_class, ratio_legend},
};
use crate::{
    result::{Cell, LabResult},
    view::Figure,
};
use longhaul_report::metric::{Metric, format_percent};
use maud::{Markup, html};

/// Returns the figure. The first metric is that of the row's side, the second that of the column's side. With a single
/// metric the figure is a heat map.
pub(super) fn figure(result: &LabResult, figure: &Figure) -> Markup {
    let [row_metric, column_metric, ..] = figure.metrics.as_slice() else {
        return heat::figure(result, figure);
    };
    html! {
        figure.heatmap {
            (heading(figure))
            p.note { "Each field: the row’s side, its share of the sum, and the column’s side." }
            @for grid in grids(result, &figure.facets) {
                (grid.table("heat", &figure.title, "", |cell| field(cell, row_metric, column_metric, figure.reference)))
            }
            (ratio_legend("Colour: row’s side against column’s side", ["far less", "equal", "far more"]))
        }
    }
}

/// Returns the field for a cell; a dash if it lacks one of the metrics.
fn field(cell: &Cell, row_metric: &str, column_metric: &str, reference: bool) -> Markup {
    let median = |name: &str| Some(cell.metrics.get(name)?.median);
    let Some((row, column)) = median(row_metric).zip(median(column_metric)) else {
        return html! { td { "–" } };
    };
    let metric = Metric::of(row_metric);
    let share = row / (row + column);
    let format_value =
        |value: Option<&f64>| value.map_or("–".to_owned(), |value| metric.format(*value));
    html! {
        td class=(ratio_class(row / column)) {
            (metric.format(row))
            small { (format_percent(share)) " of the sum" }
            small { "column " (metric.format(column)) }
            @if reference && cell.reference.contains_key(row_metric) {
                small { "reference " (format_value(cell.reference.get(row_metric))) " / " (format_value(cell.reference.get(column_metric))) }
            }
        }
    }
}
