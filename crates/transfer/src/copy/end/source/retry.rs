// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that changed while it was read is announced anew after a pause: whoever writes it may be done by then.

use super::{
    file::{Lost, SourceFile},
    state::{Source, State},
};
use crate::protocol::message::Order;
use longhaul_store::entry::{Entry, Kind};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How often a file is read before it is given up.
const TRIES: u32 = 3;

/// From when a change is seen to the next try.
const PAUSE: Duration = Duration::from_secs(1);

impl Source {
    /// A file can't be read, or not as it was announced.
    pub(super) fn lose(&self, file: u64, source: &SourceFile, lost: &Lost) {
        match lost {
            // What is left of an extent comes with the conversation after them.
            Lost::Changed if source.tries < TRIES && source.assignment.is_none() => {
                self.shared.change(|state| state.put_off(file));
            }
            _ => self.withdraw(file, source, lost),
        }
    }

    /// The thread that tries again, until all is over.
    pub(super) fn try_again(&self) {
        while let Some((changed, file)) = self.shared.next(|state| state.changed.pop_front()) {
            let pause = PAUSE.saturating_sub(changed.elapsed());
            self.shared.pause(pause);
            self.announce_again(file);
        }
    }

    fn announce_again(&self, old: u64) {
        let known = |state: &State| state.announced.get(&old).cloned().flatten();
        // The target may have given it up meanwhile.
        let Some(file) = self.shared.look(known) else {
            return;
        };
        match self.again(&file) {
            Ok((entry, new)) => {
                let share = new.share.clone();
                self.tally.add(|now| {
                    now.bytes = (now.bytes + new.bytes()).saturating_sub(file.bytes());
                });
                let number = self.shared.change(|state| {
                    state.forget(old);
                    state.announce(&entry, Some(Arc::new(new)))
                });
                self.orders.put(Order::Again {
                    old,
                    number,
                    entry: entry.into(),
                    share,
                });
            }
            Err(lost) => self.withdraw(old, &file, &lost),
        }
    }

    /// A file as it is now.
    fn again(&self, file: &SourceFile) -> Result<(Entry, SourceFile), Lost> {
        let place = &file.sources[file.source];
        let entry = place.look_again(&file.path);
        let entry = entry.map_err(|error| Lost::Unreadable(error.to_string()))?;
        let Kind::File { version, sparse } = entry.kind else {
            return Err(Lost::Changed);
        };
        // Where it would go elsewhere now, the next copy brings it.
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
    /// A thread found that a file has changed; only the first one that does.
    fn put_off(&mut self, file: u64) {
        if self.sending.remove(&file).is_some() || self.hashing.remove(&file) {
            self.changed.push_back((Instant::now(), file));
        }
    }
}
