// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures that a scenario asks for, each in its form; where it asks for none, those that suit its cells.

mod cdf;
pub(super) mod cells;
pub(super) mod chosen;
pub(super) mod courses;
mod curve;
mod grouped;
pub(super) mod heat;
mod matrix;

use super::over_time::chart::Charts;
use crate::{
    result::LabResult,
    view::{Figure, FigureKind},
};
use maud::{Markup, html};

/// One figure; `charts` gets those that `chart.js` draws.
pub(super) fn draw(result: &LabResult, figure: &Figure, charts: &mut Charts) -> Markup {
    let over_time = !figure.courses.is_empty();
    html! {
        div.view id={ "figure-" (figure.name) } {
            @match figure.kind {
                FigureKind::Series if over_time => { (courses::figure(result, figure, charts)) }
                FigureKind::Series => { (curve::figure(result, figure)) }
                FigureKind::Bars => { (grouped::figure(result, figure)) }
                FigureKind::Heatmap => { (heat::figure(result, figure)) }
                FigureKind::Matrix => { (matrix::figure(result, figure)) }
                FigureKind::Cdf => { (cdf::figure(result, figure)) }
            }
        }
    }
}
