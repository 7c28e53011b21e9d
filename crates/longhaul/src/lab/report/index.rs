// SPDX-License-Identifier: MIT OR Apache-2.0
//! One page over many results: a row for each experiment, by paper, with the sum of it all on top.

use super::{answer, chosen, heat, href::relative, rebuild_result};
use crate::{
    exit::Refusal,
    lab::{
        metric::{Metric, times},
        result::LabResult,
        summary::Summary,
    },
    page,
};
use anyhow::{Context, Result};
use indexmap::IndexMap;
use maud::{DOCTYPE, Markup, html as markup};
use std::{
    fs,
    path::{Path, PathBuf},
};
use units::Time;

/// Folders in folders that are searched for results.
const DEPTH_MAX: usize = 3;
/// How a page of ours begins, so that no other `index.html` is replaced.
const OURS: &str = "<meta name=\"generator\" content=\"longhaul ";
/// Heading of what no paper asked.
const BEYOND: &str = "Beyond the papers";

/// The directories with a result among `given`: themselves, or those below them.
pub(super) fn results(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for directory in given {
        let below = below(directory, DEPTH_MAX);
        if below.is_empty() {
            let none = format!(
                "{}: no result.json here or below; give what 'longhaul lab run --out' wrote",
                directory.display()
            );
            return Err(Refusal::usage(none));
        }
        found.extend(below);
    }
    Ok(found)
}

fn below(directory: &Path, depth: usize) -> Vec<PathBuf> {
    if directory.join("result.json").is_file() {
        return vec![directory.to_owned()];
    }
    let inside = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = inside.filter(|path| path.is_dir() && depth > 0).collect();
    folders.sort();
    folders
        .iter()
        .flat_map(|folder| below(folder, depth - 1))
        .collect()
}

/// Writes every report anew, and the page over them at `index`.
///
/// # Errors
/// A usage refusal if a result is not readable or `index` is not ours to replace; a failure if a
/// page cannot be written.
pub(super) fn write(results: &[PathBuf], index: &Path) -> Result<()> {
    let from = folder(index)?;
    if fs::read_to_string(index).is_ok_and(|page| !page.contains(OURS)) {
        let foreign = format!(
            "{}: longhaul did not write this file; name another with --index",
            index.display()
        );
        return Err(Refusal::usage(foreign));
    }
    let rows: Vec<Row> = results
        .iter()
        .map(|directory| row(directory, &from))
        .collect::<Result<_>>()?;
    fs::write(index, html(&rows)).with_context(|| format!("cannot write {}", index.display()))
}

fn row(directory: &Path, from: &Path) -> Result<Row> {
    let (result, page) = rebuild_result(directory)?;
    let page = fs::canonicalize(page)?;
    Ok(Row::of(&result, relative(from, &page)))
}

/// The canonical directory of a file that need not exist.
fn folder(file: &Path) -> Result<PathBuf> {
    let parent = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    fs::canonicalize(parent)
        .map_err(|error| Refusal::usage(format!("{}: {error}", parent.display())))
}

/// What the page says of one result.
#[derive(Debug, Clone, Default)]
struct Row {
    link: String,
    scenario: String,
    title: String,
    question: String,
    /// Where the paper's figures come from.
    source: Option<String>,
    ours: String,
    paper: Option<String>,
    /// By what factor ours is better than the paper's; of several cells the median.
    ratio: Option<Ratio>,
    checks: [usize; 2],
    runs: [usize; 2],
    began: jiff::Timestamp,
    took_s: Option<f64>,
    quick: bool,
}

#[derive(Debug, Clone, Copy)]
struct Ratio {
    /// What the page tells, and the range over the cells.
    of: Summary,
    cells: usize,
}

impl Row {
    fn of(result: &LabResult, link: String) -> Self {
        let number = result
            .answer
            .as_ref()
            .and_then(|answer| answer::number(result, answer));
        let about = result.about.clone().unwrap_or_default();
        let runs = || result.cells.iter().flat_map(|cell| &cell.runs);
        let ratio = number
            .as_ref()
            .and_then(|number| number.ratio)
            .map(|ratio| Ratio::of(&[ratio]));
        Self {
            link,
            scenario: result.scenario.clone(),
            title: result.title().to_owned(),
            question: about.question.unwrap_or_default(),
            source: about.paper,
            ours: ours(result, number.as_ref()),
            paper: number
                .and_then(|number| number.paper)
                .or_else(|| papers(result)),
            ratio: ratio.flatten().or_else(|| Ratio::of(&ratios(result))),
            checks: [
                result.checks.iter().filter(|check| check.pass).count(),
                result.checks.len(),
            ],
            runs: [
                runs().filter(|run| run.failed.is_none()).count(),
                runs().count(),
            ],
            began: result.started,
            took_s: result.took_s,
            quick: result.quick,
        }
    }

    /// Every check holds, and every run gave a figure.
    fn passed(&self) -> bool {
        self.checks[0] == self.checks[1] && self.runs[0] == self.runs[1]
    }

    /// Whose experiment: the source up to its first comma or colon outside brackets.
    fn paper_name(&self) -> &str {
        let Some(source) = &self.source else {
            return BEYOND;
        };
        let mut depth = 0;
        let ends = |c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0 && matches!(c, ',' | ':' | ';')
        };
        source.split(ends).next().unwrap_or(source)
    }
}

impl Ratio {
    fn of(ratios: &[f64]) -> Option<Self> {
        Some(Self {
            of: Summary::of(ratios.iter().copied())?,
            cells: ratios.len(),
        })
    }
}

fn ours(result: &LabResult, number: Option<&answer::Number>) -> String {
    match (number, &result.answer, result.main_metric()) {
        (Some(number), Some(answer), _) => answer.sentence.replacen("{}", &number.ours, 1),
        (_, _, Some(metric)) => chosen::finding(result, metric),
        _ => "no figure".to_owned(),
    }
}

/// The paper's figures of the first metric that has any: "14.5 Mbit/s to 937 Mbit/s".
fn papers(result: &LabResult) -> Option<String> {
    let name = compared(result)?;
    let range = Summary::of(
        result
            .cells
            .iter()
            .filter_map(|cell| cell.paper_figure(name)),
    )?;
    let metric = Metric::of(name);
    Some(match range.min < range.max {
        true => format!(
            "{}: {} to {}",
            metric.label,
            metric.print(range.min),
            metric.print(range.max)
        ),
        false => format!("{}: {}", metric.label, metric.print(range.min)),
    })
}

fn ratios(result: &LabResult) -> Vec<f64> {
    let of = |name: &str| {
        result
            .cells
            .iter()
            .filter_map(|cell| heat::ratio(cell, name))
            .collect()
    };
    compared(result).map_or_else(Vec::new, of)
}

/// The main metric if the paper has it, else the first that it has.
fn compared(result: &LabResult) -> Option<&str> {
    let mut names = result.main_metric().into_iter().chain(
        result
            .cells
            .iter()
            .flat_map(|cell| cell.paper.keys().map(String::as_str)),
    );
    names.find(|name| {
        result
            .cells
            .iter()
            .any(|cell| heat::ratio(cell, name).is_some())
    })
}

fn html(rows: &[Row]) -> String {
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by_key(|row| {
        (
            row.source.is_none(),
            row.source.clone(),
            row.scenario.clone(),
        )
    });
    let mut papers: IndexMap<&str, Vec<&Row>> = IndexMap::new();
    rows.iter()
        .for_each(|row| papers.entry(row.paper_name()).or_default().push(row));
    markup! {
        (DOCTYPE)
        html lang="en" {
            (page::head("Experiments", env!("LONGHAUL_VERSION"), ""))
            body {
                (page::skip_link())
                header { (summary(&rows)) }
                main id="main" tabindex="-1" {
                    @for (paper, rows) in &papers { (section(paper, rows)) }
                }
            }
        }
    }
    .into_string()
}

/// The sum of it all.
fn summary(rows: &[&Row]) -> Markup {
    let judged = rows.iter().filter(|row| row.checks[1] > 0);
    let passed = judged.clone().filter(|row| row.passed()).count();
    let checks = |n: usize| rows.iter().map(|row| row.checks[n]).sum::<usize>();
    let compared: Vec<f64> = rows
        .iter()
        .filter_map(|row| Some(row.ratio?.of.median))
        .collect();
    let reached = compared.iter().filter(|ratio| **ratio >= 1.0).count();
    let took = rows.iter().filter_map(|row| row.took_s).sum::<f64>();
    let quick = rows.iter().filter(|row| row.quick).count();
    markup! {
        p.kicker { "longhaul lab" }
        h1 { (rows.len()) " experiments" }
        p.answer { strong { (passed) " of " (judged.count()) } " pass all their checks" }
        p.beside {
            (checks(0)) " of " (checks(1)) " checks passed."
            @if !compared.is_empty() {
                " Ours is at least the paper’s figure in " (reached) " of " (compared.len()) " experiments that have one."
            }
            @if took > 0.0 { " All runs took " (Time::from_secs_f64(took)) "." }
        }
        @if quick > 0 { p.note { (quick) @if quick == 1 { " was" } @else { " were" } " shortened by " code { "--quick" } ": a first look." } }
    }
}

fn section(paper: &str, rows: &[&Row]) -> Markup {
    const HEADINGS: [&str; 6] = [
        "Experiment",
        "Ours",
        "The paper",
        "Ours / paper",
        "Checks",
        "Run",
    ];
    markup! {
        section {
            h2 { (paper) }
            div.scroll tabindex="0" role="region" aria-label=(paper) {
                table.cards.experiments {
                    thead { tr { @for name in HEADINGS { th scope="col" { (name) } } } }
                    tbody { @for row in rows { (line(row, &HEADINGS)) } }
                }
            }
        }
    }
}

fn line(row: &Row, headings: &[&str; 6]) -> Markup {
    markup! {
        tr {
            th scope="row" {
                a href=(row.link) { (row.title) }
                small { code { (row.scenario) } }
                @if !row.question.is_empty() { small { (row.question) } }
            }
            td.words data-label=(headings[1]) { (row.ours) }
            td.words data-label=(headings[2]) { (row.paper.as_deref().unwrap_or("–")) }
            td data-label=(headings[3]) { (ratio(row.ratio)) }
            td data-label=(headings[4]) { (checks(row)) }
            td data-label=(headings[5]) { (run(row)) }
        }
    }
}

fn ratio(ratio: Option<Ratio>) -> Markup {
    markup! {
        @match ratio {
            None => { "–" }
            Some(Ratio { of, cells }) => {
                strong.good[of.median >= 1.0] { (times(of.median)) }
                @if cells > 1 { small { "median of " (cells) " cells [" (times(of.min)) " – " (times(of.max)) "]" } }
            }
        }
    }
}

fn checks(row: &Row) -> Markup {
    let ([passed, all], [good, runs]) = (row.checks, row.runs);
    markup! {
        @if all == 0 { "none" }
        @else if passed == all { span.pass { "✓ all " (all) } }
        @else { span.fail { "✗ " (all - passed) " of " (all) " failed" } }
        @if good < runs { small.fail { (runs - good) " of " (runs) " runs failed" } }
    }
}

fn run(row: &Row) -> Markup {
    markup! {
        time datetime=(row.began) { (row.began.strftime("%Y-%m-%d %H:%M")) }
        @if let Some(took_s) = row.took_s { small { (Time::from_secs_f64(took_s)) } }
        @if row.quick { small { "quick run" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture() -> LabResult {
        serde_json::from_str(include_str!("../../../tests/fixtures/made-up-result.json")).unwrap()
    }

    fn row(source: Option<&str>) -> Row {
        Row {
            source: source.map(str::to_owned),
            ..Row::of(&fixture(), "a/report.html".to_owned())
        }
    }

    #[test]
    fn experiments_stand_under_the_authors_of_their_paper() {
        let name = |source| row(source).paper_name().to_owned();
        assert_eq!(
            name(Some(
                "Hiraki and Inaba (Data Reservoir, SC2003): 32 streams"
            )),
            "Hiraki and Inaba (Data Reservoir, SC2003)"
        );
        assert_eq!(
            name(Some("Masuya (Kagoshima), dividing, table 1")),
            "Masuya (Kagoshima)"
        );
        assert_eq!(name(None), BEYOND);
        let page = html(&[row(None), row(Some("B, 2")), row(Some("A, 1"))]);
        let headings: Vec<&str> = page
            .split("<h2>")
            .skip(1)
            .map(|part| part.split('<').next().unwrap())
            .collect();
        assert_eq!(headings, ["A", "B", BEYOND]);
    }

    #[test]
    fn a_row_tells_ours_the_papers_and_their_ratio() {
        let row = row(None);
        assert_eq!(row.ours, "Two relays make the download 7.5× faster");
        assert_eq!(row.paper.as_deref(), Some("5.69×, from 91 s to 16 s"));
        let ratio = row.ratio.unwrap().of.median;
        assert!((ratio - 7.4976 / 5.6875).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn without_an_answer_the_ratio_is_the_median_over_cells() {
        let mut result = fixture();
        result.answer = None;
        for (cell, ours) in result.cells.iter_mut().zip([1.0, 3.0]) {
            cell.metrics = [("goodput_bps".to_owned(), Summary::of([ours]).unwrap())].into();
            cell.paper = [("goodput_bps".to_owned(), 2.0)].into();
        }
        let ratio = Row::of(&result, String::new()).ratio.unwrap();
        assert_eq!(
            (ratio.of.min, ratio.of.median, ratio.of.max, ratio.cells),
            (0.5, 1.0, 1.5, 2)
        );
    }

    #[test]
    fn a_directory_of_results_gets_an_index_and_a_stranger_keeps_its_own() {
        let top = tempfile::tempdir().unwrap();
        for name in ["one", "two words"] {
            fs::create_dir(top.path().join(name)).unwrap();
            fs::write(
                top.path().join(name).join("result.json"),
                serde_json::to_string(&fixture()).unwrap(),
            )
            .unwrap();
        }
        let found = results(&[top.path().to_owned()]).unwrap();
        let index = top.path().join("index.html");
        write(&found, &index).unwrap();
        write(&found, &index).unwrap();
        let page = fs::read_to_string(&index).unwrap();
        assert!(
            page.contains("href=\"./two%20words/report.html\""),
            "{page}"
        );
        assert!(top.path().join("one/report.html").is_file());
        fs::write(&index, "mine").unwrap();
        let error = write(&found, &index).unwrap_err();
        assert!(
            matches!(error.downcast_ref(), Some(Refusal::Usage(_))),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&index).unwrap(), "mine");
    }

    #[test]
    fn a_directory_without_results_is_refused() {
        let empty = tempfile::tempdir().unwrap();
        let error = results(&[empty.path().to_owned()]).unwrap_err();
        assert!(
            matches!(error.downcast_ref(), Some(Refusal::Usage(_))),
            "{error}"
        );
    }

    #[test]
    fn the_page_over_all_is_good_on_a_desk_and_on_a_phone() {
        let failed = Row {
            checks: [1, 2],
            runs: [3, 4],
            ratio: None,
            ..row(None)
        };
        let quick = Row {
            quick: true,
            took_s: Some(80.0),
            ratio: Ratio::of(&[0.5, 1.5]),
            ..row(Some("A, 1"))
        };
        crate::page::in_browser::assert_good(&html(&[failed, quick, row(Some("B, 2"))]), 0);
    }
}
