// SPDX-License-Identifier: MIT OR Apache-2.0
//! Retries of files that changed while they were read. They are announced again after a pause, because the
//! program that writes them may be done by then.

use super::{
    file::{Lost, SourceFile},
    state::{Source, State},
};
use crate::protocol::message::SourceMsg;
use longhaul_store::entry::{Entry, Kind};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Maximum attempts to read a file.
const TRIES: u32 = 3;

/// Pause between detecting a change and the next attempt.
const PAUSE: Duration = Duration::from_secs(1);

impl Source {
    /// Handles a file that could not be read, or not as it was announced.
    pub(super) fn lose(&self, file: u64, source: &SourceFile, lost: &Lost) {
        match lost {
            // The session after all extents copies the rest of an extent.
            Lost::Changed if source.tries < TRIES && source.assignment.is_none() => {
                self.shared.update(|state| state.put_off(file));
            }
            _ => self.withdraw(file, source, lost),
        }
    }

    /// Thread that announces changed files again, until the session ends.
    pub(super) fn try_again(&self) {
        while let Some((changed, file)) = self.shared.next(|state| state.changed.pop_front()) {
            let pause = PAUSE.saturating_sub(changed.elapsed());
            self.shared.sleep(pause);
            self.announce_again(file);
        }
    }

    fn announce_again(&self, old: u64) {
        let known = |state: &State| state.announced.get(&old).cloned().flatten();
        // The target may have failed the file meanwhile.
        let Some(file) = self.shared.read(known) else {
            return;
        };
        match self.again(&file) {
            Ok((entry, new)) => {
                let share = new.share.clone();
                self.tally.update(|now| {
                    now.bytes = (now.bytes + new.bytes()).saturating_sub(file.bytes());
                });
                let number = self.shared.update(|state| {
                    state.forget(old);
                    state.announce(&entry, Some(Arc::new(new)))
                });
                self.orders.put(SourceMsg::Reannounce {
                    old,
                    number,
                    entry: entry.into(),
                    portion: share,
                });
            }
            Err(lost) => self.withdraw(old, &file, &lost),
        }
    }

    /// Returns the current state of a file.
    fn again(&self, file: &SourceFile) -> Result<(Entry, SourceFile), Lost> {
        let place = &file.sources[file.source];
        let entry = place.look_again(&file.path);
        let entry = entry.map_err(|error| Lost::Unreadable(error.to_string()))?;
        let Kind::File { version, sparse } = entry.kind else {
            return Err(Lost::Changed);
        };
        // If the file now belongs to another host, the next copy sends it.
        let share = self.share_of(place, &entry);
        let new = SourceFile {
            sources: file.sources.clone(),
            path: file.path.clone(),
            version,
            sparse,
            share: share.ok_or(Lost::Changed)?,
            assignment: None,
            tries: file.tries + 1,
            ..*file
        };
        Ok((entry, new))
    }
}

impl State {
    /// Queues a changed file to be announced again, if no other thread has done so.
    fn put_off(&mut self, file: u64) {
        if self.sending.remove(&file).is_some() || self.hashing.remove(&file) {
            self.changed.push_back((Instant::now(), file));
        }
    }
}
