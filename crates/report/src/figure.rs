// SPDX-License-Identifier: MIT OR Apache-2.0
//! What figures of pages have in common: their words, the place of a chart, and the steps of a colour.

use maud::{Markup, html};

/// Steps of the colour of a value; `longhaul.css` has as many classes `heat-0`, `heat-1`, ….
pub const HEATS: u32 = 9;

/// The finding, and what a reader should know.
pub fn caption(title: &str, note: &str) -> Markup {
    html! { figcaption { h3 { (title) } @if !note.is_empty() { p { (note) } } } }
}

/// What is inside the figure of a chart over time: `chart.js` draws into it and lists its data. `label` is what a
/// screen reader calls it.
pub fn over_time(title: &str, note: &str, label: &str) -> Markup {
    html! {
        (caption(title, note))
        div.plot tabindex="0" role="group" aria-label=(label) {}
        output.readout {}
        details { summary { "Data of this chart" } }
    }
}

/// How to use charts over time, behind a sentence about them.
pub fn help(about: &str) -> Markup {
    html! {
        p.note {
            (about) "Drag to zoom, double-click to reset. With the keyboard: arrows move the cursor, "
            kbd { "+" } " and " kbd { "−" } " zoom, " kbd { "Esc" } " resets."
        }
    }
}

/// The class of a value whose share of the way from the least to the most is `share`.
pub fn heat(share: f64) -> String {
    let steps = f64::from(HEATS);
    format!("heat-{}", (share * steps).clamp(0.0, steps - 1.0) as u32)
}
