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

use super::over_time::chart::Charts;
use crate::{
    result::LabResult,
    view::{Figure, FigureKind},
};
use maud::{Markup, html};

/// Renders a figure; adds charts that `chart.js` draws to `charts`.
pub(super) fn render(result: &LabResult, figure: &Figure, charts: &mut Charts) -> Markup {
    let over_time = !figure.time_series.is_empty();
    html! {
        div.view id={ "figure-" (figure.name) } {
            @match figure.kind {
                FigureKind::Line if over_time => { (time_series::figure(result, figure, charts)) }
                FigureKind::Line => { (line_figure::figure(result, figure)) }
                FigureKind::Bars => { (bars::figure(result, figure)) }
                FigureKind::Heatmap => { (heat::figure(result, figure)) }
                FigureKind::Matrix => { (matrix::figure(result, figure)) }
                FigureKind::Cdf => { (cdf::figure(result, figure)) }
            }
        }
    }
}
