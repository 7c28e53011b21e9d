// SPDX-License-Identifier: MIT OR Apache-2.0
//! A panel of a view together with the cells that it points to, the table that shows one, and the heading of a figure.

use crate::{
    result::{Cell, LabResult, varied},
    view::{Axis, Entry, Figure, Panel},
};
use longhaul_report::{figure::caption, table::Table};
use maud::{Markup, html};
use serde_json::Value;

/// The finding, and what a reader should know.
pub(crate) fn heading(figure: &Figure) -> Markup {
    caption(&figure.title, figure.note.as_deref().unwrap_or(""))
}

/// The words that there are, joined.
pub(crate) fn filled<'a>(words: impl IntoIterator<Item = &'a str>, between: &str) -> String {
    let words = words.into_iter().filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(between)
}

/// Rows and columns of cells.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid<'a> {
    panel: &'a Panel,
    cells: &'a [Cell],
}

/// All panels of a view.
pub(crate) fn grids<'a>(result: &'a LabResult, panels: &'a [Panel]) -> Vec<Grid<'a>> {
    let grid = |panel| Grid {
        panel,
        cells: &result.cells,
    };
    panels.iter().map(grid).collect()
}

impl<'a> Grid<'a> {
    /// What its cells share; empty if there is only one panel.
    pub(crate) fn name(&self) -> String {
        let words: Vec<String> = self
            .panel
            .of
            .iter()
            .map(|(key, value)| varied(key, value))
            .collect();
        words.join(", ")
    }

    pub(crate) fn rows(&self) -> &'a Axis {
        &self.panel.rows
    }

    pub(crate) fn columns(&self) -> &'a Axis {
        &self.panel.columns
    }

    /// The cell at a place, if it was run.
    pub(crate) fn at(&self, row: usize, column: usize) -> Option<&'a Cell> {
        let index = *self.panel.cells.get(row)?.get(column)?;
        self.cells.get(index?)
    }

    /// The cells of one row.
    pub(crate) fn row(&self, row: usize) -> impl Iterator<Item = &'a Cell> {
        (0..self.panel.columns.entries.len()).filter_map(move |column| self.at(row, column))
    }

    /// Every cell that is there.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'a Cell> {
        (0..self.panel.rows.entries.len()).flat_map(move |row| self.row(row))
    }

    /// As a table whose places `square` fills, with both axes as headings; `title` is that of its view.
    pub(crate) fn table(
        &self,
        class: &str,
        title: &str,
        caption: &str,
        square: impl Fn(&Cell) -> Markup,
    ) -> Markup {
        let name = self.name();
        let label = filled(["Table", title, &name], " · ");
        let caption = filled([&name, caption], " · ");
        let place = |row, column| match self.at(row, column) {
            Some(cell) => square(cell),
            None => html! { td { "–" } },
        };
        let row = |(row, name)| {
            html! { tr {
                th scope="row" { (name) }
                @for column in 0..self.columns().entries.len() { (place(row, column)) }
            } }
        };
        let table = Table {
            label: &label,
            class,
            caption: &caption,
        };
        let columns = std::iter::once(self.corner()).chain(headings(self.columns()));
        table.drawn(
            columns,
            headings(self.rows()).into_iter().enumerate().map(row),
        )
    }

    /// "loss ↓ · delay →".
    fn corner(&self) -> String {
        let (down, across) = (self.rows().by.join(", "), self.columns().by.join(", "));
        match (down.is_empty(), across.is_empty()) {
            (_, true) => down,
            (true, false) => format!("{across} →"),
            (false, false) => format!("{down} ↓ · {across} →"),
        }
    }
}

/// The headings of an axis, in order, for a reader who sees the axis' name beside them.
pub(crate) fn headings(axis: &Axis) -> Vec<String> {
    axis.entries
        .iter()
        .map(|entry| axis.heading(entry))
        .collect()
}

/// The headings of an axis that has no name on the page: numbers with that of their parameter.
pub(crate) fn names(axis: &Axis) -> Vec<String> {
    let name = |entry: &Entry| match (axis.by.as_slice(), entry.values.as_slice()) {
        ([by], [Value::Number(_)]) if entry.label.is_none() => varied(by, &entry.values[0]),
        _ => axis.heading(entry),
    };
    axis.entries.iter().map(name).collect()
}
