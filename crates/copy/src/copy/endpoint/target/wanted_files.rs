// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files whose data is wanted. They are opened, as many as allowed, and their missing blocks are requested.
//! Data of an earlier run is verified.

use super::{
    large_file::{LargeFile, OpenedFile, finish_renamed},
    state::{FinalizedFile, State, Target, WaitingFile},
};
use crate::protocol::{
    message::{MissingBlocks, Outcome, Portion, TargetMsg},
    sections::SectionHash,
};
use longhaul_linux::clock;
use longhaul_scheduling::Stage;
use longhaul_store::{
    blocks::BLOCK_LEN,
    entry::{Entry, Kind},
    part::RenamedFile,
};
use std::{ops::Range, sync::Arc};

/// Maximum ranges of missing blocks in one message, at most 20 bytes each.
const RANGES_MAX: usize = 65_536;

impl Target {
    /// Requests the data of a file.
    pub(super) fn request_file(&self, number: u64, entry: Entry, portion: Portion) {
        let Kind::File { version, .. } = entry.kind else {
            let why = format!("{}: not a regular file", entry.path);
            return self.complete(number, &entry.path, Outcome::Failed(why));
        };
        if version.size > BLOCK_LEN {
            self.shared.update_silent(|state| {
                state
                    .waiting
                    .push_back(WaitingFile::new(number, entry, portion));
            });
            return self.open_waiting();
        }
        let entry = Arc::new(entry);
        self.shared
            .update_silent(|state| state.small_files.insert(number, entry.clone()));
        if version.size == 0 {
            // Nothing is to be sent.
            return self.write_empty(number);
        }
        self.to_source.push(TargetMsg::Request {
            file: number,
            missing: MissingBlocks::Whole(version.size),
        });
    }

    /// Opens waiting files of several blocks, as many as allowed, and requests their missing blocks.
    pub(super) fn open_waiting(&self) {
        while let Some(next) = self.shared.update(State::next_to_open) {
            let number = next.number;
            let (large, busy) = match self.open(next) {
                Ok(large) => (large, None),
                Err(busy) => (None, Some(busy)),
            };
            let missing = large.as_ref().map(|large| large.missing());
            let missing = missing.unwrap_or_default();
            let to_hash = large
                .clone()
                .filter(|large| large.has_before() && !missing.is_empty());
            self.shared.update(|state| {
                state.record_opened(number, large);
                state
                    .to_hash
                    .extend(to_hash.clone().map(|large| (number, large)));
            });
            if to_hash.is_none() {
                self.request_blocks(number, missing, Vec::new());
            }
            if let Some(busy) = busy {
                self.set_aside_busy(*busy);
            }
        }
    }

    /// Opens a file. Returns `None` if that completes it, and the file as an error if another copy writes it.
    fn open(&self, waiting: WaitingFile) -> Result<Option<Arc<LargeFile>>, Box<WaitingFile>> {
        let number = waiting.number;
        let (path, portion) = (&waiting.entry.path, &waiting.portion);
        let large = match LargeFile::open(
            &self.root,
            &waiting.entry,
            portion,
            !self.options.whole_files,
        ) {
            Ok(OpenedFile::Incomplete(large)) => large,
            Ok(OpenedFile::Renamed(renamed)) => {
                self.finish_renamed(number, waiting.entry, renamed);
                return Ok(None);
            }
            Ok(OpenedFile::Busy) => return Err(waiting.into()),
            Err(why) => {
                self.complete(number, path, Outcome::Failed(why));
                return Ok(None);
            }
        };
        if large.missing().is_empty() {
            // An earlier run was killed before the rename, or others sent all blocks. Nothing is sent, so the
            // source will not seal the file.
            large.seal(None);
            if *portion == Portion::Finalize {
                large.trust();
            }
        }
        Ok(Some(large.into()))
    }

    fn set_aside_busy(&self, waiting: WaitingFile) {
        let now = clock::now();
        let given_up = self
            .shared
            .update(|state| state.set_aside_busy(waiting, now));
        if let Some(file) = given_up {
            let why = format!("{}: another copy is writing it", file.entry.path);
            self.complete(file.number, &file.entry.path, Outcome::Failed(why));
        }
    }

    /// Renames a file that is complete; the commit thread records its hash.
    fn finish_renamed(&self, number: u64, entry: Entry, renamed: RenamedFile) {
        match finish_renamed(&entry, renamed) {
            Ok(named) => {
                let done = FinalizedFile::of(number, entry.into(), named);
                self.shared.update(|state| state.renamed.push(done));
            }
            Err(why) => self.complete(number, &entry.path, Outcome::Failed(why)),
        }
    }

    /// Thread that reads other versions of wanted files, so that the source sends only what differs.
    pub(super) fn hash_other_versions(&self) {
        let mut measurement = self.counters.metrics.measure_thread(Stage::Waiting, None);
        while let Some((number, large)) = self.shared.next(|state| state.to_hash.pop_front()) {
            measurement.enter(Stage::Scanning);
            let known = large.known_hashes(|| self.shared.is_over());
            self.request_blocks(number, large.missing(), known);
            measurement.enter(Stage::Waiting);
        }
    }

    fn request_blocks(&self, file: u64, missing: Vec<Range<u64>>, known: Vec<SectionHash>) {
        if missing.is_empty() {
            return;
        }
        // In one message: the source counts the missing blocks, to know when it has sent all of them.
        let missing = match missing.len() {
            0..=RANGES_MAX => missing,
            _ => merge(&missing),
        };
        let missing = if known.is_empty() {
            MissingBlocks::Blocks(missing)
        } else {
            MissingBlocks::Changed {
                blocks: missing,
                known,
            }
        };
        self.to_source.push(TargetMsg::Request { file, missing });
    }

    pub(super) fn discard_file(&self, file: u64) {
        let large = self.shared.update(|state| {
            let small = state.small_files.remove(&file).is_some();
            let large = state.large_files.remove(&file);
            let waiting = state.remove_waiting(file);
            let compared = state.remove_comparison(file);
            if small || compared || large.is_some() || waiting {
                state.in_flight -= 1;
                state.xattr_budget.remove(file);
            }
            large
        });
        if let Some(large) = large {
            large.discard();
        }
        self.open_waiting();
    }

    /// Thread that verifies data of an earlier run, while the rest arrives.
    pub(super) fn verify_all(&self) {
        let mut measurement = self.counters.metrics.measure_thread(Stage::Waiting, None);
        while let Some(large) = self.shared.next(|state| state.to_verify.pop_front()) {
            measurement.enter(Stage::Scanning);
            while large.verify_next() && !self.shared.is_over() {}
            measurement.enter(Stage::Waiting);
        }
    }
}

/// Merges all ranges into one, if a file has too many gaps: some blocks are sent twice.
fn merge(missing: &[Range<u64>]) -> Vec<Range<u64>> {
    let (first, last) = (missing.first(), missing.last());
    let whole = first.zip(last).map(|(first, last)| first.start..last.end);
    whole.into_iter().collect()
}
