// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrix of competing sides: each field has the figure of the row's side and below it that of the column's side. The
//! colour shows their ratio.

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

/// Returns the figure; with a single metric it is a heat map.
pub(super) fn figure(result: &LabResult, figure: &Figure) -> Markup {
    let [own, other, ..] = figure.metrics.as_slice() else {
        return heat::figure(result, figure);
    };
    html! {
        figure.heatmap {
            (heading(figure))
            p.note { "In each place: the row’s side, its share of both, and below what it left to the column’s side." }
            @for grid in grids(result, &figure.panels) {
                (grid.table("heat", &figure.title, "", |cell| field(cell, own, other, figure.paper)))
            }
            (ratio_legend("Colour: the row’s side", ["gets far less", "even", "gets far more"]))
        }
    }
}

fn field(cell: &Cell, row_metric: &str, other: &str, paper: bool) -> Markup {
    let median = |name: &str| Some(cell.metrics.get(name)?.median);
    let Some((mine, theirs)) = median(row_metric).zip(median(other)) else {
        return html! { td { "–" } };
    };
    let metric = Metric::of(row_metric);
    let share = mine / (mine + theirs);
    let print = |value: Option<&f64>| value.map_or("–".to_owned(), |value| metric.format(*value));
    html! {
        td class=(ratio_class(mine / theirs)) {
            (metric.format(mine))
            small { (format_percent(share)) " of both" }
            small { "leaves " (metric.format(theirs)) }
            @if paper && cell.paper.contains_key(row_metric) {
                small { "paper " (print(cell.paper.get(row_metric))) " / " (print(cell.paper.get(other))) }
            }
        }
    }
}
