// SPDX-License-Identifier: MIT OR Apache-2.0
//! A source that only says what there is, for a driver that divides it among movers, or compares it with what others have.

use super::{Reporter, end_with_standard_input, reach::Reach, source::Scanning};
use crate::copy::{
    order::{Begin, Found, Progress, Report},
    threads,
};
use anyhow::Result;
use store::scan::Item;

/// Things in one report, and bytes of their names and ranges, at most one thing more: far less than a message may have.
const FOUND_MAX: usize = 4096;
const BYTES_MAX: usize = 1 << 20;

/// Bytes of a range of blocks, at most.
const RANGE: usize = 20;

pub(super) fn run(begin: &Begin, reach: &Reach, reporter: &Reporter) -> Result<Progress> {
    let Scanning(scan) = Scanning::open(begin, reach)?;
    threads::begin(end_with_standard_input)?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut all = Progress::default();
    for thing in scan.filter_map(thing) {
        all.entries += 1;
        bytes +=
            thing.path.as_bytes().len() + thing.held.as_ref().map_or(0, |held| RANGE * held.len());
        found.push(thing);
        if found.len() == FOUND_MAX || bytes > BYTES_MAX {
            reporter.say(&Report::Found(std::mem::take(&mut found)));
            bytes = 0;
        }
    }
    reporter.say(&Report::Found(found));
    Ok(all)
}

/// What can't be read is said by the conversation that copies the rest.
fn thing(item: Item) -> Option<Found> {
    let (source, entry, held) = match item {
        Item::Entry { source, entry, .. } => (source, entry, None),
        Item::Piece {
            source,
            entry,
            held,
        } => (source, entry, Some(held)),
        _ => return None,
    };
    Some(Found {
        source: source as u32,
        path: entry.path,
        kind: entry.kind,
        held,
    })
}
