// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slices: several processes write one file. Each writes its own blocks, and records the durable
//! ones in its own journal, `.longhaul-HASH.journal-N`. All slices share the lock of the part. A
//! process that wants the part exclusively, to begin it again or to finish it, waits until they are
//! closed. It then merges their records into the file's journal ([`merge_slices`]).
//!
//! The following rules keep this consistent through a loss of power. These journals are created
//! only beside a valid journal of the file, and are removed, durably, before that journal changes.
//! A record is valid as long as its part exists, whichever slice wrote it. So any slice may
//! continue any journal.
//!
//! Two slices that write the same block, because one was taken for dead, write the same bytes.

use super::{
    PartError,
    file::{BlockState, BlockStates, Part},
    paths::{PartPaths, SLICES_MAX},
};
use crate::{
    escape::Escaped,
    part::journal::{self, BlockRecord, Header, Journal},
    vfs::{Directory, FileOps, OpenError, OpenMode, file::DirectFile},
};
use parking_lot::Mutex;
use std::{collections::HashSet, ops::Range};

/// Opens a slice of a part that exists in this version; `None` if there is no such part.
pub(super) fn open_slice<D: Directory>(
    paths: PartPaths<D>,
    header: Header,
    sparse: bool,
    blocks: &[Range<u64>],
) -> Result<Option<Part<D>>, PartError> {
    let file = match paths.open_part(OpenMode::Shared) {
        Err(error) if error.has_final_owner_or_mode() => None,
        found => found?.map(|(file, _)| file),
    };
    let Some(file) = file else {
        return Ok(None);
    };
    let len = paths.io_context("read the size of its part", file.len())?;
    // The journal does not change now: a process that changes it holds the part exclusively.
    let main = read_records(&paths, &paths.journal, &header)?.flatten();
    let (Some(mut records), true) = (main, len == header.blocks.file_len()) else {
        return Ok(None);
    };
    let journal = acquire_journal(&paths, &header, &mut records)?;
    let count = header.blocks.count();
    let start = blocks.first().map_or(0, |first| first.start.min(count));
    let end = blocks.last().map_or(0, |last| last.end);
    let range = start..end.clamp(start, count);
    // Blocks between the ranges belong to other slices.
    records.retain(|(index, _)| {
        let next = blocks.partition_point(|range| range.end <= *index);
        blocks.get(next).is_some_and(|range| range.contains(index))
    });
    let slice = Part {
        state: Mutex::new(BlockStates::from_records(range, &records)),
        blocks: header.blocks,
        is_slice: true,
        sparse,
        paths,
        direct: DirectFile::open(&file),
        file,
        journal: Mutex::new(journal),
    };
    slice.drop_mismatched()?;
    Ok(Some(slice))
}

impl<D: Directory> Part<D> {
    fn drop_mismatched(&self) -> Result<(), PartError> {
        for index in self.mismatched_blocks() {
            let index = index?;
            self.state().set_state(index, BlockState::Missing);
        }
        Ok(())
    }
}

/// Opens a free slice journal. Adds the records of all slice journals to `records`.
fn acquire_journal<D: Directory>(
    paths: &PartPaths<D>,
    header: &Header,
    records: &mut Vec<BlockRecord>,
) -> Result<Journal<D::File>, PartError> {
    let mut own_journal = None;
    for number in 0..SLICES_MAX {
        let name = paths.slice_journal(number);
        if own_journal.is_none() {
            match paths.create(&name) {
                Ok(file) => {
                    own_journal = Some(resume_journal(paths, file, header, records)?);
                    continue;
                }
                Err(error) if error.is_busy() => {}
                Err(error) => return Err(error),
            }
        }
        match read_records(paths, &name, header)? {
            Some(slice_records) => records.extend(slice_records.into_iter().flatten()),
            None => break,
        }
    }
    own_journal.ok_or_else(|| PartError::Open {
        name: paths.display_name(),
        internal: Escaped(&paths.journal).to_string(),
        source: OpenError::Busy,
    })
}

fn resume_journal<D: Directory>(
    paths: &PartPaths<D>,
    file: D::File,
    header: &Header,
    records: &mut Vec<BlockRecord>,
) -> Result<Journal<D::File>, PartError> {
    let contents = paths.io_context("read its journal", journal::read(&file, header))?;
    let journal = match contents {
        Some(contents) => {
            records.extend(contents.records);
            Journal::resume(file, header, contents.end)
        }
        None => Journal::create(file, header),
    };
    let journal = paths.io_context("create its journal", journal)?;
    paths.io_context("make its name durable", paths.dir.sync())?;
    Ok(journal)
}

/// Reads a journal that another process may be writing: `None` if it is missing, `Some(None)` if it
/// is of another version. Makes the records durable.
fn read_records<D: Directory>(
    paths: &PartPaths<D>,
    name: &[u8],
    header: &Header,
) -> Result<Option<Option<Vec<BlockRecord>>>, PartError> {
    let Some(file) = paths.open(name, OpenMode::Read)? else {
        return Ok(None);
    };
    let contents = paths.io_context("read its journal", journal::read(&file, header))?;
    paths.io_context("make its journal durable", file.sync_data())?;
    Ok(Some(contents.map(|contents| contents.records)))
}

/// Merges the records of slices into the file's journal, and removes their journals. Returns all
/// records.
pub(super) fn merge_slices<D: Directory>(
    paths: &PartPaths<D>,
    header: &Header,
    journal: &mut Journal<D::File>,
    mut records: Vec<BlockRecord>,
) -> Result<Vec<BlockRecord>, PartError> {
    let known: HashSet<u64> = records.iter().map(|(index, _)| *index).collect();
    let mut new = Vec::new();
    let mut any = false;
    for number in 0..SLICES_MAX {
        // An earlier one may be missing: removals are lost in any order when power fails.
        let Some(file) = paths.open(&paths.slice_journal(number), OpenMode::Exclusive)? else {
            continue;
        };
        any = true;
        let contents = paths.io_context("read its journal", journal::read(&file, header))?;
        let slice_records = contents.map_or_else(Vec::new, |contents| contents.records);
        new.extend(
            slice_records
                .into_iter()
                .filter(|(index, _)| !known.contains(index)),
        );
    }
    if any {
        paths.io_context("write its journal", journal.append(&new))?;
        paths.remove_slice_journals()?;
    }
    records.extend(new);
    Ok(records)
}
