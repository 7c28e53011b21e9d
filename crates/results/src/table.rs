// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table at the end of a run, for a terminal: plain text with measured and reference values. The headline is the last
//! line.

use super::{
    report::headline,
    result::{Cell, Check, LabResult},
};
use longhaul_report::columns::{self, align};
use longhaul_report::metric::Metric;

/// Minimum length of a shortened name.
const NAME_MIN: usize = 16;

/// Columns of a table that is too narrow for all: the names and one value.
const TABLE_COLUMNS_MIN: usize = 2;

/// Returns the table, the failed checks and the headline, each line terminated. With `columns`, a table that is too wide
/// has no ranges. If it is still too wide, it has fewer values, and at last shortened names.
pub fn render(result: &LabResult, columns: Option<usize>) -> String {
    let full_table = align(&rows(result, true));
    let fits = |columns: &usize| full_table.iter().all(|line| width(line) <= *columns);
    let narrow = columns.filter(|columns| !fits(columns));
    let mut lines = match narrow {
        Some(columns) => narrow_table(rows(result, false), columns),
        None => full_table,
    };
    let simulated = result.simulated();
    let notes: Vec<String> = simulated
        .map(|cells| format!("simulated, not run on sockets: {cells}"))
        .into_iter()
        .chain(overload_lines(result))
        .chain(checks(result))
        .chain(headline(result))
        .collect();
    if !notes.is_empty() {
        lines.push(String::new());
    }
    lines.extend(notes);
    columns::join_lines(&lines)
}

/// Aligns the rows without the last columns that do not fit, and says how many there are.
fn narrow_table(mut rows: Vec<Vec<String>>, columns: usize) -> Vec<String> {
    let all = rows.first().map_or(0, Vec::len);
    let mut shown = all;
    while shown > TABLE_COLUMNS_MIN && widest(&align(&rows)) > columns {
        shown -= 1;
        rows.iter_mut().for_each(|row| row.truncate(shown));
    }
    let mut lines = align_within(rows, columns);
    match all - shown {
        0 => {}
        1 => lines.push("The report has one more column.".to_owned()),
        more => lines.push(format!("The report has {more} more columns.")),
    }
    lines
}

/// Returns the heading row, then a row for each cell with its values, with ranges if `ranges` is set.
fn rows(result: &LabResult, ranges: bool) -> Vec<Vec<String>> {
    let names = result.metric_names();
    let with_reference: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| has_reference(result, name))
        .collect();
    let heading = |name: &str| {
        if with_reference.contains(&name) {
            vec![Metric::of(name).label, "reference".to_owned()]
        } else {
            vec![Metric::of(name).label]
        }
    };
    let headings = ["cell".to_owned()]
        .into_iter()
        .chain(names.iter().flat_map(|n| heading(n)));
    let mut rows = vec![headings.collect()];
    for cell in &result.cells {
        let values = names
            .iter()
            .flat_map(|name| values(cell, name, ranges, with_reference.contains(name)));
        rows.push([cell.name()].into_iter().chain(values).collect());
    }
    rows
}

fn has_reference(result: &LabResult, name: &str) -> bool {
    result
        .cells
        .iter()
        .any(|cell| cell.reference.contains_key(name))
}

/// Returns the measured value, and the reference value if any cell has one.
fn values(cell: &Cell, name: &str, ranges: bool, with_reference: bool) -> Vec<String> {
    let metric = Metric::of(name);
    let measured = match cell.metrics.get(name) {
        Some(found) if ranges => found.text(&metric),
        Some(found) => metric.format(found.median),
        None => "–".to_owned(),
    };
    let reference = || match cell.reference.get(name) {
        Some(value) if cell.reference_value(name).is_none() => {
            format!("{} (excluded)", metric.format(*value))
        }
        Some(value) => metric.format(*value),
        None => "–".to_owned(),
    };
    if with_reference {
        vec![measured, reference()]
    } else {
        vec![measured]
    }
}

/// Aligns the rows. Names in the first column are shortened so that no line is wider than `columns`, if possible.
pub fn align_within(mut rows: Vec<Vec<String>>, columns: usize) -> Vec<String> {
    let excess = widest(&align(&rows)).saturating_sub(columns);
    let names = rows.iter().filter_map(|row| row.first());
    let name_width = names
        .map(|name| width(name))
        .max()
        .map_or(0, |names| names.saturating_sub(excess));
    for name in rows.iter_mut().filter_map(|row| row.first_mut()) {
        *name = shorten(name, name_width.max(NAME_MIN));
    }
    align(&rows)
}

/// Shortens a text to `length_max` characters, with an ellipsis at the end.
pub fn shorten(text: &str, length_max: usize) -> String {
    if width(text) > length_max {
        text.chars()
            .take(length_max.saturating_sub(1))
            .chain(['…'])
            .collect()
    } else {
        text.to_owned()
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn widest(lines: &[String]) -> usize {
    lines.iter().map(|line| width(line)).max().unwrap_or(0)
}

/// Returns a line for each run during which the host was overloaded.
fn overload_lines(result: &LabResult) -> impl Iterator<Item = String> {
    let line = |(cell, why): (&Cell, &str)| format!("{}: {why}", cell.name());
    result.overloaded_runs().map(line)
}

/// Returns a line for each check that failed or is undecided, and one for those that passed.
fn checks(result: &LabResult) -> Vec<String> {
    let all = result.checks.len();
    let passed = result.checks.iter().filter(|check| check.pass).count();
    let line = |check: &Check| {
        let Check {
            name, threshold, ..
        } = check;
        let measured = check.value_text();
        match &check.undecided {
            Some(why) => format!(
                "check undecided: {name}: {why}; measured {measured}, threshold {threshold}"
            ),
            None => format!("check failed: {name}: measured {measured}, threshold {threshold}"),
        }
    };
    let unresolved = result.checks.iter().filter(|check| !check.pass).map(line);
    let sum = match (passed, all) {
        (0, _) => None,
        (1, 1) => Some("the check passed".to_owned()),
        (passed, all) if passed == all => Some(format!("checks: all {all} passed")),
        (passed, all) => Some(format!("checks: {passed} of {all} passed")),
    };
    unresolved.chain(sum).collect()
}

fn headline(result: &LabResult) -> Option<String> {
    let headline = result.headline.as_ref()?;
    let value = headline::value(result, headline)?;
    let reference = value.reference.map_or(String::new(), |reference| {
        format!(" (reference: {reference})")
    });
    let quick = if result.quick { " [quick run]" } else { "" };
    Some(format!(
        "{}{reference}{quick}",
        headline.template.replacen("{}", &value.text, 1)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::download;

    #[test]
    fn prints_all_parts_of_a_result() {
        insta::assert_snapshot!(render(&download(), None));
    }

    #[test]
    fn drops_ranges_then_columns_and_shortens_names_on_a_narrow_terminal() {
        let mut result = download();
        let name = "direct, and a name too long for the terminal";
        result.cells[0].label = Some(name.to_owned());
        let table = |columns| {
            let text = render(&result, Some(columns));
            let table = text.split("\n\n").next().unwrap().to_owned();
            assert!(table.lines().all(|line| width(line) <= columns), "{table}");
            table
        };
        let full = table(300);
        assert!(full.contains(name) && full.contains('['));
        let wide = |table: &str| table.lines().map(width).max().unwrap();
        let without_ranges = table(wide(&full) - 1);
        assert!(!without_ranges.contains('['), "{without_ranges}");
        assert!(!without_ranges.contains("more column"), "{without_ranges}");
        let fewer = table(wide(&without_ranges) - 1);
        assert!(fewer.contains(name), "{fewer}");
        assert!(
            fewer.ends_with("The report has one more column."),
            "{fewer}"
        );
        let shortened = table(40);
        assert!(shortened.contains('…'), "{shortened}");
        assert!(shortened.contains("more columns."), "{shortened}");
    }

    #[test]
    fn marks_excluded_reference_values() {
        let mut result = download();
        result.cells[0]
            .reference_excluded
            .push("download_s".to_owned());
        let text = render(&result, None);
        assert!(text.contains("91 s (excluded)"), "{text}");
        assert!(!text.contains("reference:"), "{text}");
    }

    #[test]
    fn lists_overloaded_runs_before_checks() {
        let mut result = download();
        result.cells[1].runs[0].overload = Some("emulator late".to_owned());
        let text = render(&result, None);
        let at = |what| text.find(what).unwrap();
        assert!(at("two relays: emulator late") < at("check"));
    }

    #[test]
    fn lists_undecided_checks_with_measured_value() {
        let mut result = download();
        result.checks[2].undecided = Some("the emulator was late".to_owned());
        let text = render(&result, None);
        let line = format!(
            "check undecided: {}: the emulator was late; measured 0.874, threshold >= 0.9\nchecks: 2 of 3 passed\n",
            result.checks[2].name
        );
        assert!(text.contains(&line), "{text}");
        assert!(!text.contains("check failed"), "{text}");
    }

    #[test]
    fn keeps_row_of_cell_without_valid_run() {
        let mut result = download();
        result.cells[1].metrics.clear();
        let text = render(&result, None);
        assert!(
            text.lines()
                .any(|line| line.starts_with("two relays") && line.contains('–')),
            "{text}"
        );
        assert!(!text.contains("faster ("), "{text}");
    }
}
