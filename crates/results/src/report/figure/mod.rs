// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures that a scenario selects, by kind, and default figures for a scenario that selects none.

mod bars;
mod cdf;
pub(super) mod default_figures;
pub(super) mod grid;
pub(super) mod heat;
mod line_figure;
mod matrix;
pub(super) mod time_series;

use crate::{
    result::LabResult,
    view::{Figure, FigureKind},
};
use longhaul_report::chart::{Chart, Charts};
use maud::{Markup, html};

/// Renders a figure; adds charts that `chart.js` draws to `charts`.
pub(super) fn render(result: &LabResult, figure: &Figure, charts: &mut Charts) -> Markup {
    let over_time = !figure.time_series.is_empty();
    let drawn = match figure.kind {
        FigureKind::Line if over_time => time_series::charts(result, figure),
        FigureKind::Line => line_figure::charts(result, figure),
        FigureKind::Cdf => cdf::charts(result, figure),
        FigureKind::Bars | FigureKind::Heatmap | FigureKind::Matrix => Vec::new(),
    };
    html! {
        div.view id={ "figure-" (figure.name) } {
            @match figure.kind {
                FigureKind::Line | FigureKind::Cdf => { (render_charts(figure, drawn, charts)) }
                FigureKind::Bars => { (bars::figure(result, figure)) }
                FigureKind::Heatmap => { (heat::figure(result, figure)) }
                FigureKind::Matrix => { (matrix::figure(result, figure)) }
            }
        }
    }
}

/// Returns the charts of a figure below its heading. A single chart has the heading itself.
fn render_charts(figure: &Figure, mut drawn: Vec<Chart>, charts: &mut Charts) -> Markup {
    drawn.retain(Chart::has_values);
    let note = figure.note.clone().unwrap_or_default();
    if let [only] = drawn.as_mut_slice() {
        only.title.clone_from(&figure.title);
        only.caption = note;
        return html! { div.charts { (charts.add(drawn.remove(0))) } };
    }
    html! {
        (grid::heading(figure))
        div.charts.below { @for chart in drawn { (charts.add(chart)) } }
    }
}
