// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commit thread: makes written data durable in batches, and renames files to their final names.

use super::{
    large::{Large, in_its_place, made, size},
    state::{Done, State, Written},
    target::Target,
};
use crate::protocol::{
    message::{Outcome, TargetMsg},
    options::Switch,
};
use longhaul_scheduling::Stage;
use longhaul_store::{
    blocks::FileHash,
    entry::Entry,
    manifest::{Manifest, Record},
    medium::Dir,
    part::Finished,
    small,
};
use std::{sync::Arc, time::Duration};

/// Maximum time for which written blocks wait for a commit. A kill loses the data received in this time and
/// during a sync, at most [`AT_RISK_MAX`](super::state::AT_RISK_MAX), and the data in flight.
const INTERVAL: Duration = Duration::from_millis(250);

/// Entry and hash of a file for the manifest.
type Noted = (Arc<Entry>, FileHash);

impl Target {
    pub(super) fn commit_all(&self) {
        let mut manifest = self.manifest();
        let mut gauge = self.tally.metrics.measure_thread(Stage::Waiting, None);
        while !self.shared.is_over() {
            self.shared
                .wait_timeout(INTERVAL, |state| state.over || state.wants_a_commit());
            gauge.enter(Stage::Syncing);
            for (stream, blocks) in self.shared.update(State::untold) {
                self.answers.put(TargetMsg::Received { stream, blocks });
            }
            let done = self.commit(manifest.as_mut());
            if !done.is_empty() {
                if self.options.hash == Switch::Off {
                    self.forget_hashes(manifest.as_mut(), &done);
                }
                done.into_iter().for_each(|file| self.forget_journal(file));
                self.open_waiting();
            }
            if self.shared.update(State::look_again) {
                self.open_waiting();
            }
            gauge.enter(Stage::Waiting);
        }
    }

    /// Commits data first, then the manifest, then names: no kill leaves a file under its final name that the
    /// manifest lacks.
    fn commit(&self, manifest: Option<&mut Manifest>) -> Vec<Done> {
        let written = self.shared.read(State::begin_commit);
        let complete = self.commit_large();
        let mut done = self
            .shared
            .update(|state| std::mem::take(&mut state.renamed));
        let large = complete
            .iter()
            .filter_map(|(_, large)| Some((large.entry.clone(), large.agreed_hash()?)));
        let renamed = done
            .iter()
            .filter_map(|done| Some((done.entry.clone(), done.finished.as_ref()?.hash?)));
        let noted: Vec<Noted> = large.chain(renamed).collect();
        done.extend(self.commit_small(manifest, noted));
        self.shared.update(|state| state.end_commit(written));
        done.extend(
            complete
                .into_iter()
                .filter_map(|(number, large)| self.name_large(number, &large)),
        );
        done
    }

    /// Loads the manifest. Without one, files are still copied, but cannot be verified later without the
    /// source.
    pub(super) fn manifest(&self) -> Option<Manifest> {
        let top = self.root.open_dir(None).map_err(|error| error.to_string());
        let dir = top.and_then(|top| {
            use std::os::fd::AsFd;
            Dir::new(top.as_fd()).map_err(|error| error.to_string())
        });
        let loaded = dir.and_then(|dir| Manifest::load(&dir).map_err(|error| error.to_string()));
        loaded
            .map_err(|why| self.fail(format!("no record of hashes is kept: {why}")))
            .ok()
    }

    /// Renames small files, once they and the other new hashes are in the manifest.
    fn commit_small(&self, manifest: Option<&mut Manifest>, mut noted: Vec<Noted>) -> Vec<Done> {
        let batch = self.shared.update(|state| std::mem::take(&mut state.batch));
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
        let outcomes = small::commit(files, |hashes| {
            let small = about.iter().zip(hashes);
            noted.extend(small.filter_map(|((_, entry, _), hash)| Some((entry.clone(), (*hash)?))));
            self.note(manifest, &noted);
        });
        let mut done = Vec::new();
        for ((number, entry, left_out), outcome) in about.into_iter().zip(outcomes) {
            match outcome {
                Ok(_) => {
                    self.durable(size(&entry));
                    done.push(Done {
                        number,
                        entry,
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

    /// Makes the written data of large files durable; returns the files that are complete.
    fn commit_large(&self) -> Vec<(u64, Arc<Large>)> {
        let open: Vec<(u64, Arc<Large>)> = self.shared.read(|state| {
            let all = state.large.iter();
            all.map(|(number, large)| (*number, large.clone()))
                .collect()
        });
        let mut complete = Vec::new();
        for (number, large) in open {
            match large.commit() {
                Ok(bytes) => self.durable(bytes),
                Err(why) => {
                    self.give_up(number, &large, why);
                    continue;
                }
            }
            if !large.is_complete() {
                continue;
            }
            match large.assemble() {
                Ok(()) => complete.push((number, large)),
                Err(why) => self.give_up(number, &large, why),
            }
        }
        complete
    }

    fn name_large(&self, number: u64, large: &Large) -> Option<Done> {
        let finished = large.finish().and_then(|named| {
            if large.is_kept() {
                self.leave_no_name(&large.entry)?;
            }
            Ok(named)
        });
        match finished {
            Ok(named) => {
                self.shared.update(|state| state.large.remove(&number));
                let Some(named) = named else {
                    self.settle(number, &large.entry.path, Outcome::Made);
                    self.open_waiting();
                    return None;
                };
                Some(Done::of(number, large.entry.clone(), named))
            }
            Err(why) => {
                self.give_up(number, large, why);
                None
            }
        }
    }

    /// Fails a file, unless that was done before.
    pub(super) fn give_up(&self, number: u64, large: &Large, why: String) {
        let known = self
            .shared
            .update(|state| state.large.remove(&number).is_some());
        if known {
            self.settle(number, &large.entry.path, Outcome::Failed(why));
            self.open_waiting();
        }
    }

    fn durable(&self, bytes: u64) {
        if bytes > 0 {
            self.tally.update(|now| now.durable += bytes);
            self.answers.put(TargetMsg::Durable { bytes });
        }
    }

    /// Appends hashes to the manifest.
    fn note(&self, manifest: Option<&mut Manifest>, noted: &[Noted]) {
        let records: Vec<(&[u8], Record)> = noted.iter().map(record).collect();
        if let Some(manifest) = manifest
            && let Err(error) = manifest.append(&records)
        {
            let count = records.len();
            self.fail(format!("hashes of {count} files are not kept: {error}"));
        }
    }

    /// Removes old hashes of files that were written without hashing.
    fn forget_hashes(&self, manifest: Option<&mut Manifest>, done: &[Done]) {
        let Some(manifest) = manifest else { return };
        let paths = done.iter().map(|done| done.entry.path.as_bytes());
        let known = paths.filter(|path| manifest.lookup(path).is_some());
        let gone: Vec<(&[u8], Record)> = known.map(|path| (path, Record::GONE)).collect();
        if let Err(error) = manifest.append(&gone) {
            self.fail(format!("hashes that are not known any more stay: {error}"));
        }
    }

    fn forget_journal(&self, file: Done) {
        let forgotten = file.finished.map_or(Ok(()), Finished::forget_journal);
        if let Err(error) = forgotten {
            self.reporter
                .send_problem(in_its_place(&file.entry, &error));
        }
        self.settle(file.number, &file.entry.path, made(file.left_out));
    }
}

fn record((entry, hash): &Noted) -> (&[u8], Record) {
    let modified = entry.metadata.modified;
    let record = Record {
        hash: *hash,
        size: size(entry),
        mtime: (modified.seconds, modified.nanos),
    };
    (entry.path.as_bytes(), record)
}
