// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of which several hosts have a piece each: pieces that stay here, and pieces that are gathered here.

use super::{
    block_set::BlockSet,
    large_file::{open_directory, with_directory},
    state::Target,
};
use crate::protocol::message::{Outcome, Portion};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_store::{
    blocks::Blocks,
    entry::{Entry, Kind},
    metadata::Metadata,
    piece,
    tree::spread::{self, SpreadError},
    vfs::{Dir, Directory as _, OpenError},
};
use std::os::fd::AsFd;

impl Target {
    /// Records the shares of spread trees, so that a gather can report missing shares.
    ///
    /// # Errors
    ///
    /// The record cannot be written. Then nothing is copied, because no later gather would report that the
    /// rest is on other hosts.
    pub(super) fn record_shares(&self, shares: &[spread::TreeShare]) -> Result<()> {
        if shares.is_empty() {
            return Ok(());
        }
        let dir = Dir::new(self.root.open_dir_to_write(None)?.as_fd())?;
        spread::record(&dir, shares).map_err(record_error)
    }

    /// Returns the outcome of a piece that is to stay here, if it is already here.
    pub(super) fn kept_outcome(&self, entry: &Entry, portion: &Portion) -> Option<Outcome> {
        let (Portion::KeepPiece(_), Kind::File { version, .. }) = (portion, &entry.kind) else {
            return None;
        };
        let wanted = BlockSet::of(portion, Blocks::new(version.size))?;
        let dir = open_directory(&self.root, &entry.path).ok()?;
        let held = piece::held_blocks(&dir, entry).ok()??;
        let piece_header = piece::piece_header_entry(&dir, entry.path.name()).ok()??;
        // The access time does not matter.
        let metadata = Metadata {
            accessed: piece_header.metadata.accessed,
            ..entry.metadata.clone()
        };
        let all =
            wanted.intersection(&held) == wanted.ranges() && piece_header.metadata == metadata;
        all.then(|| match self.remove_whole_file(entry) {
            Ok(()) => Outcome::Unchanged,
            Err(why) => Outcome::Failed(why),
        })
    }

    /// Removes the whole file of this name where a piece is kept: the old file would pass for the new one.
    pub(super) fn remove_whole_file(&self, entry: &Entry) -> Result<(), String> {
        match self.root.remove(&entry.path) {
            Err(failure) if !failure.is_not_found() => Err(failure.to_string()),
            removed => {
                if removed.is_ok() {
                    let dir = open_directory(&self.root, &entry.path)?;
                    dir.sync().map_err(|error| with_directory(entry, &error))?;
                }
                Ok(())
            }
        }
    }
}

/// Converts an error of the record. A damaged, oversized or untrusted record is a refusal, because the user
/// must fix it; a full disk is not.
fn record_error(error: SpreadError) -> anyhow::Error {
    match error {
        SpreadError::Damaged
        | SpreadError::TooLong
        | SpreadError::Open(OpenError::Untrusted(_)) => Refusal::usage(error),
        SpreadError::Open(_) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::io;

    #[test]
    fn full_disk_is_not_a_usage_error() {
        let full = io::Error::from(Errno::NOSPC);
        let error = record_error(full.into());
        assert!(!error.is::<Refusal>());
        assert!(format!("{error:#}").contains("No space left"), "{error:#}");
        assert!(record_error(SpreadError::Damaged).is::<Refusal>());
    }
}
