// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that makes durable what was written, in batches, and gives files their names.

use super::{
    Target,
    arriving::{Large, Named, in_its_place},
    state::{State, Written},
};
use crate::copy::message::{Answer, Outcome};
use std::{sync::Arc, time::Duration};
use store::{
    blocks::FileHash,
    entry::{Entry, Kind},
    manifest::{Manifest, Record},
    medium::Dir,
    part::Finished,
    small,
};

/// How long written blocks may wait to become durable: a kill costs what a path carries in this time and while the
/// disk syncs, at most [`super::state::AT_RISK_MAX`], and what is under way.
const INTERVAL: Duration = Duration::from_millis(250);

/// A file that is done, but for its record.
struct Done {
    number: u64,
    entry: Arc<Entry>,
    /// None with `--hash off`: nothing is recorded then.
    hash: Option<FileHash>,
    left_out: Vec<String>,
    finished: Option<Finished>,
}

impl Done {
    fn of(number: u64, entry: Arc<Entry>, named: Named) -> Self {
        let Named { finished, left_out } = named;
        Self {
            number,
            entry,
            hash: finished.hash,
            left_out,
            finished: Some(finished),
        }
    }
}

impl Target {
    pub(super) fn commit_all(&self) {
        let mut manifest = self.manifest();
        while !self.shared.is_over() {
            self.shared.wait_some_time(INTERVAL, |state| {
                let waiting = state.batch.len();
                // Or nothing but these is to come.
                let last = waiting > 0 && waiting as u64 >= state.unsettled;
                state.over || state.is_worth_a_commit() || last
            });
            let written = self.shared.look(State::begin_commit);
            for (stream, blocks) in self.shared.change(State::untold) {
                self.answers.put(Answer::Received { stream, blocks });
            }
            let mut done = self.commit_small();
            done.extend(self.commit_large());
            self.shared.change(|state| state.end_commit(written));
            let renamed = self
                .shared
                .change(|state| std::mem::take(&mut state.renamed));
            done.extend(
                renamed
                    .into_iter()
                    .map(|(number, entry, named)| Done::of(number, Arc::new(entry), named)),
            );
            if !done.is_empty() {
                self.record(manifest.as_mut(), done);
                self.open_waiting();
            }
        }
    }

    /// Without one, files are copied all the same; they can't be verified later without the source.
    fn manifest(&self) -> Option<Manifest> {
        let top = self.root.open_dir(None).map_err(|error| error.to_string());
        let dir = top.and_then(|top| {
            use std::os::fd::AsFd;
            Dir::new(top.as_fd()).map_err(|error| error.to_string())
        });
        let loaded = dir.and_then(|dir| Manifest::load(&dir).map_err(|error| error.to_string()));
        loaded
            .map_err(|why| self.problem(format!("no record of hashes is kept: {why}")))
            .ok()
    }

    fn commit_small(&self) -> Vec<Done> {
        let batch = self.shared.change(|state| std::mem::take(&mut state.batch));
        let (mut about, mut files) = (Vec::new(), Vec::new());
        for Written {
            number,
            entry,
            small,
            left_out,
        } in batch
        {
            about.push((number, entry, left_out));
            files.push(small);
        }
        let mut done = Vec::new();
        for ((number, entry, left_out), outcome) in about.into_iter().zip(small::commit(files)) {
            match outcome {
                Ok(hash) => {
                    self.durable(size(&entry));
                    done.push(Done {
                        number,
                        entry,
                        hash,
                        left_out,
                        finished: None,
                    });
                }
                Err(error) => {
                    let why = in_its_place(&entry, &error);
                    self.settle(number, &entry.path, Outcome::Failed(why));
                }
            }
        }
        done
    }

    fn commit_large(&self) -> Vec<Done> {
        let open: Vec<(u64, Arc<Large>)> = self.shared.look(|state| {
            let all = state.large.iter();
            all.map(|(number, large)| (*number, large.clone()))
                .collect()
        });
        let done =
            open.into_iter()
                .filter_map(|(number, large)| match self.commit_one(number, &large) {
                    Ok(named) => named,
                    Err(why) => {
                        if self
                            .shared
                            .change(|state| state.large.remove(&number))
                            .is_some()
                        {
                            self.settle(number, &large.entry.path, Outcome::Failed(why));
                            self.open_waiting();
                        }
                        None
                    }
                });
        done.collect()
    }

    fn commit_one(&self, number: u64, large: &Large) -> Result<Option<Done>, String> {
        self.durable(large.commit()?);
        if !large.is_complete() {
            return Ok(None);
        }
        let named = large.finish()?;
        self.shared.change(|state| state.large.remove(&number));
        let entry = Arc::new(large.entry.clone());
        Ok(Some(Done::of(number, entry, named)))
    }

    fn durable(&self, bytes: u64) {
        if bytes > 0 {
            self.tally.add(|now| now.durable += bytes);
            self.answers.put(Answer::Durable { bytes });
        }
    }

    /// Keeps the hashes, and only then forgets the journals.
    fn record(&self, manifest: Option<&mut Manifest>, done: Vec<Done>) {
        if let Some(manifest) = manifest {
            let records: Vec<(&[u8], Record)> = done.iter().filter_map(record).collect();
            if let Err(error) = manifest.append(&records) {
                self.problem(format!(
                    "hashes of {} files are not kept: {error}",
                    done.len()
                ));
            }
        }
        for file in done {
            let forgotten = file.finished.map_or(Ok(()), Finished::forget_journal);
            if let Err(error) = forgotten {
                self.problem(in_its_place(&file.entry, &error));
            }
            let outcome = match file.left_out.is_empty() {
                true => Outcome::Made,
                false => Outcome::MadeWithout(file.left_out),
            };
            self.settle(file.number, &file.entry.path, outcome);
        }
    }
}

fn size(entry: &Entry) -> u64 {
    match entry.kind {
        Kind::File { version, .. } => version.size,
        _ => 0,
    }
}

fn record(done: &Done) -> Option<(&[u8], Record)> {
    let modified = done.entry.metadata.modified;
    let record = Record {
        hash: done.hash?,
        size: size(&done.entry),
        mtime: (modified.seconds, modified.nanos),
    };
    Some((done.entry.path.as_bytes(), record))
}
