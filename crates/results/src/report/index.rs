// SPDX-License-Identifier: MIT OR Apache-2.0
//! Index page of many results: a row for each experiment, grouped by source, with a summary on top.

use super::{
    document::{rebuild, rebuild_result},
    experiment::{Experiment, Ratio},
};
use anyhow::{Context, Result};
use indexmap::IndexMap;
use longhaul_command::exit::Refusal;
use longhaul_report::{metric::format_factor, page::Page, table::Table};
use longhaul_units::Time;
use maud::{Markup, html as markup};
use std::{
    fmt::Write as _,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Maximum depth of directories that are searched for results.
const DEPTH_MAX: usize = 3;
/// Marker of longhaul's pages, so that no other `index.html` is replaced.
pub const GENERATOR_MARK: &str = "<meta name=\"generator\" content=\"longhaul ";

/// Writes the pages of all results in or below `directories`, and the index page if there is more than one result or
/// `index` names it. Returns the paths of the pages to open.
///
/// # Errors
/// A directory has no readable result: a usage refusal. A page cannot be written: a failure.
pub fn pages(directories: &[PathBuf], index: Option<&Path>) -> Result<Vec<PathBuf>> {
    let results = results(directories)?;
    let is_single = results.len() == 1 && results == directories;
    if is_single && index.is_none() {
        return Ok(vec![rebuild(&results[0])?]);
    }
    let default_index = match directories {
        [only] => only.join("index.html"),
        _ => PathBuf::from("index.html"),
    };
    let index = index.map_or(default_index, Path::to_owned);
    write(&results, &index)?;
    Ok(vec![index])
}

/// Returns the directories with a result in or below those given.
fn results(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for directory in given {
        let below = find_results(directory, DEPTH_MAX);
        if below.is_empty() {
            let message = format!(
                "{}: no result.json here or below; give what 'longhaul lab run --out' wrote",
                directory.display()
            );
            return Err(Refusal::usage(message));
        }
        found.extend(below);
    }
    Ok(found)
}

fn find_results(directory: &Path, depth: usize) -> Vec<PathBuf> {
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
        .flat_map(|directory| find_results(directory, depth - 1))
        .collect()
}

/// Writes every report, and the index page at `index`.
///
/// # Errors
/// A result is not readable or longhaul did not write `index`: a usage refusal. A page cannot be written: a failure.
fn write(results: &[PathBuf], index: &Path) -> Result<()> {
    let from = parent_directory(index)?;
    if fs::read_to_string(index).is_ok_and(|page| !page.contains(GENERATOR_MARK)) {
        let message = format!(
            "{}: longhaul did not write this file; name another with --index",
            index.display()
        );
        return Err(Refusal::usage(message));
    }
    let rows: Vec<Experiment> = results
        .iter()
        .map(|directory| row(directory, &from))
        .collect::<Result<_>>()?;
    fs::write(index, html(&rows)).with_context(|| format!("cannot write {}", index.display()))
}

fn row(directory: &Path, from: &Path) -> Result<Experiment> {
    let (result, page) = rebuild_result(directory)?;
    let page = fs::canonicalize(page)?;
    Ok(Experiment::new(&result, relative(from, &page)))
}

/// Returns the relative URL of `file` for a page in the directory `from`; both are canonical.
fn relative(from: &Path, file: &Path) -> String {
    let shared = from
        .components()
        .zip(file.components())
        .take_while(|(a, b)| a == b)
        .count();
    let up = "../".repeat(from.components().count() - shared);
    let down: PathBuf = file.components().skip(shared).collect();
    if up.is_empty() {
        format!("./{}", percent_encode(&down))
    } else {
        up + &percent_encode(&down)
    }
}

/// Encodes a path for a URL (RFC 3986, 2.3): all bytes but unreserved ones and `/` are percent-encoded.
fn percent_encode(path: &Path) -> String {
    let mut url = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                url.push(char::from(*byte));
            }
            other => {
                let _ = write!(url, "%{other:02X}");
            }
        }
    }
    url
}

/// Returns the canonical directory of a file that need not exist.
fn parent_directory(file: &Path) -> Result<PathBuf> {
    let parent = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    fs::canonicalize(parent)
        .map_err(|error| Refusal::usage(format!("{}: {error}", parent.display())))
}

fn html(rows: &[Experiment]) -> String {
    let mut rows: Vec<&Experiment> = rows.iter().collect();
    rows.sort_by_key(|row| {
        (
            row.source.is_none(),
            row.source.clone(),
            row.scenario.clone(),
        )
    });
    let mut sources: IndexMap<&str, Vec<&Experiment>> = IndexMap::new();
    rows.iter()
        .for_each(|row| sources.entry(row.source_name()).or_default().push(row));
    Page {
        title: "Experiments",
        longhaul: longhaul_command::version(),
        header: summary(&rows),
        main: markup! { @for (source, rows) in &sources { (section(source, rows)) } },
        ..Page::default()
    }
    .html()
}

/// Returns the summary of all experiments.
fn summary(rows: &[&Experiment]) -> Markup {
    let checked_rows = rows.iter().filter(|row| row.checks[1] > 0);
    let passed = checked_rows.clone().filter(|row| row.has_passed()).count();
    let checks = |n: usize| rows.iter().map(|row| row.checks[n]).sum::<usize>();
    let compared: Vec<f64> = rows
        .iter()
        .filter_map(|row| Some(row.ratio?.summary.median))
        .collect();
    let at_least_reference = compared.iter().filter(|ratio| **ratio >= 1.0).count();
    let total_s = rows.iter().filter_map(|row| row.duration_s).sum::<f64>();
    let quick = rows.iter().filter(|row| row.quick).count();
    markup! {
        p.kicker { "longhaul lab" }
        h1 { (rows.len()) " experiments" }
        p.answer { strong { (passed) " of " (checked_rows.count()) } " pass all their checks" }
        p.detail {
            (checks(0)) " of " (checks(1)) " checks passed."
            @if !compared.is_empty() {
                " The result is at least as good as the reference in " (at_least_reference) " of " (compared.len()) " experiments with reference values."
            }
            @if total_s > 0.0 { " Total duration of the runs: " (Time::from_secs_f64(total_s)) "." }
        }
        @if quick > 0 { p.note { (quick) @if quick == 1 { " was" } @else { " were" } " shortened by " code { "--quick" } ": preliminary values." } }
    }
}

fn section(source: &str, rows: &[&Experiment]) -> Markup {
    const HEADINGS: [&str; 6] = [
        "Experiment",
        "Result",
        "Reference",
        "Ratio",
        "Checks",
        "Run",
    ];
    let compared = rows.iter().any(|row| row.has_reference());
    let is_reference = |name: &&str| *name == HEADINGS[2] || *name == HEADINGS[3];
    let headings = HEADINGS
        .into_iter()
        .filter(|name| compared || !is_reference(name));
    let lines = rows.iter().map(|row| line(row, &HEADINGS, compared));
    let table = Table {
        label: source,
        class: "cards experiments",
        ..Table::default()
    };
    markup! { section { h2 { (source) } (table.render(headings, lines)) } }
}

fn line(row: &Experiment, headings: &[&str; 6], compared: bool) -> Markup {
    markup! {
        tr {
            th scope="row" {
                a href=(row.link) { (row.title) }
                small { code { (row.scenario) } }
                @if !row.question.is_empty() { small { (row.question) } }
            }
            td.words data-label=(headings[1]) { (row.headline) }
            @if compared {
                td.words data-label=(headings[2]) { (row.reference.as_deref().unwrap_or("–")) }
                td data-label=(headings[3]) { (ratio(row.ratio)) }
            }
            td data-label=(headings[4]) { (checks(row)) }
            td data-label=(headings[5]) { (run(row)) }
        }
    }
}

fn ratio(ratio: Option<Ratio>) -> Markup {
    markup! {
        @match ratio {
            None => { "–" }
            Some(Ratio { summary, cells }) => {
                strong.good[summary.median >= 1.0] { (format_factor(summary.median)) }
                @if cells > 1 { small { "median of " (cells) " cells [" (format_factor(summary.min)) " – " (format_factor(summary.max)) "]" } }
            }
        }
    }
}

fn checks(row: &Experiment) -> Markup {
    let ([passed, all], [good, runs], open) = (row.checks, row.runs, row.undecided);
    let failed = all - passed - open;
    markup! {
        @if all == 0 { "none" }
        @else if passed == all { span.pass { "✓ all " (all) } }
        @else if failed > 0 { span.fail { "✗ " (failed) " of " (all) " failed" } }
        @if open > 0 { small { "? " (open) " of " (all) " undecided" } }
        @if good < runs { small.fail { (runs - good) " of " (runs) " runs failed" } }
    }
}

fn run(row: &Experiment) -> Markup {
    markup! {
        time datetime=(row.started) { (row.started.strftime("%Y-%m-%d %H:%M")) }
        @if let Some(duration_s) = row.duration_s { small { (Time::from_secs_f64(duration_s)) } }
        @if row.quick { small { "quick run" } }
        @if let Some(cells) = &row.simulated { small { "simulated: " (cells) } }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::experiment::NO_SOURCE_HEADING, *};
    use crate::report::fixtures::download;

    fn row(source: Option<&str>) -> Experiment {
        Experiment {
            source: source.map(str::to_owned),
            ..Experiment::new(&download(), "a/report.html".to_owned())
        }
    }

    #[test]
    fn groups_experiments_by_authors() {
        let name = |source| row(source).source_name().to_owned();
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
        assert_eq!(name(None), NO_SOURCE_HEADING);
        let page = html(&[row(None), row(Some("B, 2")), row(Some("A, 1"))]);
        let headings: Vec<&str> = page
            .split("<h2>")
            .skip(1)
            .map(|part| part.split('<').next().unwrap())
            .collect();
        assert_eq!(headings, ["A", "B", NO_SOURCE_HEADING]);
    }

    #[test]
    fn writes_index_but_does_not_replace_foreign_file() {
        let top = tempfile::tempdir().unwrap();
        for name in ["one", "two words"] {
            fs::create_dir(top.path().join(name)).unwrap();
            fs::write(
                top.path().join(name).join("result.json"),
                serde_json::to_string(&download()).unwrap(),
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
    fn refuses_directory_without_results() {
        let empty = tempfile::tempdir().unwrap();
        let error = results(&[empty.path().to_owned()]).unwrap_err();
        assert!(
            matches!(error.downcast_ref(), Some(Refusal::Usage(_))),
            "{error}"
        );
    }

    #[test]
    #[ignore = "needs Chromium: make test-peers"]
    fn index_page_fits_and_is_accessible() {
        let failed = Experiment {
            checks: [1, 2],
            runs: [3, 4],
            ratio: None,
            ..row(None)
        };
        let quick = Experiment {
            quick: true,
            duration_s: Some(80.0),
            ratio: Ratio::new(&[0.5, 1.5]),
            ..row(Some("A, 1"))
        };
        longhaul_testprograms::browser::assert_good(&html(&[failed, quick, row(Some("B, 2"))]), 0);
    }
    #[test]
    fn builds_relative_links() {
        let link = |from, file| relative(Path::new(from), Path::new(file));
        assert_eq!(link("/a", "/a/b/report.html"), "./b/report.html");
        assert_eq!(link("/a/c", "/a/b/report.html"), "../b/report.html");
        assert_eq!(link("/", "/x?/50%.html"), "./x%3F/50%25.html");
    }
}
