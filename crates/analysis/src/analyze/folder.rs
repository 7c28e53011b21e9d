// SPDX-License-Identifier: MIT OR Apache-2.0
//! The directory of an analysis. What is written becomes visible when it is whole: everything is made
//! in a directory of its own inside, and renamed at the end. Nothing that somebody else put there is
//! ever overwritten.

use crate::report::RESULT;
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

/// What is begun and not finished.
const UNFINISHED: &str = ".unfinished-";

/// A directory that will have an analysis.
#[derive(Debug)]
pub(super) struct Folder {
    place: PathBuf,
    unfinished: TempDir,
    /// Locked, so that two analyses do not write here at once.
    _lock: File,
}

impl Folder {
    /// Makes the directory if there is none, and refuses one that has anything else in it.
    ///
    /// # Errors
    /// It holds what no analysis wrote, another analysis is writing there, or it cannot be written.
    pub(super) fn open(place: &Path) -> Result<Self> {
        let cannot = |error: io::Error| {
            Refusal::usage(format!("cannot write to {}: {error}", place.display()))
        };
        fs::create_dir_all(place).map_err(cannot)?;
        refuse_foreign(place)?;
        let lock = File::open(place).map_err(cannot)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            Refusal::usage(format!(
                "{}: another analysis is writing there; wait for it or choose another directory",
                place.display()
            ))
        })?;
        remove_unfinished(place)?;
        let unfinished = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempdir_in(place);
        Ok(Self {
            place: place.to_owned(),
            unfinished: unfinished.map_err(cannot)?,
            _lock: lock,
        })
    }

    /// Where files are made.
    pub(super) fn unfinished(&self) -> &Path {
        self.unfinished.path()
    }

    /// Puts what was made into its place, in stead of what an earlier analysis left.
    ///
    /// # Errors
    /// A file cannot be removed or renamed.
    pub(super) fn finish(self) -> Result<()> {
        let made = names(self.unfinished.path())?;
        let is_old = |name: &PathBuf| !made.contains(name) && is_output(name.as_os_str());
        for old in names(&self.place)?.into_iter().filter(is_old) {
            fs::remove_file(self.place.join(&old))
                .with_context(|| format!("cannot remove {}", old.display()))?;
        }
        // The result first: by it the rest is known to be ours.
        let (result, rest): (Vec<_>, Vec<_>) = made.into_iter().partition(|name| name == RESULT);
        for name in result.iter().chain(&rest) {
            fs::rename(self.unfinished.path().join(name), self.place.join(name))
                .with_context(|| format!("cannot rename {}", name.display()))?;
        }
        Ok(())
    }
}

fn refuse_foreign(place: &Path) -> Result<()> {
    let foreign = |name: &PathBuf| !is_output(name.as_os_str()) && !is_unfinished(name);
    let names = names(place)?;
    if let Some(name) = names.iter().find(|name| foreign(name)) {
        return Err(refusal(place, name));
    }
    match names.iter().find(|name| is_output(name.as_os_str())) {
        Some(name) if !is_analysis(&place.join(RESULT)) => Err(refusal(place, name)),
        _ => Ok(()),
    }
}

fn refusal(place: &Path, name: &Path) -> anyhow::Error {
    Refusal::usage(format!(
        "{} holds {}, which no analysis wrote; choose a new directory with -o",
        place.display(),
        name.display()
    ))
}

/// Whether it begins as every `result.json` of `longhaul tap analyze` does.
fn is_analysis(result: &Path) -> bool {
    #[derive(Deserialize)]
    #[allow(dead_code, reason = "that they are there is what counts")]
    struct Marks {
        schema: u32,
        bins_ns: Vec<u64>,
        vantages: Vec<serde::de::IgnoredAny>,
    }
    let parse = |file| serde_json::from_reader::<_, Marks>(BufReader::new(file)).is_ok();
    File::open(result).is_ok_and(parse)
}

/// Names of what an analysis writes.
fn is_output(name: &OsStr) -> bool {
    let series = |name: &str| {
        name.starts_with("series-") && (name.ends_with(".csv") || name.ends_with(".parquet"))
    };
    let fixed = [RESULT, "report.html", "courses.jsonl", "flows.jsonl"];
    name.to_str()
        .is_some_and(|name| fixed.contains(&name) || series(name))
}

fn is_unfinished(name: &Path) -> bool {
    name.to_str()
        .is_some_and(|name| name.starts_with(UNFINISHED))
}

/// What an analysis that was killed left.
fn remove_unfinished(place: &Path) -> Result<()> {
    for name in names(place)?.iter().filter(|name| is_unfinished(name)) {
        fs::remove_dir_all(place.join(name))
            .with_context(|| format!("cannot remove {}", place.join(name).display()))?;
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

    const ANALYSIS: &str = r#"{"schema": 1, "longhaul": "0.1.0", "bins_ns": [], "vantages": []}"#;

    fn write(folder: &Folder, name: &str, text: &str) {
        fs::write(folder.unfinished().join(name), text).unwrap();
    }

    fn seen(place: &Path) -> Vec<String> {
        let name = |name: PathBuf| name.to_str().unwrap().to_owned();
        let mut names: Vec<_> = names(place).unwrap().into_iter().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn nothing_is_there_before_it_is_whole_and_the_old_goes() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().join("new/deep");
        let folder = Folder::open(&place).unwrap();
        write(&folder, RESULT, ANALYSIS);
        write(&folder, "series-1ms.csv", "old");
        assert!(seen(&place).iter().all(|name| name.starts_with(UNFINISHED)));
        folder.finish().unwrap();
        assert_eq!(seen(&place), [RESULT, "series-1ms.csv"]);

        let folder = Folder::open(&place).unwrap();
        write(&folder, RESULT, ANALYSIS);
        write(&folder, "report.html", "new");
        folder.finish().unwrap();
        assert_eq!(seen(&place), ["report.html", RESULT]);
    }

    #[test]
    fn what_no_analysis_wrote_is_named_and_kept() {
        for (name, text) in [
            ("thesis.tex", "years"),
            ("result.json", r#"{"scenario": "nec-linux"}"#),
            ("report.html", "of somebody else"),
        ] {
            let place = tempfile::tempdir().unwrap();
            fs::write(place.path().join(name), text).unwrap();
            let refused = Folder::open(place.path()).unwrap_err();
            assert!(refused.to_string().contains(name), "{refused}");
            assert_eq!(longhaul_command::exit::number(&Err(refused)), 2);
            assert_eq!(fs::read_to_string(place.path().join(name)).unwrap(), text);
        }
    }

    #[test]
    fn what_a_killed_analysis_left_is_removed_and_a_living_one_is_respected() {
        let place = tempfile::tempdir().unwrap();
        let left = place.path().join(format!("{UNFINISHED}left"));
        fs::create_dir(&left).unwrap();
        let folder = Folder::open(place.path()).unwrap();
        assert!(!left.exists());
        let second = Folder::open(place.path()).unwrap_err();
        assert!(second.to_string().contains("another analysis"), "{second}");
        assert!(folder.unfinished().exists());
    }
}
