// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of at most one block. Each is written whole; the commit thread renames them in batches.

use super::{
    large_file::{apply_metadata, open_directory, size, with_directory},
    state::{BUSY_WAIT_MAX, State, Target, WrittenFile},
};
use crate::protocol::message::Outcome;
use longhaul_linux::clock;
use longhaul_store::{
    blocks::{BLOCK_LEN, Blocks, FileHash},
    entry::{Entry, Kind},
    small::SmallFile,
};
use std::{fs::File, sync::Arc, thread, time::Duration};

/// Pause between attempts to write a file that another copy holds. The data has already arrived, so the
/// stream's thread waits here.
const BUSY_RETRY_DELAY: Duration = Duration::from_millis(100);

impl Target {
    /// Writes a file without data.
    pub(super) fn write_empty(&self, number: u64) {
        let hash = Blocks::new(0).file_hash(&[]).unwrap_or_default();
        self.write_small(number, Some(&[]), Some(hash));
    }

    /// Writes a file of one block. `None` stands for a block of zeros, which is a hole at the source.
    pub(super) fn write_small(&self, number: u64, bytes: Option<&[u8]>, hash: Option<FileHash>) {
        self.shared
            .wait_until(|state| state.batch.len() < state.open_limits.batch);
        let Some(entry) = self
            .shared
            .update_silent(|state| state.small_files.remove(&number))
        else {
            return;
        };
        // A small file is announced with at most one block.
        let length = size(&entry).min(BLOCK_LEN) as usize;
        let zeros = vec![0; bytes.map_or(length, |_| 0)];
        match self.write_file(&entry, bytes.unwrap_or(&zeros), hash) {
            Ok((small, skipped_metadata)) => {
                let written = WrittenFile {
                    number,
                    entry,
                    small,
                    skipped_metadata,
                };
                self.shared
                    .update_if(|state| state.batch.push(written), State::needs_commit);
            }
            Err(why) => self.complete(number, &entry.path, Outcome::Failed(why)),
        }
    }

    fn write_file(
        &self,
        entry: &Arc<Entry>,
        bytes: &[u8],
        hash: Option<FileHash>,
    ) -> Result<(SmallFile, Vec<String>), String> {
        let dir = open_directory(&self.root, &entry.path)?;
        let mut skipped_metadata = Vec::new();
        let mut write = || {
            let prepare = |file: &File| {
                skipped_metadata = apply_metadata(&entry.metadata, file)?;
                Ok(())
            };
            let sparse = has_holes(entry);
            SmallFile::write(&dir, entry.path.name(), bytes, hash, sparse, prepare)
        };
        let deadline = clock::now() + BUSY_WAIT_MAX;
        let small = loop {
            match write() {
                Err(error) if error.is_busy() && clock::now() < deadline => {
                    thread::sleep(BUSY_RETRY_DELAY);
                }
                written => break written,
            }
        };
        let small = small.map_err(|error| with_directory(entry, &error))?;
        Ok((small, skipped_metadata))
    }
}

fn has_holes(entry: &Entry) -> bool {
    matches!(entry.kind, Kind::File { sparse: true, .. })
}
