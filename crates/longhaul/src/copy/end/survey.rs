// SPDX-License-Identifier: MIT OR Apache-2.0
//! A source that only says what files there are, for a driver that divides them among movers.

use super::{Reporter, end_with_standard_input, reach::Reach, source::Scanning};
use crate::copy::{
    order::{Begin, Found, Progress, Report},
    threads,
};
use anyhow::Result;
use store::{entry::Kind, scan::Item};

/// Files in one report, and bytes in their paths, at most one path more: far less than a message may have.
const FILES_MAX: usize = 4096;
const PATHS_MAX: usize = 1 << 20;

pub(super) fn run(begin: &Begin, reach: &Reach, reporter: &Reporter) -> Result<Progress> {
    let Scanning(scan) = Scanning::open(begin, reach)?;
    threads::begin(end_with_standard_input)?;
    let (mut found, mut paths) = (Vec::new(), 0);
    let mut all = Progress::default();
    for file in scan.filter_map(file) {
        all.entries += 1;
        all.bytes += file.version.size;
        paths += file.path.as_bytes().len();
        found.push(file);
        if found.len() == FILES_MAX || paths > PATHS_MAX {
            reporter.say(&Report::Found(std::mem::take(&mut found)));
            paths = 0;
        }
    }
    reporter.say(&Report::Found(found));
    Ok(all)
}

/// What can't be read is said by the conversation that copies the rest, as are links and directories.
fn file(item: Item) -> Option<Found> {
    let (source, entry, held) = match item {
        Item::Entry { source, entry, .. } => (source, entry, None),
        Item::Piece {
            source,
            entry,
            held,
        } => (source, entry, Some(held)),
        _ => return None,
    };
    let Kind::File { version, .. } = entry.kind else {
        return None;
    };
    Some(Found {
        source: source as u32,
        path: entry.path,
        version,
        held,
    })
}
