// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files whose data is wanted. They are opened, as many as allowed, and their missing blocks are requested.
//! Data of an earlier run is verified.

use super::{
    large::{Begun, Large, finish_renamed},
    state::{Done, State, Waiting},
    target::Target,
};
use crate::protocol::message::{MissingBlocks, Outcome, Portion, TargetMsg};
use longhaul_linux::clock;
use longhaul_scheduling::Stage;
use longhaul_store::{
    blocks::BLOCK,
    entry::{Entry, Kind},
    part::Renamed,
};
use std::{ops::Range, sync::Arc};

/// Maximum ranges of missing blocks in one message, at most 20 bytes each.
const RANGES_MAX: usize = 65_536;

impl Target {
    /// Requests the data of a file.
    pub(super) fn want(&self, number: u64, entry: Entry, share: Portion) {
        let Kind::File { version, .. } = entry.kind else {
            let why = format!("{}: not a regular file", entry.path);
            return self.settle(number, &entry.path, Outcome::Failed(why));
        };
        if version.size > BLOCK {
            self.shared
                .update_silent(|state| state.waiting.push_back(Waiting::new(number, entry, share)));
            return self.open_waiting();
        }
        let entry = Arc::new(entry);
        self.shared
            .update_silent(|state| state.small.insert(number, entry.clone()));
        if version.size == 0 {
            // Nothing is to be sent.
            return self.write_empty(number);
        }
        self.answers.put(TargetMsg::Request {
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
            self.shared.update(|state| state.opened(number, large));
            self.ask(number, missing.unwrap_or_default());
            if let Some(busy) = busy {
                self.wait_for_another(*busy);
            }
        }
    }

    /// Opens a file. Returns `None` if that completes it, and the file as an error if another copy writes it.
    fn open(&self, waiting: Waiting) -> Result<Option<Arc<Large>>, Box<Waiting>> {
        let number = waiting.number;
        let (path, share) = (&waiting.entry.path, &waiting.share);
        let large = match Large::open(&self.root, &waiting.entry, share) {
            Ok(Begun::Lacking(large)) => large,
            Ok(Begun::Renamed(renamed)) => {
                self.finish_renamed(number, waiting.entry, renamed);
                return Ok(None);
            }
            Ok(Begun::Busy) => return Err(waiting.into()),
            Err(why) => {
                self.settle(number, path, Outcome::Failed(why));
                return Ok(None);
            }
        };
        if large.missing().is_empty() {
            // An earlier run was killed before the rename, or others sent all blocks. Nothing is sent, so the
            // source will not seal the file.
            large.seal(None);
            if *share == Portion::Finalize {
                large.trust();
            }
        }
        Ok(Some(large.into()))
    }

    fn wait_for_another(&self, waiting: Waiting) {
        let now = clock::now();
        let given_up = self
            .shared
            .update(|state| state.wait_for_another(waiting, now));
        if let Some(file) = given_up {
            let why = format!("{}: another copy is writing it", file.entry.path);
            self.settle(file.number, &file.entry.path, Outcome::Failed(why));
        }
    }

    /// Renames a file that is complete; the commit thread records its hash.
    fn finish_renamed(&self, number: u64, entry: Entry, renamed: Renamed) {
        match finish_renamed(&entry, renamed) {
            Ok(named) => {
                let done = Done::of(number, entry.into(), named);
                self.shared.update(|state| state.renamed.push(done));
            }
            Err(why) => self.settle(number, &entry.path, Outcome::Failed(why)),
        }
    }

    fn ask(&self, file: u64, missing: Vec<Range<u64>>) {
        if missing.is_empty() {
            return;
        }
        // In one message: the source counts the missing blocks, to know when it has sent all of them.
        let missing = match missing.len() {
            0..=RANGES_MAX => missing,
            _ => merged(&missing),
        };
        self.answers.put(TargetMsg::Request {
            file,
            missing: MissingBlocks::Blocks(missing),
        });
    }

    pub(super) fn withdraw(&self, file: u64) {
        let gone = self.shared.update(|state| {
            let small = state.small.remove(&file).is_some();
            let large = state.large.remove(&file);
            let waiting = state.forget_waiting(file);
            let compared = state.forget_comparison(file);
            if small || compared || large.is_some() || waiting {
                state.unsettled -= 1;
                state.attributes.remove(file);
            }
            large
        });
        if let Some(large) = gone {
            large.discard();
        }
        self.open_waiting();
    }

    /// Thread that verifies data of an earlier run, while the rest arrives.
    pub(super) fn check_all(&self) {
        let mut gauge = self.tally.metrics.measure_thread(Stage::Waiting, None);
        while let Some(large) = self.shared.next(|state| state.to_check.pop_front()) {
            gauge.enter(Stage::Scanning);
            while large.check_next() && !self.shared.is_over() {}
            gauge.enter(Stage::Waiting);
        }
    }
}

/// Merges all ranges into one, if a file has too many gaps: some blocks are sent twice.
fn merged(missing: &[Range<u64>]) -> Vec<Range<u64>> {
    let (first, last) = (missing.first(), missing.last());
    let whole = first.zip(last).map(|(first, last)| first.start..last.end);
    whole.into_iter().collect()
}
