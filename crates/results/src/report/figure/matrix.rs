// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who gets what beside whom: in each place what the row's side got, beneath it what the column's side
//! got, the colour by which of them got more.

use super::{
    cells::{grids, heading},
    heat::{self, ratio_class, ratio_legend},
};
use crate::{
    result::{Cell, LabResult},
    view::Figure,
};
use longhaul_report::metric::{Metric, percent};
use maud::{Markup, html};

/// The figure; with one metric alone there is nothing to share, and it is a heat map.
pub(super) fn figure(result: &LabResult, figure: &Figure) -> Markup {
    let [own, other, ..] = figure.metrics.as_slice() else {
        return heat::figure(result, figure);
    };
    html! {
        figure.heatmap {
            (heading(figure))
            p.note { "In each place: the row’s side, its share of both, and below what it left to the column’s side." }
            @for grid in grids(result, &figure.panels) {
                (grid.table("heat", &figure.title, "", |cell| square(cell, own, other, figure.paper)))
            }
            (ratio_legend("Colour: the row’s side", ["gets far less", "even", "gets far more"]))
        }
    }
}

fn square(cell: &Cell, own: &str, other: &str, paper: bool) -> Markup {
    let median = |name: &str| Some(cell.metrics.get(name)?.median);
    let Some((mine, theirs)) = median(own).zip(median(other)) else {
        return html! { td { "–" } };
    };
    let metric = Metric::of(own);
    let share = mine / (mine + theirs);
    let print = |value: Option<&f64>| value.map_or("–".to_owned(), |value| metric.print(*value));
    html! {
        td class=(ratio_class(mine / theirs)) {
            (metric.print(mine))
            small { (percent(share)) " of both" }
            small { "leaves " (metric.print(theirs)) }
            @if paper && cell.paper.contains_key(own) {
                small { "paper " (print(cell.paper.get(own))) " / " (print(cell.paper.get(other))) }
            }
        }
    }
}
