// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table at the end of a run, for a terminal: plain text, ours beside the paper's, the answer
//! as the last line.

use super::{
    report::answer,
    result::{Cell, Check, LabResult},
};
use longhaul_report::columns::{self, aligned};
use longhaul_report::metric::Metric;

/// What stays of a name at least.
const NAME_MIN: usize = 16;

/// The table, the failed checks and the answer, each line ended. On a terminal with so many `columns` a table
/// that is too wide goes without ranges, and names are cut if that is still too wide.
pub fn text(result: &LabResult, columns: Option<usize>) -> String {
    let whole = aligned(&rows(result, true));
    let fits = |columns: &usize| whole.iter().all(|line| width(line) <= *columns);
    let narrow = columns.filter(|columns| !fits(columns));
    let mut lines = match narrow {
        Some(columns) => fitted(rows(result, false), columns),
        None => whole,
    };
    let simulated = result.simulated();
    let said: Vec<String> = simulated
        .map(|cells| format!("simulated, not run on sockets: {cells}"))
        .into_iter()
        .chain(disturbed(result))
        .chain(checks(result))
        .chain(answer_line(result))
        .collect();
    if !said.is_empty() {
        lines.push(String::new());
    }
    lines.extend(said);
    columns::text(&lines)
}

/// A heading row, and for each cell its figures, with their range or without.
fn rows(result: &LabResult, ranges: bool) -> Vec<Vec<String>> {
    let names = result.metric_names();
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
            .flat_map(|name| figures(cell, name, ranges, paper.contains(name)));
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

/// Our figure, with its range or without, and the paper's if any cell has one.
fn figures(cell: &Cell, name: &str, ranges: bool, paper: bool) -> Vec<String> {
    let metric = Metric::of(name);
    let ours = match cell.metrics.get(name) {
        Some(found) if ranges => found.text(&metric),
        Some(found) => metric.print(found.median),
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

/// The rows, aligned, with names in the first column cut so that no line is wider than `columns`, if that helps.
pub fn fitted(mut rows: Vec<Vec<String>>, columns: usize) -> Vec<String> {
    let widest = |lines: &[String]| lines.iter().map(|line| width(line)).max();
    let over = widest(&aligned(&rows)).map_or(0, |widest| widest.saturating_sub(columns));
    let names = rows.iter().filter_map(|row| row.first());
    let room = names
        .map(|name| width(name))
        .max()
        .map_or(0, |names| names.saturating_sub(over));
    for name in rows.iter_mut().filter_map(|row| row.first_mut()) {
        *name = cut(name, room.max(NAME_MIN));
    }
    aligned(&rows)
}

/// So many characters of it at most, with a sign that there was more.
pub fn cut(text: &str, room: usize) -> String {
    match width(text) > room {
        true => text
            .chars()
            .take(room.saturating_sub(1))
            .chain(['…'])
            .collect(),
        false => text.to_owned(),
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// One line a run whose figures say less than those of others.
fn disturbed(result: &LabResult) -> impl Iterator<Item = String> {
    let line = |(cell, why): (&Cell, &str)| format!("disturbed: {}: {why}", cell.name());
    result.disturbed().map(line)
}

/// One line a check that failed or was not decided, and one for those that passed; none without checks.
fn checks(result: &LabResult) -> Vec<String> {
    let all = result.checks.len();
    let passed = result.checks.iter().filter(|check| check.pass).count();
    let line = |check: &Check| {
        let Check { name, want, .. } = check;
        let found = check.found();
        match &check.undecided {
            Some(why) => format!("not decided: {name}: {why}; measured {found}, wanted {want}"),
            None => format!("check failed: {name}: found {found}, wanted {want}"),
        }
    };
    let open = result.checks.iter().filter(|check| !check.pass).map(line);
    let sum = match (passed, all) {
        (0, _) => None,
        (1, 1) => Some("the check passed".to_owned()),
        (passed, all) if passed == all => Some(format!("checks: all {all} passed")),
        (passed, all) => Some(format!("checks: {passed} of {all} passed")),
    };
    open.chain(sum).collect()
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
    use crate::report::made_up::download;

    #[test]
    fn the_table_of_a_whole_result() {
        insta::assert_snapshot!(text(&download(), None));
    }

    #[test]
    fn a_narrow_terminal_has_no_ranges_and_cut_names() {
        let mut result = download();
        result.cells[0].label =
            Some("direct, and a name that leaves nothing to be said".to_owned());
        let widest = |text: &str| text.lines().map(width).max().unwrap();
        let table = |columns| {
            let text = text(&result, Some(columns));
            text.split("\n\n").next().unwrap().to_owned()
        };
        assert!(table(300).contains("nothing to be said") && table(300).contains('['));
        let whole = widest(&table(300));
        let narrow = table(whole - 1);
        assert!(!narrow.contains('['), "{narrow}");
        let cut = table(widest(&narrow) - 20);
        assert!(
            cut.contains('…') && widest(&cut) <= widest(&narrow) - 20,
            "{cut}"
        );
    }

    #[test]
    fn a_suspicious_figure_of_the_paper_is_marked_and_not_compared() {
        let mut result = download();
        result.cells[0].paper_suspect.push("download_s".to_owned());
        let text = text(&result, None);
        assert!(text.contains("91 s?"), "{text}");
        assert!(!text.contains("the paper:"), "{text}");
    }

    #[test]
    fn a_disturbed_run_is_told_above_the_checks() {
        let mut result = download();
        result.cells[1].runs[0].disturbed = Some("the machine was too busy".to_owned());
        let text = text(&result, None);
        let at = |what| text.find(what).unwrap();
        assert!(at("disturbed: two relays: the machine was too busy") < at("check"));
    }

    #[test]
    fn a_check_that_was_not_decided_is_told_with_what_was_measured() {
        let mut result = download();
        result.checks[2].undecided = Some("the machine was too busy".to_owned());
        let text = text(&result, None);
        let line = format!(
            "not decided: {}: the machine was too busy; measured 0.874, wanted >= 0.9\nchecks: 2 of 3 passed\n",
            result.checks[2].name
        );
        assert!(text.contains(&line), "{text}");
        assert!(!text.contains("check failed"), "{text}");
    }

    #[test]
    fn a_cell_whose_runs_all_failed_keeps_its_row() {
        let mut result = download();
        result.cells[1].metrics.clear();
        let text = text(&result, None);
        assert!(
            text.lines()
                .any(|line| line.starts_with("two relays") && line.contains('–')),
            "{text}"
        );
        assert!(!text.contains("faster ("), "{text}");
    }
}
