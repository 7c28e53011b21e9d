// SPDX-License-Identifier: MIT OR Apache-2.0
//! Grid of cells of a facet, its table, and the heading of a figure.

use crate::{
    result::{Cell, LabResult, describe_parameter},
    view::{Axis, Entry, Facet, Figure},
};
use longhaul_report::{chart::caption, table::Table};
use maud::{Markup, html};
use serde_json::Value;

/// Returns the heading of a figure: its title and its note.
pub(crate) fn heading(figure: &Figure) -> Markup {
    caption(&figure.title, figure.note.as_deref().unwrap_or(""))
}

/// Joins the words that are not empty.
pub(crate) fn join_nonempty<'a>(words: impl IntoIterator<Item = &'a str>, between: &str) -> String {
    let words = words.into_iter().filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(between)
}

/// Grid of the cells of a facet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid<'a> {
    facet: &'a Facet,
    cells: &'a [Cell],
}

/// Returns the grids of all facets of a table or figure.
pub(crate) fn grids<'a>(result: &'a LabResult, facets: &'a [Facet]) -> Vec<Grid<'a>> {
    let grid = |facet| Grid {
        facet,
        cells: &result.cells,
    };
    facets.iter().map(grid).collect()
}

impl<'a> Grid<'a> {
    /// Returns the shared values of its cells; empty if there is only one facet.
    pub(crate) fn name(&self) -> String {
        let words: Vec<String> = self
            .facet
            .shared_values
            .iter()
            .map(|(key, value)| describe_parameter(key, value))
            .collect();
        words.join(", ")
    }

    pub(crate) fn rows(&self) -> &'a Axis {
        &self.facet.rows
    }

    pub(crate) fn columns(&self) -> &'a Axis {
        &self.facet.columns
    }

    /// Returns the cell at a position, if it was run.
    pub(crate) fn at(&self, row: usize, column: usize) -> Option<&'a Cell> {
        let index = *self.facet.cells.get(row)?.get(column)?;
        self.cells.get(index?)
    }

    /// Returns the cells of a row.
    pub(crate) fn row(&self, row: usize) -> impl Iterator<Item = &'a Cell> {
        (0..self.facet.columns.entries.len()).filter_map(move |column| self.at(row, column))
    }

    /// Returns all cells that were run.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'a Cell> {
        (0..self.facet.rows.entries.len()).flat_map(move |row| self.row(row))
    }

    /// Returns a table with both axes as headings; `render_cell` renders a cell, `title` is the title of the table or figure.
    pub(crate) fn table(
        &self,
        class: &str,
        title: &str,
        caption: &str,
        render_cell: impl Fn(&Cell) -> Markup,
    ) -> Markup {
        let name = self.name();
        let label = join_nonempty(["Table", title, &name], " · ");
        let caption = join_nonempty([&name, caption], " · ");
        let field = |row, column| match self.at(row, column) {
            Some(cell) => render_cell(cell),
            None => html! { td { "–" } },
        };
        let row = |(row, name)| {
            html! { tr {
                th scope="row" { (name) }
                @for column in 0..self.columns().entries.len() { (field(row, column)) }
            } }
        };
        let table = Table {
            label: &label,
            class,
            caption: &caption,
        };
        let columns = std::iter::once(self.corner()).chain(headings(self.columns()));
        table.render(
            columns,
            headings(self.rows()).into_iter().enumerate().map(row),
        )
    }

    /// Returns the text of the corner: "loss ↓ · delay →".
    fn corner(&self) -> String {
        let (down, across) = (
            self.rows().parameters.join(", "),
            self.columns().parameters.join(", "),
        );
        match (down.is_empty(), across.is_empty()) {
            (_, true) => down,
            (true, false) => format!("{across} →"),
            (false, false) => format!("{down} ↓ · {across} →"),
        }
    }
}

/// Returns the headings of an axis, in order, for a place where the axis has its name beside them.
pub(crate) fn headings(axis: &Axis) -> Vec<String> {
    axis.entries
        .iter()
        .map(|entry| axis.heading(entry))
        .collect()
}

/// Returns the headings of an axis without a name on the page: numbers have the name of their parameter.
pub(crate) fn names(axis: &Axis) -> Vec<String> {
    let name = |entry: &Entry| match (axis.parameters.as_slice(), entry.values.as_slice()) {
        ([by], [Value::Number(_)]) if entry.label.is_none() => {
            describe_parameter(by, &entry.values[0])
        }
        _ => axis.heading(entry),
    };
    axis.entries.iter().map(name).collect()
}
