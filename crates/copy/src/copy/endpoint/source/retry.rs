// SPDX-License-Identifier: MIT OR Apache-2.0
//! Retries of files that changed while they were read. Such a file is announced again after a pause, in which the
//! program that writes it may finish.

use super::{
    file::{ReadError, SourceFile},
    state::{Source, State},
};
use crate::protocol::message::SourceMsg;
use longhaul_store::entry::{Entry, Kind};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Pause between detecting a change and the next attempt.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl Source {
    /// Handles a file that could not be read, or that has changed since it was announced.
    pub(super) fn handle_read_error(&self, file: u64, source: &SourceFile, error: &ReadError) {
        match error {
            // A file of an extent is not retried: the session after all extents copies what is left.
            ReadError::Changed if !source.may_grow() && source.extent_number.is_none() => {
                self.shared.update(|state| state.queue_reannouncement(file));
            }
            _ => self.abort_file(file, source, error),
        }
    }

    /// Announces changed files again until the session ends. Runs on a thread of its own.
    pub(super) fn reannounce_all(&self) {
        while let Some((changed, file)) = self.shared.next(|state| state.to_reannounce.pop_front())
        {
            let pause = RETRY_DELAY.saturating_sub(changed.elapsed());
            self.shared.sleep(pause);
            self.reannounce(file);
        }
    }

    fn reannounce(&self, old: u64) {
        let known = |state: &State| state.announced.get(&old).cloned().flatten();
        // The target may have reported meanwhile that the file failed.
        let Some(file) = self.shared.read(known) else {
            return;
        };
        match self.refresh(&file) {
            Ok((entry, new)) => {
                let portion = new.portion.clone();
                self.counters.update(|progress| {
                    progress.bytes = (progress.bytes + new.bytes()).saturating_sub(file.bytes());
                });
                let number = self.shared.update(|state| {
                    state.remove(old);
                    state.announce(&entry, Some(Arc::new(new)))
                });
                self.to_target.push(SourceMsg::Reannounce {
                    old,
                    number,
                    entry,
                    portion,
                });
            }
            Err(error) => self.abort_file(old, &file, &error),
        }
    }

    /// Returns the current state of a file.
    fn refresh(&self, file: &SourceFile) -> Result<(Entry, SourceFile), ReadError> {
        let scan_source = &file.sources[file.source];
        let entry = scan_source.reread(&file.path)?;
        let Kind::File { version, .. } = entry.kind else {
            return Err(ReadError::Changed);
        };
        // After the change, the file may belong to another target host. Then the next copy sends it.
        let portion = self.portion_of(scan_source, &entry);
        let new = SourceFile {
            sources: file.sources.clone(),
            path: file.path.clone(),
            version,
            portion: portion.ok_or(ReadError::Changed)?,
            extent_number: None,
            attempts: file.attempts + 1,
            ..*file
        };
        Ok((entry, new))
    }
}

impl State {
    /// Queues a changed file to be announced again, if no other thread has done so.
    fn queue_reannouncement(&mut self, file: u64) {
        if self.outgoing.remove(&file).is_some() || self.hashing.remove(&file) {
            self.to_reannounce.push_back((Instant::now(), file));
        }
    }
}
