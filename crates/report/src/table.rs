// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of a page. Each scrolls by itself, also by keyboard, where it is wider than the window.

use maud::{Markup, html};

/// A table besides its cells.
#[derive(Debug, Clone, Copy, Default)]
pub struct Table<'a> {
    /// What a screen reader calls it.
    pub label: &'a str,
    /// Classes of `longhaul.css`, if it is not a plain one.
    pub class: &'a str,
    /// A sentence above it, if that says more than the heading before.
    pub caption: &'a str,
}

impl Table<'_> {
    /// The table with these columns, each row a `tr`. A column of a table's own headings may have no name.
    pub fn drawn(
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

/// A plain table.
pub fn table(
    label: &str,
    columns: impl IntoIterator<Item = impl AsRef<str>>,
    rows: impl IntoIterator<Item = Markup>,
) -> Markup {
    let plain = Table {
        label,
        ..Table::default()
    };
    plain.drawn(columns, rows)
}

fn heading(name: &str) -> Markup {
    match name {
        "" => html! { td {} },
        name => html! { th scope="col" { (name) } },
    }
}
