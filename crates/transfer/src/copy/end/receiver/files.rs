// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files whose data is wanted: opened, as many as may be, asked for, and what is there of them read again.

use super::{
    large::{Begun, Large, finish_renamed},
    state::{Done, State, Waiting},
    target::Target,
};
use crate::protocol::message::{Answer, Need, Outcome, Share};
use longhaul_linux::clock;
use longhaul_scheduling::Stage;
use longhaul_store::{
    blocks::BLOCK,
    entry::{Entry, Kind},
    part::Renamed,
};
use std::{ops::Range, sync::Arc};

/// Ranges of missing blocks in one answer; 20 bytes each at most.
const RANGES_MAX: usize = 65_536;

impl Target {
    /// Asks for a file's data.
    pub(super) fn want(&self, number: u64, entry: Entry, share: Share) {
        let Kind::File { version, .. } = entry.kind else {
            let why = format!("{}: not a regular file", entry.path);
            return self.settle(number, &entry.path, Outcome::Failed(why));
        };
        if version.size > BLOCK {
            self.shared
                .note(|state| state.waiting.push_back(Waiting::new(number, entry, share)));
            return self.open_waiting();
        }
        let entry = Arc::new(entry);
        self.shared
            .note(|state| state.small.insert(number, entry.clone()));
        if version.size == 0 {
            // There is nothing to send.
            return self.write_empty(number);
        }
        self.answers.put(Answer::Need {
            file: number,
            missing: Need::Whole(version.size),
        });
    }

    /// Opens files of several blocks, as many as may be open, and asks for what they lack.
    pub(super) fn open_waiting(&self) {
        while let Some(next) = self.shared.change(State::next_to_open) {
            let number = next.number;
            let (large, busy) = match self.open(next) {
                Ok(large) => (large, None),
                Err(busy) => (None, Some(busy)),
            };
            let missing = large.as_ref().map(|large| large.missing());
            self.shared.change(|state| state.opened(number, large));
            self.ask(number, missing.unwrap_or_default());
            if let Some(busy) = busy {
                self.wait_for_another(*busy);
            }
        }
    }

    /// Opens a file, unless it is done with by that, or given back because another copy is at it.
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
            // Killed when only the name was missing, or others brought it: nothing is to be sent, so nobody would say so.
            large.seal(None);
            if *share == Share::Assembled {
                large.trust();
            }
        }
        Ok(Some(large.into()))
    }

    fn wait_for_another(&self, waiting: Waiting) {
        let now = clock::now();
        let given_up = self
            .shared
            .change(|state| state.wait_for_another(waiting, now));
        if let Some(file) = given_up {
            let why = format!("{}: another copy is writing it", file.entry.path);
            self.settle(file.number, &file.entry.path, Outcome::Failed(why));
        }
    }

    /// The committing thread keeps its hash.
    fn finish_renamed(&self, number: u64, entry: Entry, renamed: Renamed) {
        match finish_renamed(&entry, renamed) {
            Ok(named) => {
                let done = Done::of(number, entry.into(), named);
                self.shared.change(|state| state.renamed.push(done));
            }
            Err(why) => self.settle(number, &entry.path, Outcome::Failed(why)),
        }
    }

    fn ask(&self, file: u64, missing: Vec<Range<u64>>) {
        if missing.is_empty() {
            return;
        }
        // All at once: the source counts what is missing to know when it has sent it.
        let missing = match missing.len() {
            0..=RANGES_MAX => missing,
            _ => merged(&missing),
        };
        self.answers.put(Answer::Need {
            file,
            missing: Need::Blocks(missing),
        });
    }

    pub(super) fn withdraw(&self, file: u64) {
        let gone = self.shared.change(|state| {
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

    /// The thread that reads again what an earlier run brought, while the rest of it comes.
    pub(super) fn check_all(&self) {
        let mut gauge = self.tally.gauges.of_thread(Stage::Resting, None);
        while let Some(large) = self.shared.next(|state| state.to_check.pop_front()) {
            gauge.begin(Stage::Looking);
            while large.check_next() && !self.shared.is_over() {}
            gauge.begin(Stage::Resting);
        }
    }
}

/// A file so full of holes in its journal that they are not told apart: some blocks come twice.
fn merged(missing: &[Range<u64>]) -> Vec<Range<u64>> {
    let (first, last) = (missing.first(), missing.last());
    let whole = first.zip(last).map(|(first, last)| first.start..last.end);
    whole.into_iter().collect()
}
