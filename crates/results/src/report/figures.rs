// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures and tables that a scenario asks for, each in its form.

use super::{cdf, courses, curve, grouped, heat, matrix, script::Charts};
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

/// The finding, and what a reader should know.
pub(super) fn heading(figure: &Figure) -> Markup {
    html! {
        figcaption {
            h3 { (figure.title) }
            @if let Some(note) = &figure.note { p { (note) } }
        }
    }
}
