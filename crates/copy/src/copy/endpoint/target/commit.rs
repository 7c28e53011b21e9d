// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commit thread: makes written data durable in batches, and renames files to their final names.

use super::{
    large_file::{LargeFile, copied_outcome, size, with_directory},
    state::{FinalizedFile, State, Target, WrittenFile},
};
use crate::protocol::{
    message::{Outcome, TargetMsg},
    options::Switch,
};
use longhaul_scheduling::Stage;
use longhaul_store::{
    blocks::FileHash,
    entry::Entry,
    manifest::{FileRecord, Manifest, ManifestError},
    part::FinishedFile,
    small,
    vfs::Dir,
};
use std::{os::fd::AsFd as _, sync::Arc, time::Duration};

/// Maximum time for which written blocks wait for a commit. A kill loses the data received in this time and
/// during a sync, at most [`AT_RISK_MAX`](super::state::AT_RISK_MAX), and the data in flight.
const COMMIT_INTERVAL: Duration = Duration::from_millis(250);

/// Entry and hash of a file for the manifest.
type HashRecord = (Arc<Entry>, FileHash);

impl Target {
    pub(super) fn commit_until_over(&self) {
        let mut manifest = self.load_manifest();
        let mut measurement = self.counters.metrics.measure_thread(Stage::Waiting, None);
        while !self.shared.is_over() {
            self.shared
                .wait_timeout(COMMIT_INTERVAL, |state| state.over || state.needs_commit());
            measurement.enter(Stage::Syncing);
            for (stream, blocks) in self.shared.update(State::take_unreported) {
                self.to_source.push(TargetMsg::Received { stream, blocks });
            }
            let done = self.commit(manifest.as_mut());
            if !done.is_empty() {
                if self.options.hash == Switch::Off {
                    self.remove_hashes_of(manifest.as_mut(), &done);
                }
                done.into_iter().for_each(|file| self.remove_journal(file));
                self.open_waiting();
            }
            if self.shared.update(State::requeue_busy) {
                self.open_waiting();
            }
            measurement.enter(Stage::Waiting);
        }
        if let Some(manifest) = &mut manifest {
            self.compact(manifest);
        }
    }

    /// Rewrites a manifest that has mostly outdated lines.
    pub(super) fn compact(&self, manifest: &mut Manifest) {
        if let Err(error) = manifest.compact() {
            self.reporter.send_problem(format!(
                "the hashes take more space than they need: {error}"
            ));
        }
    }

    /// Commits data first, then the manifest, then names: no kill leaves a file under its final name that the
    /// manifest lacks.
    fn commit(&self, manifest: Option<&mut Manifest>) -> Vec<FinalizedFile> {
        let written = self.shared.read(State::begin_commit);
        let complete = self.commit_large();
        let mut done = self
            .shared
            .update(|state| std::mem::take(&mut state.renamed));
        let large = complete
            .iter()
            .filter_map(|(_, large)| Some((large.entry.clone(), large.verified_hash()?)));
        let renamed = done
            .iter()
            .filter_map(|done| Some((done.entry.clone(), done.finished.as_ref()?.hash?)));
        let hash_records: Vec<HashRecord> = large.chain(renamed).collect();
        done.extend(self.commit_small(manifest, hash_records));
        self.shared.update(|state| state.end_commit(written));
        done.extend(
            complete
                .into_iter()
                .filter_map(|(number, large)| self.rename_large(number, &large)),
        );
        done
    }

    /// Loads the manifest. Without one, files are still copied, but cannot be verified later without the
    /// source.
    pub(super) fn load_manifest(&self) -> Option<Manifest> {
        let what = "no record of hashes is kept";
        let top = self.root.open_dir_to_write(None);
        let dir = top.map(|top| Dir::new(top.as_fd()));
        match dir {
            Ok(Ok(dir)) => Manifest::load(&dir)
                .map_err(|error| self.report_manifest_error(what, &error))
                .ok(),
            Ok(Err(error)) => {
                self.report_failure(format!("{what}: {error}"));
                None
            }
            Err(failure) => {
                self.report_failure(format!("{what}: {failure}"));
                None
            }
        }
    }

    /// Reports an error of the manifest. Another user's doing is no failure of the copy.
    pub(super) fn report_manifest_error(&self, what: &str, error: &ManifestError) {
        let why = format!("{what}: {error}");
        if error.is_of_another_user() {
            self.reporter.send_problem(why);
        } else {
            self.report_failure(why);
        }
    }

    /// Renames small files, once they and the other new hashes are in the manifest.
    fn commit_small(
        &self,
        manifest: Option<&mut Manifest>,
        mut hash_records: Vec<HashRecord>,
    ) -> Vec<FinalizedFile> {
        let batch = self.shared.update(|state| std::mem::take(&mut state.batch));
        let (mut entries, mut files) = (Vec::new(), Vec::new());
        for WrittenFile {
            number,
            entry,
            small,
            skipped_metadata,
        } in batch
        {
            entries.push((number, entry, skipped_metadata));
            files.push(small);
        }
        let outcomes = small::commit(files, |hashes| {
            let small = entries.iter().zip(hashes);
            hash_records
                .extend(small.filter_map(|((_, entry, _), hash)| Some((entry.clone(), (*hash)?))));
            self.record_hashes(manifest, &hash_records);
        });
        let mut done = Vec::new();
        for ((number, entry, skipped_metadata), outcome) in entries.into_iter().zip(outcomes) {
            match outcome {
                Ok(_) => {
                    self.report_durable(size(&entry));
                    done.push(FinalizedFile {
                        number,
                        entry,
                        skipped_metadata,
                        finished: None,
                    });
                }
                Err(error) => {
                    let why = with_directory(&entry, &error);
                    self.complete(number, &entry.path, Outcome::Failed(why));
                }
            }
        }
        done
    }

    /// Makes the written data of large files durable; returns the files that are complete.
    fn commit_large(&self) -> Vec<(u64, Arc<LargeFile>)> {
        let open: Vec<(u64, Arc<LargeFile>)> = self.shared.read(|state| {
            let all = state.large_files.iter();
            all.map(|(number, large)| (*number, large.clone()))
                .collect()
        });
        let mut complete = Vec::new();
        for (number, large) in open {
            match large.commit() {
                Ok(bytes) => self.report_durable(bytes),
                Err(why) => {
                    self.fail_file(number, &large, why);
                    continue;
                }
            }
            if !large.is_complete() {
                continue;
            }
            match large.assemble() {
                Ok(()) => complete.push((number, large)),
                Err(why) => self.fail_file(number, &large, why),
            }
        }
        complete
    }

    fn rename_large(&self, number: u64, large: &LargeFile) -> Option<FinalizedFile> {
        let finished = large.finish().and_then(|named| {
            if large.remains_piece() {
                self.remove_whole_file(&large.entry)?;
            }
            Ok(named)
        });
        match finished {
            Ok(named) => {
                self.shared
                    .update(|state| state.large_files.remove(&number));
                let Some(named) = named else {
                    self.complete(number, &large.entry.path, Outcome::Copied);
                    self.open_waiting();
                    return None;
                };
                Some(FinalizedFile::of(number, large.entry.clone(), named))
            }
            Err(why) => {
                self.fail_file(number, large, why);
                None
            }
        }
    }

    /// Fails a file, unless that was done before.
    pub(super) fn fail_file(&self, number: u64, large: &LargeFile, why: String) {
        let known = self
            .shared
            .update(|state| state.large_files.remove(&number).is_some());
        if known {
            self.complete(number, &large.entry.path, Outcome::Failed(why));
            self.open_waiting();
        }
    }

    fn report_durable(&self, bytes: u64) {
        if bytes > 0 {
            self.counters.update(|progress| progress.durable += bytes);
            self.to_source.push(TargetMsg::Durable { bytes });
        }
    }

    /// Appends hashes to the manifest.
    fn record_hashes(&self, manifest: Option<&mut Manifest>, hash_records: &[HashRecord]) {
        let records: Vec<(&[u8], FileRecord)> = hash_records.iter().map(manifest_record).collect();
        if let Some(manifest) = manifest
            && let Err(error) = manifest.append(&records)
        {
            let count = records.len();
            let what = format!("hashes of {count} files are not kept");
            self.report_manifest_error(&what, &error);
        }
    }

    /// Removes old hashes of files that were written without hashing.
    fn remove_hashes_of(&self, manifest: Option<&mut Manifest>, done: &[FinalizedFile]) {
        let Some(manifest) = manifest else { return };
        let paths = done.iter().map(|done| done.entry.path.as_bytes());
        let known = paths.filter(|path| manifest.lookup(path).is_some());
        let removed: Vec<(&[u8], FileRecord)> =
            known.map(|path| (path, FileRecord::REMOVED)).collect();
        if let Err(error) = manifest.append(&removed) {
            self.report_manifest_error("outdated hashes could not be removed", &error);
        }
    }

    fn remove_journal(&self, file: FinalizedFile) {
        let removed = file.finished.map_or(Ok(()), FinishedFile::remove_journal);
        if let Err(error) = removed {
            self.reporter
                .send_problem(with_directory(&file.entry, &error));
        }
        self.complete(
            file.number,
            &file.entry.path,
            copied_outcome(file.skipped_metadata),
        );
    }
}

fn manifest_record((entry, hash): &HashRecord) -> (&[u8], FileRecord) {
    let modified = entry.metadata.modified;
    let record = FileRecord {
        hash: *hash,
        size: size(entry),
        mtime: (modified.seconds, modified.nanos),
    };
    (entry.path.as_bytes(), record)
}
