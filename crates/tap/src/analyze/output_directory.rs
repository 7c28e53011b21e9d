// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output directory of an analysis. Files become visible when they are complete: they are written in a
//! temporary directory inside it, and renamed at the end. A file that no analysis wrote is never overwritten.

use crate::report::{CHART_SERIES_FILE, RESULT_FILE};
use anyhow::{Context, Result};
use longhaul_command::exit::Refusal;
use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;
use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, BufReader},
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// Prefix of the temporary directory for unfinished files.
const STAGING_PREFIX: &str = ".unfinished-";

/// Output directory of a running analysis.
#[derive(Debug)]
pub(super) struct OutputDirectory {
    path: PathBuf,
    staging: TempDir,
    /// Lock that keeps a second analysis from writing here at the same time.
    _lock: File,
}

impl OutputDirectory {
    /// Creates the directory if it does not exist, and locks it.
    ///
    /// # Errors
    /// The directory has a file that no analysis wrote, another analysis is writing there, or it cannot be written.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let cannot = |error: io::Error| {
            Refusal::usage(format!("cannot write to {}: {error}", path.display()))
        };
        fs::create_dir_all(path).map_err(cannot)?;
        reject_foreign_files(path)?;
        let lock = File::open(path).map_err(cannot)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            Refusal::usage(format!(
                "{}: another analysis is writing there; wait for it or choose another directory",
                path.display()
            ))
        })?;
        remove_stale_staging(path)?;
        let unfinished = tempfile::Builder::new()
            .prefix(STAGING_PREFIX)
            .tempdir_in(path);
        Ok(Self {
            path: path.to_owned(),
            staging: unfinished.map_err(cannot)?,
            _lock: lock,
        })
    }

    /// Returns the temporary directory for the files.
    pub(super) fn staging_path(&self) -> &Path {
        self.staging.path()
    }

    /// Moves the new files to their final names and removes the files of an earlier analysis.
    ///
    /// # Errors
    /// A file cannot be removed or renamed.
    pub(super) fn finish(self) -> Result<()> {
        let new_names = names(self.staging.path())?;
        let is_old = |name: &PathBuf| !new_names.contains(name) && is_output(name.as_os_str());
        for old in names(&self.path)?.into_iter().filter(is_old) {
            fs::remove_file(self.path.join(&old))
                .with_context(|| format!("cannot remove {}", old.display()))?;
        }
        // The result first: with it, a later analysis recognises the directory as its own.
        let (result, rest): (Vec<_>, Vec<_>) =
            new_names.into_iter().partition(|name| name == RESULT_FILE);
        for name in result.iter().chain(&rest) {
            fs::rename(self.staging.path().join(name), self.path.join(name))
                .with_context(|| format!("cannot rename {}", name.display()))?;
        }
        Ok(())
    }
}

fn reject_foreign_files(path: &Path) -> Result<()> {
    let foreign = |name: &PathBuf| !is_output(name.as_os_str()) && !is_staging(name);
    let names = names(path)?;
    if let Some(name) = names.iter().find(|name| foreign(name)) {
        return Err(refusal(path, name));
    }
    match names.iter().find(|name| is_output(name.as_os_str())) {
        Some(name) if !is_analysis(&path.join(RESULT_FILE)) => Err(refusal(path, name)),
        _ => Ok(()),
    }
}

fn refusal(path: &Path, name: &Path) -> anyhow::Error {
    Refusal::usage(format!(
        "{} contains {}, which no analysis wrote; choose a new directory with -o",
        path.display(),
        name.display()
    ))
}

/// Returns whether the file has the keys of every `result.json` of `longhaul tap analyze`.
fn is_analysis(result: &Path) -> bool {
    #[derive(Deserialize)]
    #[allow(dead_code, reason = "only their presence matters")]
    struct ResultKeys {
        schema: u32,
        bins_ns: Vec<u64>,
        capture_points: Vec<serde::de::IgnoredAny>,
    }
    let parse = |file| serde_json::from_reader::<_, ResultKeys>(BufReader::new(file)).is_ok();
    File::open(result).is_ok_and(parse)
}

/// Returns whether an analysis writes a file of this name.
fn is_output(name: &OsStr) -> bool {
    let series = |name: &str| {
        name.starts_with("series-") && (name.ends_with(".csv") || name.ends_with(".parquet"))
    };
    let fixed = [RESULT_FILE, "report.html", CHART_SERIES_FILE, "flows.jsonl"];
    name.to_str()
        .is_some_and(|name| fixed.contains(&name) || series(name))
}

fn is_staging(name: &Path) -> bool {
    name.to_str()
        .is_some_and(|name| name.starts_with(STAGING_PREFIX))
}

/// Removes the temporary directories of analyses that were killed.
fn remove_stale_staging(path: &Path) -> Result<()> {
    for name in names(path)?.iter().filter(|name| is_staging(name)) {
        fs::remove_dir_all(path.join(name))
            .with_context(|| format!("cannot remove {}", path.join(name).display()))?;
    }
    Ok(())
}

fn names(directory: &Path) -> Result<Vec<PathBuf>> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(directory)?;
        entries.map(|entry| Ok(entry?.file_name().into())).collect()
    };
    list().with_context(|| format!("cannot list {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANALYSIS: &str =
        r#"{"schema": 1, "longhaul": "0.1.0", "bins_ns": [], "capture_points": []}"#;

    fn write(output_directory: &OutputDirectory, name: &str, text: &str) {
        fs::write(output_directory.staging_path().join(name), text).unwrap();
    }

    fn file_names(path: &Path) -> Vec<String> {
        let name = |name: PathBuf| name.to_str().unwrap().to_owned();
        let mut names: Vec<_> = names(path).unwrap().into_iter().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn publishes_complete_files_and_removes_old_ones() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("new/deep");
        let output_directory = OutputDirectory::open(&path).unwrap();
        write(&output_directory, RESULT_FILE, ANALYSIS);
        write(&output_directory, "series-1ms.csv", "old");
        assert!(
            file_names(&path)
                .iter()
                .all(|name| name.starts_with(STAGING_PREFIX))
        );
        output_directory.finish().unwrap();
        assert_eq!(file_names(&path), [RESULT_FILE, "series-1ms.csv"]);

        let output_directory = OutputDirectory::open(&path).unwrap();
        write(&output_directory, RESULT_FILE, ANALYSIS);
        write(&output_directory, "report.html", "new");
        output_directory.finish().unwrap();
        assert_eq!(file_names(&path), ["report.html", RESULT_FILE]);
    }

    #[test]
    fn refuses_directory_with_foreign_files() {
        for (name, text) in [
            ("thesis.tex", "years"),
            ("result.json", r#"{"scenario": "nec-linux"}"#),
            ("report.html", "of somebody else"),
        ] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join(name), text).unwrap();
            let refused = OutputDirectory::open(directory.path()).unwrap_err();
            assert!(refused.to_string().contains(name), "{refused}");
            assert_eq!(longhaul_command::exit::report_outcome(&Err(refused)), 2);
            assert_eq!(
                fs::read_to_string(directory.path().join(name)).unwrap(),
                text
            );
        }
    }

    #[test]
    fn removes_leftovers_and_refuses_concurrent_analysis() {
        let directory = tempfile::tempdir().unwrap();
        let left = directory.path().join(format!("{STAGING_PREFIX}left"));
        fs::create_dir(&left).unwrap();
        let output_directory = OutputDirectory::open(directory.path()).unwrap();
        assert!(!left.exists());
        let second = OutputDirectory::open(directory.path()).unwrap_err();
        assert!(second.to_string().contains("another analysis"), "{second}");
        assert!(output_directory.staging_path().exists());
    }
}
