// SPDX-License-Identifier: MIT OR Apache-2.0
//! What of a tree goes to one of several hosts that each keep a share of it.

use super::{Source, scanning::file_of, sending::SourceFile};
use crate::protocol::{message::Share, order::Task};
use longhaul_scheduling::placement::Kept;
use longhaul_store::{
    blocks::BLOCK,
    entry::{Entry, Kind},
    path::RelPath,
    scan::Source as Place,
};
use sha2::{Digest as _, Sha256};
use std::{ops::Range, sync::Arc};

impl Source {
    /// How much of something is copied here; `None`: nothing, another host has it. All have all directories.
    pub(super) fn share_of(&self, place: &Place, entry: &Entry) -> Option<Share> {
        let Task::Spread(placement) = self.task else {
            return Some(Share::Whole);
        };
        let whole = |path| placement.has(number(path)).then_some(Share::Whole);
        match &entry.kind {
            Kind::Directory => Some(Share::Whole),
            Kind::HardLink { to } => whole(to),
            Kind::File { version, .. } => {
                // What has several names has all of them at one host. Who can't be asked is not divided.
                let divisible = || place.links(&entry.path).is_ok_and(|links| links == 1);
                match placement.of_file(number(&entry.path), version.size, BLOCK, divisible) {
                    Kept::Nothing => None,
                    Kept::Whole => Some(Share::Whole),
                    Kept::Blocks(blocks) => Some(Share::Kept(blocks)),
                }
            }
            _ => whole(&entry.path),
        }
    }

    /// Whether pieces are what is copied: to who does not expect them they would pass for whole files.
    pub(super) fn takes_pieces(&self) -> bool {
        matches!(self.task, Task::Gather(_) | Task::Pieces)
    }

    /// A piece of a file, which was brought by an earlier copy.
    pub(super) fn piece(
        &self,
        entry: &Entry,
        held: Vec<Range<u64>>,
        sources: &Arc<[Place]>,
        source: usize,
    ) -> Option<SourceFile> {
        let file = file_of(entry, sources, source)?;
        let share = match self.task {
            Task::Gather(_) => Share::Piece(held),
            _ => Share::Kept(held),
        };
        Some(SourceFile {
            share,
            in_piece: true,
            ..file
        })
    }
}

/// The same for the same name, always and everywhere.
fn number(path: &RelPath) -> u64 {
    let hash = Sha256::digest(path.as_bytes());
    let first = hash.first_chunk().copied().unwrap_or_default();
    u64::from_be_bytes(first)
}
