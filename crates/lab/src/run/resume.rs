// SPDX-License-Identifier: MIT OR Apache-2.0
//! Journal of an unfinished experiment: `DIR/raw/.journal.jsonl`, one line for each completed run,
//! synced before the next run begins. With the same scenario, seed and version, the next `lab run`
//! into `DIR` resumes there. Once `result.json` is written, the journal is removed.

use anyhow::{Context, Result};
use longhaul_command::exit::Refusal;
use longhaul_results::identity::Identity;
use longhaul_results::result::Run;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Path of the journal below the output directory. The manifest of `raw` does not list it.
const NAME: &str = "raw/.journal.jsonl";

/// Completed run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CompletedRun {
    /// Index in the order of all runs, from 0.
    pub(crate) index: usize,
    /// Seconds of work when it ended, without the pauses between sessions.
    pub(crate) spent_s: f64,
    pub(crate) offloads: BTreeMap<String, String>,
    pub(crate) run: Run,
}

/// Line of the journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Began {
        at: jiff::Timestamp,
        identity: Identity,
    },
    Resumed {
        at: jiff::Timestamp,
    },
    Done(Box<CompletedRun>),
}

/// Interrupted experiment, as read from its journal.
#[derive(Debug)]
struct InterruptedExperiment {
    identity: Identity,
    began: jiff::Timestamp,
    resumed: Vec<jiff::Timestamp>,
    done: Vec<CompletedRun>,
    /// Bytes of complete lines. The last line may be cut off.
    length: u64,
}

/// Journal of a running experiment.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    /// Time at which the experiment began.
    pub(crate) began: jiff::Timestamp,
    /// Times at which it was resumed.
    pub(crate) resumed: Vec<jiff::Timestamp>,
    /// Runs completed by earlier sessions.
    pub(crate) done: Vec<CompletedRun>,
}

/// Refuses to resume a different experiment; changes nothing.
///
/// # Errors
/// A usage error with the difference and the possible actions.
pub(crate) fn check(out: &Path, identity: &Identity, restart: bool) -> Result<()> {
    let Some(earlier) = read(out)?.filter(|_| !restart) else {
        return Ok(());
    };
    match identity.difference(&earlier.identity) {
        None => Ok(()),
        Some(difference) => Err(Refusal::usage(format!(
            "--out {}: a run of {} was interrupted here after {} runs, and {difference}; give the same \
             scenario and options to resume, --restart to discard it, or another --out",
            out.display(),
            earlier.identity.scenario,
            earlier.done.len(),
        ))),
    }
}

impl Journal {
    /// Resumes the experiment that was interrupted here, or begins a new journal.
    pub(crate) fn open(out: &Path, identity: &Identity, restart: bool) -> Result<Self> {
        let path = path(out);
        let place = || format!("cannot write {}", path.display());
        let now = jiff::Timestamp::now();
        let same = |earlier: &InterruptedExperiment| {
            !restart && identity.difference(&earlier.identity).is_none()
        };
        let Some(earlier) = read(out)?.filter(same) else {
            fs::create_dir_all(out.join("raw")).with_context(place)?;
            let mut journal = Self {
                file: File::create(&path).with_context(place)?,
                began: now,
                resumed: Vec::new(),
                done: Vec::new(),
            };
            journal.write(&Line::Began {
                at: now,
                identity: identity.clone(),
            })?;
            return Ok(journal);
        };
        let file = OpenOptions::new()
            .append(true)
            .open(&path)
            .with_context(place)?;
        file.set_len(earlier.length).with_context(place)?;
        let mut journal = Self {
            file,
            began: earlier.began,
            resumed: earlier.resumed,
            done: earlier.done,
        };
        journal.resumed.push(now);
        journal.write(&Line::Resumed { at: now })?;
        Ok(journal)
    }

    /// Appends a completed run. On return it is on the disk.
    pub(crate) fn add(&mut self, done: CompletedRun) -> Result<()> {
        self.write(&Line::Done(Box::new(done)))
    }

    fn write(&mut self, line: &Line) -> Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let written = self
            .file
            .write_all(&text)
            .and_then(|()| self.file.sync_data());
        written.context("cannot write the journal of the runs")
    }
}

/// Removes the journal, because the result has been written.
pub(crate) fn finish(out: &Path) -> Result<()> {
    match fs::remove_file(path(out)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path(out).display()))
        }
        _ => Ok(()),
    }
}

fn path(out: &Path) -> PathBuf {
    out.join(NAME)
}

/// Reads the journal of an interrupted experiment; `None` if there is none.
fn read(out: &Path) -> Result<Option<InterruptedExperiment>> {
    let path = path(out);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let mut earlier: Option<InterruptedExperiment> = None;
    for line in text.split_inclusive('\n') {
        // Lines after one that was cut off do not follow from it.
        let whole = line
            .ends_with('\n')
            .then(|| serde_json::from_str(line).ok())
            .flatten();
        match (whole, &mut earlier) {
            (Some(Line::Began { at, identity }), None) => {
                earlier = Some(InterruptedExperiment::new(identity, at));
            }
            (Some(Line::Resumed { at }), Some(earlier)) => earlier.resumed.push(at),
            (Some(Line::Done(done)), Some(earlier)) => earlier.done.push(*done),
            _ => break,
        }
        if let Some(earlier) = &mut earlier {
            earlier.length += line.len() as u64;
        }
    }
    // Without a completed run there is nothing to resume.
    Ok(earlier.filter(|earlier| !earlier.done.is_empty()))
}

impl InterruptedExperiment {
    fn new(identity: Identity, began: jiff::Timestamp) -> Self {
        Self {
            identity,
            began,
            resumed: Vec::new(),
            done: Vec::new(),
            length: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(seed: u64) -> Identity {
        Identity {
            scenario: "nec-dvd".to_owned(),
            digest: "abc".to_owned(),
            seed,
            longhaul: "0.1.0".to_owned(),
            machine: "Linux 6.18, 2 CPUs".to_owned(),
        }
    }

    fn done(index: usize) -> CompletedRun {
        CompletedRun {
            index,
            spent_s: index as f64 + 1.0,
            offloads: BTreeMap::new(),
            run: Run {
                metrics: longhaul_results::result::Metrics::from([("goodput_bps".to_owned(), 1e9)]),
                ..Run::default()
            },
        }
    }

    #[test]
    fn resumes_with_completed_runs() {
        let out = tempfile::tempdir().unwrap();
        let mut first = Journal::open(out.path(), &identity(7), false).unwrap();
        first.add(done(0)).unwrap();
        first.add(done(1)).unwrap();
        let began = first.began;
        drop(first);
        check(out.path(), &identity(7), false).unwrap();
        let second = Journal::open(out.path(), &identity(7), false).unwrap();
        let run_order: Vec<usize> = second.done.iter().map(|done| done.index).collect();
        assert_eq!(
            (run_order, second.began, second.resumed.len()),
            (vec![0, 1], began, 1)
        );
        assert_eq!(second.done[1].spent_s, 2.0);
        assert_eq!(second.done[1].run.metrics["goodput_bps"], 1e9);
    }

    #[test]
    fn ignores_a_truncated_line() {
        let out = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(out.path(), &identity(7), false).unwrap();
        journal.add(done(0)).unwrap();
        journal.add(done(1)).unwrap();
        drop(journal);
        let text = fs::read_to_string(path(out.path())).unwrap();
        for cut in [1, 20] {
            fs::write(path(out.path()), &text[..text.len() - cut]).unwrap();
            let mut journal = Journal::open(out.path(), &identity(7), false).unwrap();
            assert_eq!(journal.done.len(), 1);
            journal.add(done(1)).unwrap();
            drop(journal);
            assert_eq!(
                Journal::open(out.path(), &identity(7), false)
                    .unwrap()
                    .done
                    .len(),
                2
            );
        }
    }

    #[test]
    fn refuses_a_different_experiment_with_advice() {
        let out = tempfile::tempdir().unwrap();
        Journal::open(out.path(), &identity(7), false)
            .unwrap()
            .add(done(0))
            .unwrap();
        let refused = check(out.path(), &identity(8), false)
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("after 1 runs, and its seed is 7, not 8"),
            "{refused}"
        );
        assert!(refused.contains("--restart"), "{refused}");
        let other = Identity {
            digest: "def".to_owned(),
            ..identity(7)
        };
        assert!(
            check(out.path(), &other, false)
                .unwrap_err()
                .to_string()
                .contains("options are different")
        );
        check(out.path(), &identity(8), true).unwrap();
        assert_eq!(
            Journal::open(out.path(), &identity(8), true)
                .unwrap()
                .done
                .len(),
            0
        );
        check(out.path(), &identity(8), false).unwrap();
    }

    #[test]
    fn finished_experiment_removes_its_journal() {
        let out = tempfile::tempdir().unwrap();
        Journal::open(out.path(), &identity(7), false)
            .unwrap()
            .add(done(0))
            .unwrap();
        finish(out.path()).unwrap();
        finish(out.path()).unwrap();
        assert!(read(out.path()).unwrap().is_none());
    }
}
