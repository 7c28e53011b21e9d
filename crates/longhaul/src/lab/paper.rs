// SPDX-License-Identifier: MIT OR Apache-2.0
//! The paper's own figures as a scenario's file keeps them: of one cell, or a table as it is printed.

use super::{
    book::{Book, Cell, pairs},
    parameters::plain,
    result::Metrics,
};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// What one place of the paper says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaperFigures {
    /// The varied values of the cell; with a table, those that all its cells have in common.
    #[serde(default)]
    pub(crate) cell: Table,
    /// By metric.
    #[serde(default)]
    pub(crate) figures: IndexMap<String, f64>,
    /// Metrics whose printed figure looks wrong: shown, never compared.
    #[serde(default)]
    pub(crate) suspect: Vec<String>,
    /// A whole table instead of `figures`.
    pub(crate) table: Option<PaperTable>,
}

/// A printed table: one metric over two varied parameters.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaperTable {
    metric: String,
    /// What a printed 1 stands for: 1e6 where the paper prints Mbit/s.
    #[serde(default = "one")]
    unit: f64,
    /// The parameter of the columns and its values, in their printed order.
    columns: IndexMap<String, Vec<Value>>,
    rows: IndexMap<String, Vec<Value>>,
    /// Row by row. A row may end early, as those of half a matrix do.
    values: Vec<Vec<f64>>,
    /// Row and column, from 0, of figures that look misprinted.
    #[serde(default)]
    suspect: Vec<(usize, usize)>,
}

fn one() -> f64 {
    1.0
}

/// The figures of one cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Printed {
    pub(crate) figures: Metrics,
    pub(crate) suspect: Vec<String>,
}

/// All that the paper says of `cell`.
pub(crate) fn printed(all: &[PaperFigures], cell: &Cell) -> Printed {
    let mut printed = Printed::default();
    for (place, metric, figure, suspect) in all.iter().flat_map(entries) {
        if cell.matches(&place) {
            printed.figures.insert(metric.to_owned(), figure);
            printed.suspect.extend(suspect.then(|| metric.to_owned()));
        }
    }
    printed
}

/// Every figure belongs to one cell, and a table has as many values as rows and columns.
pub(crate) fn check(
    book: &Book,
    one_cell: impl Fn(&Book, &[(String, String)]) -> Result<usize, String>,
) -> Result<(), String> {
    for paper in &book.base.paper {
        shape(paper)?;
        for (place, ..) in entries(paper) {
            one_cell(book, &place)?;
        }
    }
    Ok(())
}

fn shape(paper: &PaperFigures) -> Result<(), String> {
    let Some(table) = &paper.table else {
        let any = !paper.figures.is_empty();
        return any
            .then_some(())
            .ok_or("give figures or a table".to_owned());
    };
    let (Some(rows), Some(columns)) = (only(&table.rows), only(&table.columns)) else {
        return Err("rows and columns name one parameter each".to_owned());
    };
    let (height, width) = (rows.1.len(), columns.1.len());
    if !paper.figures.is_empty() || !paper.suspect.is_empty() {
        return Err("figures and a table belong into two [[paper]]".to_owned());
    }
    if table.values.len() != height || table.values.iter().any(|row| row.len() > width) {
        return Err(format!(
            "values of {} are no {height} rows of at most {width}",
            table.metric
        ));
    }
    let there = |(row, column): &&(usize, usize)| {
        table
            .values
            .get(*row)
            .is_some_and(|row| *column < row.len())
    };
    match table.suspect.iter().find(|place| !there(place)) {
        Some((row, column)) => Err(format!("suspect: there is no row {row}, column {column}")),
        None => Ok(()),
    }
}

fn only(axis: &IndexMap<String, Vec<Value>>) -> Option<(&String, &Vec<Value>)> {
    axis.first().filter(|_| axis.len() == 1)
}

/// Cell, metric, figure and whether it looks misprinted.
type Entry<'a> = (Vec<(String, String)>, &'a str, f64, bool);

fn entries(paper: &PaperFigures) -> Vec<Entry<'_>> {
    match &paper.table {
        Some(table) => from_table(&pairs(&paper.cell), table),
        None => of_one_cell(paper).collect(),
    }
}

fn of_one_cell(paper: &PaperFigures) -> impl Iterator<Item = Entry<'_>> {
    let place = pairs(&paper.cell);
    paper.figures.iter().map(move |(metric, figure)| {
        let suspect = paper.suspect.contains(metric);
        (place.clone(), metric.as_str(), *figure, suspect)
    })
}

fn from_table<'a>(common: &[(String, String)], table: &'a PaperTable) -> Vec<Entry<'a>> {
    let (Some(rows), Some(columns)) = (only(&table.rows), only(&table.columns)) else {
        return Vec::new();
    };
    let mut entries = Vec::new();
    for (r, (row, values)) in rows.1.iter().zip(&table.values).enumerate() {
        for (c, (column, value)) in columns.1.iter().zip(values).enumerate() {
            let mut place = common.to_vec();
            place.push((rows.0.clone(), plain(row)));
            place.push((columns.0.clone(), plain(column)));
            let suspect = table.suspect.contains(&(r, c));
            entries.push((place, table.metric.as_str(), value * table.unit, suspect));
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#"
        cell = { relays = true }
        [table]
        metric = "goodput_bps"
        unit = 1e6
        columns = { delay = ["0ms", "1ms"] }
        rows = { loss = [0.0, 0.001] }
        values = [[937, 910], [606]]
        suspect = [[1, 0]]
    "#;

    fn read(text: &str) -> PaperFigures {
        toml::from_str(text).unwrap()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn a_printed_table_is_a_figure_for_each_cell() {
        let paper = read(TABLE);
        shape(&paper).unwrap();
        let found = entries(&paper);
        let delays = ["0ms", "1ms", "0ms"];
        let losses = ["0.0", "0.0", "0.001"];
        for ((entry, delay), loss) in found.iter().zip(delays).zip(losses) {
            let place = [
                pair("relays", "true"),
                pair("loss", loss),
                pair("delay", delay),
            ];
            assert_eq!(entry.0, place);
        }
        let figures: Vec<_> = found.iter().map(|entry| (entry.2, entry.3)).collect();
        assert_eq!(figures, [(937e6, false), (910e6, false), (606e6, true)]);
    }

    #[test]
    fn a_table_that_does_not_fit_its_axes_is_refused() {
        let cases = [
            (
                "[[937, 910], [606]]",
                "[[937, 910]]",
                "no 2 rows of at most 2",
            ),
            ("[606]", "[606, 124, 7]", "no 2 rows of at most 2"),
            ("[[1, 0]]", "[[1, 1]]", "no row 1, column 1"),
            ("rows = {", "rows = { size = [1],", "one parameter each"),
            (
                "cell =",
                "figures = { x_bps = 1 }\n cell =",
                "two [[paper]]",
            ),
        ];
        for (from, to, expected) in cases {
            let problem = shape(&read(&TABLE.replace(from, to))).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
        assert!(shape(&read("cell = { n = 1 }")).is_err());
    }
}
