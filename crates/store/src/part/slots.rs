// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slices: several processes write one file. Each writes its own blocks, and records the durable
//! ones in its own journal, `.longhaul-HASH.journal-N`. All slices share the lock of the part. A
//! process that wants the part exclusively, to begin it again or to finish it, waits until they are
//! closed. It then merges their records into the file's journal ([`gather`]).
//!
//! The following rules keep this consistent through a loss of power. These journals are created
//! only beside a valid journal of the file, and are removed, durably, before that journal changes.
//! A record is valid as long as its part exists, whichever slice wrote it. So any slice may
//! continue any journal.
//!
//! Two slices that write the same block, because one was taken for dead, write the same bytes.

use super::{
    PartError,
    file::Part,
    site::{SLICES_MAX, Site},
    state::{Kind, State},
};
use crate::{
    escape::Escaped,
    part::journal::{self, Header, Journal, Record},
    vfs::{Directory, FileOps, OpenError, OpenMode, direct::DirectFile},
};
use parking_lot::Mutex;
use std::{collections::HashSet, ops::Range};

/// Opens a slice of a part that exists in this version; `None` if there is no such part.
pub(super) fn join<D: Directory>(
    site: Site<D>,
    header: Header,
    sparse: bool,
    blocks: &[Range<u64>],
) -> Result<Option<Part<D>>, PartError> {
    let file = match site.open_part(OpenMode::Shared) {
        Err(error) if error.is_given_away() => None,
        found => found?.map(|(file, _)| file),
    };
    let Some(file) = file else {
        return Ok(None);
    };
    let len = site.io("read the size of its part", file.len())?;
    // The journal does not change now: a process that changes it holds the part exclusively.
    let main = known(&site, &site.journal, &header)?.flatten();
    let (Some(mut records), true) = (main, len == header.blocks.file_len()) else {
        return Ok(None);
    };
    let journal = take(&site, &header, &mut records)?;
    let count = header.blocks.count();
    let start = blocks.first().map_or(0, |first| first.start.min(count));
    let end = blocks.last().map_or(0, |last| last.end);
    let within = start..end.clamp(start, count);
    // Blocks between the ranges belong to other slices.
    records.retain(|(index, _)| {
        let behind = blocks.partition_point(|range| range.end <= *index);
        blocks
            .get(behind)
            .is_some_and(|range| range.contains(index))
    });
    let slice = Part {
        state: Mutex::new(State::with(within, &records)),
        blocks: header.blocks,
        shared: true,
        sparse,
        site,
        direct: DirectFile::open(&file),
        file,
        journal: Mutex::new(journal),
    };
    slice.forget_what_changed()?;
    Ok(Some(slice))
}

impl<D: Directory> Part<D> {
    fn forget_what_changed(&self) -> Result<(), PartError> {
        for index in self.not_as_known() {
            let index = index?;
            self.state().become_kind(index, Kind::Missing);
        }
        Ok(())
    }
}

/// Opens a free slice journal. Adds the records of all slice journals to `records`.
fn take<D: Directory>(
    site: &Site<D>,
    header: &Header,
    records: &mut Vec<Record>,
) -> Result<Journal<D::File>, PartError> {
    let mut own = None;
    for slot in 0..SLICES_MAX {
        let name = site.slot(slot);
        if own.is_none() {
            match site.make(&name) {
                Ok(file) => {
                    own = Some(resume(site, file, header, records)?);
                    continue;
                }
                Err(error) if error.is_busy() => {}
                Err(error) => return Err(error),
            }
        }
        match known(site, &name, header)? {
            Some(noted) => records.extend(noted.into_iter().flatten()),
            None => break,
        }
    }
    own.ok_or_else(|| PartError::Open {
        name: site.shown(),
        own: Escaped(&site.journal).to_string(),
        source: OpenError::Busy,
    })
}

fn resume<D: Directory>(
    site: &Site<D>,
    file: D::File,
    header: &Header,
    records: &mut Vec<Record>,
) -> Result<Journal<D::File>, PartError> {
    let contents = site.io("read its journal", journal::read(&file, header))?;
    let journal = match contents {
        Some(contents) => {
            records.extend(contents.records);
            Journal::resume(file, header, contents.end)
        }
        None => Journal::begin(file, header),
    };
    let journal = site.io("create its journal", journal)?;
    site.io("make its name durable", site.dir.sync())?;
    Ok(journal)
}

/// Reads a journal that another process may be writing: `None` if it is missing, `Some(None)` if it
/// is of another version. Makes the records durable.
fn known<D: Directory>(
    site: &Site<D>,
    name: &[u8],
    header: &Header,
) -> Result<Option<Option<Vec<Record>>>, PartError> {
    let Some(file) = site.open(name, OpenMode::Read)? else {
        return Ok(None);
    };
    let contents = site.io("read its journal", journal::read(&file, header))?;
    site.io("make its journal durable", file.sync_data())?;
    Ok(Some(contents.map(|contents| contents.records)))
}

/// Merges the records of slices into the file's journal, and removes their journals. Returns all
/// records.
pub(super) fn gather<D: Directory>(
    site: &Site<D>,
    header: &Header,
    journal: &mut Journal<D::File>,
    mut records: Vec<Record>,
) -> Result<Vec<Record>, PartError> {
    let there: HashSet<u64> = records.iter().map(|(index, _)| *index).collect();
    let mut new = Vec::new();
    let mut any = false;
    for slot in 0..SLICES_MAX {
        // An earlier one may be missing: removals are lost in any order when power fails.
        let Some(file) = site.open(&site.slot(slot), OpenMode::Exclusive)? else {
            continue;
        };
        any = true;
        let contents = site.io("read its journal", journal::read(&file, header))?;
        let noted = contents.map_or_else(Vec::new, |contents| contents.records);
        new.extend(
            noted
                .into_iter()
                .filter(|(index, _)| !there.contains(index)),
        );
    }
    if any {
        site.io("write its journal", journal.add(&new))?;
        site.remove_slots()?;
    }
    records.extend(new);
    Ok(records)
}
