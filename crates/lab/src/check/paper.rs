// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of `[[reference]]`: each figure is of a metric that runs give, and belongs to one cell.

use super::available_metrics::AvailableMetrics;
use crate::{
    evaluation::paper::{entries, single_parameter},
    scenario::{
        claim::{ReferenceTable, ReferenceValues},
        config_error::{CheckResult, check_each, ensure, in_key},
    },
    source::ExperimentPlan,
};

/// Checks that every figure is of a metric that runs give and belongs to one cell, and that a table
/// has as many values as rows and columns.
pub(crate) fn check(experiment: &ExperimentPlan, available: &AvailableMetrics) -> CheckResult {
    check_each(&experiment.scenario.reference, |paper| {
        shape(paper)?;
        metrics(paper, available)?;
        let mut all = entries(paper).into_iter();
        all.try_for_each(|entry| {
            let one = experiment.find_cell(&entry.cell).map(drop);
            match entry.place {
                None => in_key("cell", one),
                Some((row, column)) => {
                    in_key("table", in_key("values", in_key(row, in_key(column, one))))
                }
            }
        })
    })
}

fn shape(paper: &ReferenceValues) -> CheckResult {
    let Some(table) = &paper.table else {
        return ensure(!paper.figures.is_empty(), || "give figures or a table");
    };
    for (key, given) in [
        ("figures", !paper.figures.is_empty()),
        ("exclude", !paper.exclude.is_empty()),
    ] {
        let alone = ensure(!given, || "figures and a table need two [[reference]]");
        in_key(key, alone)?;
    }
    in_key("table", table.check())
}

/// Checks the names of metrics, and that each excluded figure is printed.
fn metrics(paper: &ReferenceValues, available: &AvailableMetrics) -> CheckResult {
    let mut figures = paper.figures.keys();
    in_key(
        "figures",
        figures.try_for_each(|name| in_key(name, available.check(name))),
    )?;
    let printed = check_each(&paper.exclude, |name| {
        ensure(paper.figures.contains_key(name), || {
            format!("exclude: there is no figure {name:?} here")
        })
    });
    in_key("exclude", printed)?;
    match &paper.table {
        Some(table) => in_key("table", in_key("metric", available.check(&table.metric))),
        None => Ok(()),
    }
}

impl ReferenceTable {
    fn check(&self) -> CheckResult {
        let [height, width] =
            [("rows", &self.rows), ("columns", &self.columns)].map(|(key, axis)| {
                let values = single_parameter(axis).map(|(_, values)| values.len());
                in_key(
                    key,
                    values.ok_or("rows and columns name one parameter each"),
                )
            });
        let (height, width) = (height?, width?);
        let fits = self.values.len() == height && self.values.iter().all(|row| row.len() <= width);
        let fits = ensure(fits, || {
            format!(
                "values of {} are not {height} rows of at most {width}",
                self.metric
            )
        });
        in_key("values", fits)?;
        in_key(
            "exclude",
            check_each(&self.exclude, |place| self.has(*place)),
        )
    }

    fn has(&self, (row, column): (usize, usize)) -> CheckResult {
        let there = self.values.get(row).is_some_and(|row| column < row.len());
        ensure(there, || {
            format!("exclude: there is no row {row}, column {column}")
        })
    }
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
        exclude = [[1, 0]]
    "#;

    fn read(text: &str) -> ReferenceValues {
        toml::from_str(text).unwrap()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn a_table_gives_one_figure_per_cell() {
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
            assert_eq!(entry.cell, place);
        }
        let figures: Vec<_> = found
            .iter()
            .map(|entry| (entry.figure, entry.excluded))
            .collect();
        assert_eq!(figures, [(937e6, false), (910e6, false), (606e6, true)]);
    }

    #[test]
    fn refuses_a_table_that_does_not_fit_its_axes() {
        let cases = [
            (
                "[[937, 910], [606]]",
                "[[937, 910]]",
                "not 2 rows of at most 2",
            ),
            ("[606]", "[606, 124, 7]", "not 2 rows of at most 2"),
            ("[[1, 0]]", "[[1, 1]]", "no row 1, column 1"),
            ("rows = {", "rows = { size = [1],", "one parameter each"),
            (
                "cell =",
                "figures = { x_bps = 1 }\n cell =",
                "two [[reference]]",
            ),
        ];
        for (from, to, expected) in cases {
            let problem = shape(&read(&TABLE.replace(from, to)))
                .unwrap_err()
                .to_string();
            assert!(problem.contains(expected), "{problem}");
        }
        assert!(shape(&read("cell = { n = 1 }")).is_err());
    }
}
