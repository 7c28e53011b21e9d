// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table at the end of a run, for a terminal: plain text, ours beside the paper's, the answer
//! as the last line.

use super::{
    metric::Metric,
    report::answer,
    result::{Cell, LabResult},
};
use indexmap::IndexSet;

/// Space between columns.
const GAP: usize = 3;

/// The table, the failed checks and the answer, each line ended.
pub(crate) fn text(result: &LabResult) -> String {
    let mut lines = aligned(&rows(result));
    lines.push(String::new());
    lines.extend(disturbed(result));
    lines.extend(checks(result));
    lines.extend(answer_line(result));
    lines
        .iter()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

/// A heading row, and for each cell its figures.
fn rows(result: &LabResult) -> Vec<Vec<String>> {
    let names: IndexSet<&str> = result
        .cells
        .iter()
        .flat_map(|cell| cell.metrics.keys().map(String::as_str))
        .collect();
    let paper: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| has_paper(result, name))
        .collect();
    let heading = |name: &str| match paper.contains(&name) {
        true => vec![Metric::of(name).label, "paper".to_owned()],
        false => vec![Metric::of(name).label],
    };
    let first = ["cell".to_owned()]
        .into_iter()
        .chain(names.iter().flat_map(|n| heading(n)));
    let mut rows = vec![first.collect()];
    for cell in &result.cells {
        let figures = names
            .iter()
            .flat_map(|name| figures(cell, name, paper.contains(name)));
        rows.push([cell.name()].into_iter().chain(figures).collect());
    }
    rows
}

fn has_paper(result: &LabResult, name: &str) -> bool {
    result
        .cells
        .iter()
        .any(|cell| cell.paper.contains_key(name))
}

/// Our figure with its range, and the paper's if any cell has one.
fn figures(cell: &Cell, name: &str, paper: bool) -> Vec<String> {
    let metric = Metric::of(name);
    let ours = match cell.metrics.get(name) {
        Some(s) if s.min < s.max => {
            format!(
                "{} [{} – {}]",
                metric.print(s.median),
                metric.print(s.min),
                metric.print(s.max)
            )
        }
        Some(s) => metric.print(s.median),
        None => "–".to_owned(),
    };
    let theirs = || match cell.paper.get(name) {
        Some(value) if cell.paper_figure(name).is_none() => format!("{}?", metric.print(*value)),
        Some(value) => metric.print(*value),
        None => "–".to_owned(),
    };
    if paper {
        vec![ours, theirs()]
    } else {
        vec![ours]
    }
}

/// The rows with their columns padded to one width each.
pub(crate) fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|text| text.chars().count())
            .max()
    };
    let pad = |(column, text): (usize, &String)| {
        format!("{text:<width$}", width = width(column).unwrap_or(0) + GAP)
    };
    rows.iter()
        .map(|row| row.iter().enumerate().map(pad).collect())
        .collect()
}

/// One line a run whose figures say less than those of others.
fn disturbed(result: &LabResult) -> impl Iterator<Item = String> {
    let line = |(cell, why): (&Cell, &str)| format!("disturbed: {}: {why}", cell.name());
    result.disturbed().map(line)
}

/// One line a failed check, or one for all that passed.
fn checks(result: &LabResult) -> Vec<String> {
    let failed = || result.checks.iter().filter(|check| !check.pass);
    match failed().count() {
        0 => vec![format!("checks: all {} passed", result.checks.len())],
        _ => failed()
            .map(|c| {
                format!(
                    "check failed: {}: found {}, wanted {}",
                    c.name, c.value, c.want
                )
            })
            .collect(),
    }
}

fn answer_line(result: &LabResult) -> Option<String> {
    let answer = result.answer.as_ref()?;
    let number = answer::number(result, answer)?;
    let paper = number
        .paper
        .map_or(String::new(), |paper| format!(" (the paper: {paper})"));
    let quick = if result.quick { " [quick run]" } else { "" };
    Some(format!(
        "{}{paper}{quick}",
        answer.sentence.replacen("{}", &number.ours, 1)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result whose figures are made up.
    fn fixture() -> LabResult {
        serde_json::from_str(include_str!("../../tests/fixtures/made-up-result.json")).unwrap()
    }

    #[test]
    fn the_table_of_a_whole_result() {
        insta::assert_snapshot!(text(&fixture()));
    }

    #[test]
    fn a_suspicious_figure_of_the_paper_is_marked_and_not_compared() {
        let mut result = fixture();
        result.cells[0].paper_suspect.push("download_s".to_owned());
        let text = text(&result);
        assert!(text.contains("91 s?"), "{text}");
        assert!(!text.contains("the paper:"), "{text}");
    }

    #[test]
    fn a_disturbed_run_is_told_above_the_checks() {
        let mut result = fixture();
        result.cells[1].runs[0].disturbed = Some("the machine was too busy".to_owned());
        let text = text(&result);
        let at = |what| text.find(what).unwrap();
        assert!(at("disturbed: two relays: the machine was too busy") < at("check"));
    }

    #[test]
    fn a_cell_whose_runs_all_failed_keeps_its_row() {
        let mut result = fixture();
        result.cells[1].metrics.clear();
        let text = text(&result);
        assert!(
            text.lines()
                .any(|line| line.starts_with("two relays") && line.contains('–')),
            "{text}"
        );
        assert!(!text.contains("faster ("), "{text}");
    }
}
