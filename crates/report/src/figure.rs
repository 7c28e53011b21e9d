// SPDX-License-Identifier: MIT OR Apache-2.0
//! Common parts of figures: captions, the elements of a chart over time, and colour classes.

use maud::{Markup, html};

/// Number of colour steps; `longhaul.css` has a class for each: `heat-0`, `heat-1`, ….
pub const HEAT_STEPS: u32 = 9;

/// Returns the caption of a figure: its title (the finding) and a note.
pub fn caption(title: &str, note: &str) -> Markup {
    html! { figcaption { h3 { (title) } @if !note.is_empty() { p { (note) } } } }
}

/// Returns the content of a `figure` element with a chart over time. `chart.js` draws into it and lists its data.
/// `label` is the chart's name for screen readers.
pub fn time_chart(title: &str, note: &str, label: &str) -> Markup {
    html! {
        (caption(title, note))
        div.plot tabindex="0" role="group" aria-label=(label) {}
        output.readout {}
        details { summary { "Data of this chart" } }
    }
}

/// Returns the instructions for charts over time, after an introductory `sentence`.
pub fn chart_help(sentence: &str) -> Markup {
    html! {
        p.note {
            (sentence) "Drag to zoom, double-click to reset. With the keyboard: arrows move the cursor, "
            kbd { "+" } " and " kbd { "−" } " zoom, " kbd { "Esc" } " resets."
        }
    }
}

/// Returns the colour class of a position between the minimum (0) and the maximum (1).
pub fn heat_class(share: f64) -> String {
    let steps = f64::from(HEAT_STEPS);
    format!("heat-{}", (share * steps).clamp(0.0, steps - 1.0) as u32)
}
