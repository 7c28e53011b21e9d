// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of a page, and the colours of heat maps, which are tables. A table that is wider than the window has its own
//! scroll bar, which the keyboard can move, too.

use maud::{Markup, html};

/// Number of colour steps; `longhaul.css` has a class for each: `heat-0`, `heat-1`, ….
pub const HEAT_STEPS: u32 = 9;

/// Returns the colour class of a position between the minimum (0) and the maximum (1).
pub fn heat_class(share: f64) -> String {
    let steps = f64::from(HEAT_STEPS);
    format!("heat-{}", (share * steps).clamp(0.0, steps - 1.0) as u32)
}

/// Properties of a table.
#[derive(Debug, Clone, Copy, Default)]
pub struct Table<'a> {
    /// Name for screen readers.
    pub label: &'a str,
    /// CSS classes, defined in `longhaul.css`; empty for a plain table.
    pub class: &'a str,
    /// Sentence above the table; empty if the heading before it says enough.
    pub caption: &'a str,
}

impl Table<'_> {
    /// Renders the table with these columns; each row is a `tr`. The column of the row headings may have an empty name.
    pub fn render(
        &self,
        columns: impl IntoIterator<Item = impl AsRef<str>>,
        rows: impl IntoIterator<Item = Markup>,
    ) -> Markup {
        let class = (!self.class.is_empty()).then_some(self.class);
        html! {
            div.scroll tabindex="0" role="region" aria-label=(self.label) {
                table class=[class] {
                    @if !self.caption.is_empty() { caption { (self.caption) } }
                    thead { tr { @for name in columns { (heading(name.as_ref())) } } }
                    tbody { @for row in rows { (row) } }
                }
            }
        }
    }
}

/// Renders a plain table.
pub fn table(
    label: &str,
    columns: impl IntoIterator<Item = impl AsRef<str>>,
    rows: impl IntoIterator<Item = Markup>,
) -> Markup {
    let plain = Table {
        label,
        ..Table::default()
    };
    plain.render(columns, rows)
}

fn heading(name: &str) -> Markup {
    match name {
        "" => html! { td {} },
        name => html! { th scope="col" { (name) } },
    }
}
