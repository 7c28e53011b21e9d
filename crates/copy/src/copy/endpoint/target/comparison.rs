// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--checksum`: files of equal size are the same if their hashes are. The source reads its file as soon as
//! the hash is requested; this endpoint reads its own when the hash has arrived.

use super::{
    large_file::{copied_outcome, describe_skipped, remove_leftovers_of, size},
    state::{Comparison, State, Target},
};
use crate::protocol::message::{Outcome, Portion, TargetMsg};
use anyhow::Result;
use longhaul_command::threads;
use longhaul_scheduling::Stage;
use longhaul_store::{
    blocks::{BLOCK_LEN, Blocks, FileHash},
    entry::{Entry, Kind},
    tree::writer::{Options, TreeWriter, WriteOutcome},
};
use std::{fs::File, sync::Arc};

impl Target {
    /// Starts the threads that read files here, one per CPU; they end with the session.
    pub(super) fn start_comparing(self: &Arc<Self>) -> Result<()> {
        threads::spawn_per_cpu(|| {
            let target = self.clone();
            move || target.compare_files()
        })
    }

    /// Requests the hash of a file from the source.
    pub(super) fn request_hash(&self, number: u64, entry: Entry) {
        self.shared
            .update(|state| state.comparing.insert(number, entry));
        self.to_source.push(TargetMsg::HashRequest { file: number });
    }

    pub(super) fn handle_hash(&self, number: u64, hash: FileHash) {
        self.shared.update(|state| {
            if let Some(entry) = state.comparing.remove(&number) {
                state.to_compare.push_back(Comparison {
                    number,
                    entry,
                    hash,
                });
            }
        });
    }

    fn compare_files(&self) {
        let mut measurement = self.counters.metrics.measure_thread(Stage::Waiting, None);
        while let Some(next) = self.shared.next(|state| state.to_compare.pop_front()) {
            measurement.enter(Stage::Scanning);
            self.compare_file(next);
            measurement.enter(Stage::Waiting);
        }
    }

    fn compare_file(&self, comparison: Comparison) {
        let Comparison {
            number,
            entry,
            hash,
        } = comparison;
        // A file that cannot be read here is replaced.
        if let Some((file, _)) = self.hash_own_file(&entry).filter(|(_, own)| *own == hash) {
            let outcome = self.compare_metadata(&entry, &file);
            return self.complete(number, &entry.path, outcome);
        }
        if self.options.dry_run {
            let outcome = self.plan_entry(&entry, &WriteOutcome::Transfer);
            self.complete(number, &entry.path, outcome);
        } else {
            self.request_file(number, entry, Portion::Whole);
        }
    }

    fn hash_own_file(&self, entry: &Entry) -> Option<(File, FileHash)> {
        let Kind::File { version, .. } = entry.kind else {
            return None;
        };
        let file = self.root.open_file(&entry.path).ok()?;
        let blocks = Blocks::new(file.metadata().ok()?.len());
        if blocks.file_len() != version.size {
            return None;
        }
        let (mut buffer, mut hashes) = (Vec::new(), Vec::new());
        for index in 0..blocks.count() {
            hashes.push(blocks.read_hash(&file, index, &mut buffer).ok()?);
        }
        blocks.file_hash(&hashes).map(|hash| (file, hash))
    }

    /// Compares the metadata of a file with equal content.
    fn compare_metadata(&self, entry: &Entry, file: &File) -> Outcome {
        let options = Options {
            dry_run: self.options.dry_run,
            ..Options::default()
        };
        match TreeWriter::new(&self.root, options).correct_metadata(entry, file) {
            Ok((WriteOutcome::Unchanged, _)) if self.options.dry_run => Outcome::Unchanged,
            Ok((WriteOutcome::Unchanged, skipped_metadata)) => {
                self.report_missing_metadata(&entry.path, &skipped_metadata);
                self.present_outcome(entry)
            }
            Ok((written, _)) if self.options.dry_run => self.plan_entry(entry, &written),
            Ok((_, skipped_metadata)) => copied_outcome(describe_skipped(&skipped_metadata)),
            Err(failure) => Outcome::Failed(failure.to_string()),
        }
    }

    /// Returns the outcome of an entry that is present. Leftovers of a killed copy beside it are removed.
    pub(super) fn present_outcome(&self, entry: &Entry) -> Outcome {
        match (size(entry) > BLOCK_LEN).then(|| remove_leftovers_of(&self.root, entry)) {
            Some(Err(why)) => Outcome::Failed(why),
            _ => Outcome::Unchanged,
        }
    }
}

impl State {
    /// Removes a aborted file from the comparisons; returns whether it was among them.
    pub(super) fn remove_comparison(&mut self, file: u64) -> bool {
        let before = self.to_compare.len();
        self.to_compare.retain(|other| other.number != file);
        self.comparing.remove(&file).is_some() || self.to_compare.len() < before
    }
}
