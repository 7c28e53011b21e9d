// SPDX-License-Identifier: MIT OR Apache-2.0
//! What of a tree goes to one of several hosts that each keep a share of it.

use super::{Source, scanning::file_of, sending::SourceFile};
use crate::copy::{message::Share, order::Task};
use model::copy::placement::{Kept, Placement};
use sha2::{Digest as _, Sha256};
use std::{ops::Range, sync::Arc};
use store::{
    blocks::BLOCK,
    entry::{Entry, Kind, Version},
    path::RelPath,
    scan::Source as Place,
};

impl Source {
    /// How much of a file is copied here; `None`: nothing, another host has it.
    pub(super) fn share_of(
        &self,
        place: &Place,
        path: &RelPath,
        version: &Version,
    ) -> Option<Share> {
        let Task::Spread(placement) = self.task else {
            return Some(Share::Whole);
        };
        // What has several names has all of them at one host. Who can't be asked is not divided.
        let divisible = || place.links(path).is_ok_and(|links| links == 1);
        match placement.of_file(number(path), version.size, BLOCK, divisible) {
            Kept::Nothing => None,
            Kept::Whole => Some(Share::Whole),
            Kept::Blocks(blocks) => Some(Share::Kept(blocks)),
        }
    }

    /// Whether something goes here, and if it is a file, how much of it.
    pub(super) fn announced(
        &self,
        entry: &Entry,
        sources: &Arc<[Place]>,
        source: usize,
    ) -> Option<Option<SourceFile>> {
        let Some(file) = file_of(entry, sources, source) else {
            return self.goes_here(entry).then_some(None);
        };
        let share = self.share_of(&sources[source], &entry.path, &file.version)?;
        Some(Some(SourceFile { share, ..file }))
    }

    /// All hosts have all directories.
    fn goes_here(&self, entry: &Entry) -> bool {
        let Task::Spread(placement) = self.task else {
            return true;
        };
        match &entry.kind {
            Kind::Directory => true,
            Kind::HardLink { to } => has(placement, to),
            _ => has(placement, &entry.path),
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

fn has(placement: Placement, path: &RelPath) -> bool {
    placement.has(number(path))
}

/// The same for the same name, always and everywhere.
fn number(path: &RelPath) -> u64 {
    let hash = Sha256::digest(path.as_bytes());
    let first = hash.first_chunk().copied().unwrap_or_default();
    u64::from_be_bytes(first)
}
