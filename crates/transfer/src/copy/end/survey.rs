// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source that only lists its entries, for a coordinator that divides them among workers or compares several
//! hosts.

use super::{
    reach::Reach,
    reports::{Reporter, end_with_standard_input},
    source::{scan, share::shares},
};
use crate::protocol::{
    entry::Kind,
    order::Begin,
    report::{Found, Progress, Report},
};
use anyhow::Result;
use longhaul_command::threads;
use longhaul_store::tree::scan::Item;

/// Maximum entries in one report; and bytes of their names and ranges, exceeded by one entry at most. Both
/// are far below the limit of a message.
const FOUND_MAX: usize = 4096;
const BYTES_MAX: usize = 1 << 20;

/// Maximum bytes of a range of blocks.
const RANGE: usize = 20;

pub(super) fn run(begin: &Begin, reach: &Reach, reporter: &Reporter) -> Result<Progress> {
    let scan = scan::open(begin, reach)?;
    threads::spawn(end_with_standard_input)?;
    reporter.say(&Report::Shares(shares(begin, reach)?));
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut all = Progress::default();
    for thing in scan.filter_map(thing) {
        all.entries += 1;
        bytes += len(&thing);
        found.push(thing);
        if found.len() == FOUND_MAX || bytes > BYTES_MAX {
            reporter.say(&Report::Found(std::mem::take(&mut found)));
            bytes = 0;
        }
    }
    reporter.say(&Report::Found(found));
    Ok(all)
}

/// Returns the bytes of all fields of variable length.
fn len(thing: &Found) -> usize {
    let pointed_to = match &thing.kind {
        Kind::Symlink { target } => target.len(),
        Kind::HardLink { to } => to.as_bytes().len(),
        _ => 0,
    };
    let held = thing.held.as_ref().map_or(0, Vec::len);
    thing.path.as_bytes().len() + pointed_to + RANGE * held
}

/// Returns the report of an item. Unreadable items are reported by the session that copies the rest.
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
        kind: entry.kind.into(),
        held,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_store::path::RelPath;

    /// Further fields are numbers.
    #[test]
    fn what_may_be_long_is_counted() {
        let long = RelPath::parse(&[b'a'; 200]).unwrap();
        let kinds = [
            Kind::Symlink {
                target: [b'b'; 4095].into(),
            },
            Kind::HardLink { to: long.clone() },
            Kind::Directory,
        ];
        for kind in kinds {
            let thing = Found {
                source: u32::MAX,
                path: long.clone(),
                kind,
                held: Some(vec![u64::MAX - 1..u64::MAX; 100]),
            };
            let written = postcard::to_stdvec(&thing).unwrap().len();
            assert!(written <= len(&thing) + 100, "{thing:?}");
        }
    }
}
