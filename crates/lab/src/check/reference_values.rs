// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of `[[reference]]`: each figure is of a metric that runs give, and belongs to one cell.

use super::available_metrics::AvailableMetrics;
use crate::{
    evaluation::reference_values::{entries, single_parameter},
    scenario::{
        claim::{ReferenceTable, ReferenceValues},
        config_error::{CheckResult, check_each, ensure, locate_error},
    },
    source::ExperimentPlan,
};

/// Checks that every figure is of a metric that runs give and belongs to one cell, and that a table
/// has as many values as rows and columns.
pub(crate) fn check(experiment: &ExperimentPlan, available: &AvailableMetrics) -> CheckResult {
    check_each(&experiment.scenario.reference, |reference| {
        check_shape(reference)?;
        check_metrics(reference, available)?;
        let mut all = entries(reference).into_iter();
        all.try_for_each(|entry| {
            let found = experiment.find_cell(&entry.cell).map(drop);
            match entry.place {
                None => locate_error("cell", found),
                Some((row, column)) => locate_error(
                    "table",
                    locate_error("values", locate_error(row, locate_error(column, found))),
                ),
            }
        })
    })
}

/// Checks that there are either figures or a table.
fn check_shape(reference: &ReferenceValues) -> CheckResult {
    let Some(table) = &reference.table else {
        return ensure(
            !reference.figures.is_empty(),
            || "[[reference]] has no values; give figures or a table",
        );
    };
    for (key, given) in [
        ("figures", !reference.figures.is_empty()),
        ("exclude", !reference.exclude.is_empty()),
    ] {
        let alone = ensure(
            !given,
            || "[[reference]] has figures and a table; make two [[reference]] of them",
        );
        locate_error(key, alone)?;
    }
    locate_error("table", table.check())
}

/// Checks the names of metrics, and that each excluded figure is printed.
fn check_metrics(reference: &ReferenceValues, available: &AvailableMetrics) -> CheckResult {
    let mut figures = reference.figures.keys();
    locate_error(
        "figures",
        figures.try_for_each(|name| locate_error(name, available.check(name))),
    )?;
    let printed = check_each(&reference.exclude, |name| {
        ensure(reference.figures.contains_key(name), || {
            format!("exclude names {name:?}, but figures has no such metric")
        })
    });
    locate_error("exclude", printed)?;
    match &reference.table {
        Some(table) => locate_error(
            "table",
            locate_error("metric", available.check(&table.metric)),
        ),
        None => Ok(()),
    }
}

impl ReferenceTable {
    fn check(&self) -> CheckResult {
        let [height, width] =
            [("rows", &self.rows), ("columns", &self.columns)].map(|(key, axis)| {
                let values = single_parameter(axis).map(|(_, values)| values.len());
                locate_error(
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
        locate_error("values", fits)?;
        locate_error(
            "exclude",
            check_each(&self.exclude, |place| self.check_position(*place)),
        )
    }

    fn check_position(&self, (row, column): (usize, usize)) -> CheckResult {
        let exists = self.values.get(row).is_some_and(|row| column < row.len());
        ensure(exists, || {
            format!(
                "exclude names row {row}, column {column}, but values has no such place; both count from 0"
            )
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
        let reference = read(TABLE);
        check_shape(&reference).unwrap();
        let found = entries(&reference);
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
            .map(|entry| (entry.value, entry.excluded))
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
            (
                "[[1, 0]]",
                "[[1, 1]]",
                "row 1, column 1, but values has no such place",
            ),
            ("rows = {", "rows = { size = [1],", "one parameter each"),
            (
                "cell =",
                "figures = { x_bps = 1 }\n cell =",
                "two [[reference]]",
            ),
        ];
        for (from, to, expected) in cases {
            let problem = check_shape(&read(&TABLE.replace(from, to)))
                .unwrap_err()
                .to_string();
            assert!(problem.contains(expected), "{problem}");
        }
        assert!(check_shape(&read("cell = { n = 1 }")).is_err());
    }
}
