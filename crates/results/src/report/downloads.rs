// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw data at the end of a page: links to the files in its directory. Small files are embedded, so that a page that is
//! sent alone still has its values.

use super::csv;
use crate::result::LabResult;
use base64::{Engine, engine::general_purpose::STANDARD};
use indexmap::IndexMap;
use maud::{Markup, html};
use std::{fs, path::Path};

/// Maximum sizes of embedded files, bytes: the result, a raw record, and all raw records together.
const RESULT_BYTES_MAX: u64 = 256 << 10;
const RECORD_BYTES_MAX: u64 = 4 << 10;
const RECORDS_BYTES_MAX: u64 = 128 << 10;

/// Files by their name in the result's directory, with the content of embedded files.
#[derive(Debug, Default)]
pub(crate) struct Downloads(IndexMap<String, Option<Vec<u8>>>);

impl Downloads {
    /// Selects the files that a page of `result` in `directory` links and embeds.
    pub(crate) fn select(result: &LabResult, directory: &Path) -> Self {
        let mut left = RECORDS_BYTES_MAX;
        let record = |name: &String| {
            let content = read_small(&directory.join(name), RECORD_BYTES_MAX.min(left));
            left -= content.as_ref().map_or(0, |content| content.len() as u64);
            (name.clone(), content)
        };
        let result_file = (
            "result.json".to_owned(),
            read_small(&directory.join("result.json"), RESULT_BYTES_MAX),
        );
        Self(
            [result_file]
                .into_iter()
                .chain(result.raw.iter().map(record))
                .collect(),
        )
    }

    /// Returns the list of files, with the tables as CSV first.
    pub(super) fn section(&self, result: &LabResult) -> Markup {
        html! {
            h2 { "Raw data" }
            p { "Links marked “embedded” work without the other files." }
            ul {
                li {
                    (file_link(csv::CELLS_FILE, Some(csv::cells(result).as_bytes()))) ": median and range of each cell"
                    @if result.has_reference() { ", reference values" }
                }
                li { (file_link(csv::RUNS_FILE, Some(csv::runs(result).as_bytes()))) ": every run" }
                @if let Some(content) = self.0.get("result.json") {
                    li { (file_link("result.json", content.as_deref())) ": all data of this page" }
                }
            }
            (self.records())
        }
    }

    /// Returns the collapsed list of the records of each run.
    fn records(&self) -> Markup {
        type File<'a> = (&'a str, Option<&'a [u8]>);
        let mut directories: IndexMap<&str, Vec<File<'_>>> = IndexMap::new();
        for (name, content) in self.0.iter().filter(|(name, _)| *name != "result.json") {
            let (directory, _) = name.rsplit_once('/').unwrap_or(("", name));
            directories
                .entry(directory)
                .or_default()
                .push((name, content.as_deref()));
        }
        html! {
            @if !directories.is_empty() {
                details {
                    summary { "Records of each run: " (self.0.len() - 1) " files" }
                    @for (directory, files) in &directories {
                        h3 { (directory) }
                        ul { @for (name, content) in files { li { (file_link(name, *content)) } } }
                    }
                }
            }
        }
    }
}

/// Reads a regular file of at most `bytes_max` bytes.
fn read_small(path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    let about = fs::metadata(path).ok()?;
    (about.is_file() && about.len() <= bytes_max).then(|| fs::read(path).ok())?
}

/// Returns a link to a file in the page's directory, and to its content if it is embedded.
fn file_link(name: &str, content: Option<&[u8]>) -> Markup {
    html! {
        a href={ "./" (name) } { (name.rsplit('/').next().unwrap_or(name)) }
        @if let Some(content) = content { " (" (embedded_link_as("embedded", name, content)) ")" }
    }
}

fn embedded_link_as(label: &str, name: &str, content: &[u8]) -> Markup {
    let kind = if name.ends_with(".csv") {
        "text/csv"
    } else {
        "text/plain"
    };
    let file = name.rsplit('/').next().unwrap_or(name);
    html! {
        a download=(file) href={ "data:" (kind) ";base64," (STANDARD.encode(content)) }
            aria-label=[(label != name).then(|| format!("{file}, {label}"))] { (label) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embeds_small_files_and_links_large_ones() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("small.log"), "small").unwrap();
        fs::write(
            directory.path().join("large.log"),
            vec![b'x'; RECORD_BYTES_MAX as usize + 1],
        )
        .unwrap();
        let raw = ["small.log", "large.log", "gone.log"]
            .map(str::to_owned)
            .to_vec();
        let result = LabResult {
            raw,
            ..LabResult::default()
        };
        let page = Downloads::select(&result, directory.path())
            .section(&result)
            .into_string();
        assert!(page.contains(&STANDARD.encode("small")), "{page}");
        assert_eq!(
            page.matches("base64,").count(),
            3,
            "two tables and the small file: {page}"
        );
        for name in ["small.log", "large.log", "gone.log"] {
            assert!(page.contains(&format!("href=\"./{name}\"")), "{name}");
        }
    }

    #[test]
    fn limits_the_size_of_all_records() {
        let directory = tempfile::tempdir().unwrap();
        let raw: Vec<String> = (0..100).map(|n| format!("{n}.log")).collect();
        for name in &raw {
            fs::write(
                directory.path().join(name),
                vec![b'x'; RECORD_BYTES_MAX as usize],
            )
            .unwrap();
        }
        let result = LabResult {
            raw,
            ..LabResult::default()
        };
        let page = Downloads::select(&result, directory.path())
            .section(&result)
            .into_string();
        assert_eq!(page.matches("base64,").count(), 2 + 32);
    }
}
