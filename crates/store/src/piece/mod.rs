// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that is to stay in several places, some of its blocks in each.
//!
//! In each of them its part and journal stay ([`crate::part`]), the part as long as the file and called `.longhaul-HASH.piece-data`, and beside them a label,
//! `.longhaul-HASH.piece`, with the file's name and entry: the hash can't be turned back into a name. The label is
//! written when the part ends as a piece ([`crate::part::Part::keep`]) and goes with it: when the file gets its name
//! here, is thrown away or begun anew.
//!
//! A label alone says nothing of blocks. What is here is what the journal says of the version that the label has,
//! and a journal is believed beside a part of the file's length only. So it does no harm that a loss of power may bring
//! a label back, or one of the others.

mod in_tree;
mod open;

pub use crate::part::label::{BadLabel, LABEL_LEN_MAX};
pub(crate) use in_tree::{OwnNames, in_directory, is_of, remove};
pub use open::OpenPiece;
pub(crate) use open::look;

use crate::{
    blocks::{BLOCK, Blocks, runs},
    entry::{Entry, Version},
    medium::{Directory, How, Medium},
    part::{
        PartError, Site,
        journal::{self, Header, Record},
        label,
    },
    path::{KEPT, own_name},
};
use std::{io, ops::Range};

/// The blocks of this file in this version that a piece of it in `dir` has durable, as runs: up to 16 bytes of memory
/// for every second block. `None` if there is no label of this version, or no part and journal that fit it. Reads no
/// block and takes no lock: whoever has one may be changing what is there. What slices noted is passed over until
/// the part is opened as a whole.
///
/// # Errors
/// The system's.
pub fn held<D: Directory>(dir: &D, entry: &Entry) -> Result<Option<Vec<Range<u64>>>, PartError> {
    held_sized(dir, entry, BLOCK)
}

/// The part is opened first: a journal that is read later is of this part or of a later one, which has another header
/// before the part has its length.
pub(crate) fn held_sized<D: Directory>(
    dir: &D,
    entry: &Entry,
    block_len: u64,
) -> Result<Option<Vec<Range<u64>>>, PartError> {
    let site = Site::new(dir, entry.path.name())?;
    let Ok(version) = label::of_file(entry) else {
        return Ok(None);
    };
    let header = header(version, block_len);
    let (Some((part, _)), Some(journal)) = (
        site.open_part(How::Read)?,
        site.open(&site.journal, How::Read)?,
    ) else {
        return Ok(None);
    };
    if !is_labelled_so(&site, &header)? {
        return Ok(None);
    }
    let records = known(&part, &journal, &header);
    let records = site.io("look at its piece", records)?;
    site.io("make its journal durable", journal.sync_data())?;
    Ok(records.map(|records| runs_of(&records)))
}

/// What the label of a piece of this file says, if there is one: its metadata are as of the time when it was kept last.
///
/// # Errors
/// The system's.
pub fn label<D: Directory>(dir: &D, file: &[u8]) -> Result<Option<Entry>, PartError> {
    labelled(&Site::new(dir, file)?)
}

fn labelled<D: Directory>(site: &Site<D>) -> Result<Option<Entry>, PartError> {
    let Some(label) = site.open(&site.label, How::Read)? else {
        return Ok(None);
    };
    let entry = site.io("read its label", read(&label, &site.label))?;
    Ok(entry.ok())
}

/// What the kept part of a file is called that has this name, for those who are to remove it.
#[must_use]
pub fn part_name(file: &[u8]) -> String {
    String::from_utf8_lossy(&own_name(file, KEPT)).into_owned()
}

fn header(version: &Version, block_len: u64) -> Header {
    Header {
        version: version.into(),
        blocks: Blocks::sized(version.size, block_len),
    }
}

fn is_labelled_so<D: Directory>(site: &Site<D>, header: &Header) -> Result<bool, PartError> {
    let entry = labelled(site)?;
    let version = entry.as_ref().and_then(|entry| label::of_file(entry).ok());
    Ok(version.is_some_and(|version| journal::Version::from(version) == header.version))
}

fn read(label: &impl Medium, own: &[u8]) -> io::Result<Result<Entry, BadLabel>> {
    let mut bytes = vec![0; label.len()?.min(LABEL_LEN_MAX as u64 + 1) as usize];
    let read = label.read_at(&mut bytes, 0)?;
    Ok(label::decode(&bytes[..read], own))
}

/// One record a block, in order, if journal and part fit each other.
fn known<M: Medium>(part: &M, journal: &M, header: &Header) -> io::Result<Option<Vec<Record>>> {
    if part.len()? != header.blocks.file_len() {
        return Ok(None);
    }
    let contents = journal::read(journal, header)?;
    Ok(contents.map(|contents| latest(contents.records)))
}

/// Of each block the last record.
fn latest(mut records: Vec<Record>) -> Vec<Record> {
    records.reverse();
    records.sort_by_key(|(index, _)| *index);
    records.dedup_by_key(|(index, _)| *index);
    records
}

fn runs_of(records: &[Record]) -> Vec<Range<u64>> {
    runs(records.iter().map(|(index, _)| *index))
}

#[cfg(test)]
mod tests;
