// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source that only lists its entries, for a coordinator that divides them among workers or compares several
//! hosts.

use super::{
    access_scope::AccessScope,
    reports::{Reporter, exit_at_stdin_eof},
    source::{portion::recorded_shares, scan},
};
use crate::protocol::{
    control::Begin,
    report::{FoundEntry, Progress, Report},
};
use anyhow::Result;
use longhaul_command::threads;
use longhaul_store::{entry::Kind, tree::scan::ScanItem};

/// Maximum entries in one report; and bytes of their names and ranges, exceeded by one entry at most. Both
/// are far below the limit of a message.
const REPORT_ENTRIES_MAX: usize = 4096;
const REPORT_BYTES_MAX: usize = 1 << 20;

/// Maximum bytes of a range of blocks.
const RANGE_BYTES_MAX: usize = 20;

pub(super) fn run(begin: &Begin, scope: &AccessScope, reporter: &Reporter) -> Result<Progress> {
    // The session that copies the rest reports the missing ones.
    let (scan, _missing) = scan::open(begin, scope)?;
    threads::spawn(exit_at_stdin_eof)?;
    reporter.send(&Report::Shares(recorded_shares(begin, scope)?));
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut progress = Progress::default();
    for entry in scan.filter_map(found_entry) {
        progress.entries += 1;
        bytes += variable_bytes(&entry);
        found.push(entry);
        if found.len() == REPORT_ENTRIES_MAX || bytes > REPORT_BYTES_MAX {
            reporter.send(&Report::Found(std::mem::take(&mut found)));
            bytes = 0;
        }
    }
    reporter.send(&Report::Found(found));
    Ok(progress)
}

/// Returns the bytes of all fields of variable length.
fn variable_bytes(entry: &FoundEntry) -> usize {
    let link_target_len = match &entry.kind {
        Kind::Symlink { target } => target.len(),
        Kind::HardLink { to } => to.as_bytes().len(),
        _ => 0,
    };
    let piece_blocks = entry.piece_blocks.as_ref().map_or(0, Vec::len);
    entry.path.as_bytes().len() + link_target_len + RANGE_BYTES_MAX * piece_blocks
}

/// Returns the report of an item. Unreadable items are reported by the session that copies the rest.
fn found_entry(item: ScanItem) -> Option<FoundEntry> {
    let (source, entry, piece_blocks) = match item {
        ScanItem::Entry { source, entry, .. } => (source, entry, None),
        ScanItem::Piece {
            source,
            entry,
            piece_blocks: held,
        } => (source, entry, Some(held)),
        _ => return None,
    };
    Some(FoundEntry {
        source: source as u32,
        path: entry.path,
        kind: entry.kind,
        piece_blocks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_store::path::RelPath;

    /// Further fields are numbers.
    #[test]
    fn counts_all_fields_of_variable_length() {
        let long_path = RelPath::parse(&[b'a'; 200]).unwrap();
        let kinds = [
            Kind::Symlink {
                target: [b'b'; 4095].into(),
            },
            Kind::HardLink {
                to: long_path.clone(),
            },
            Kind::Directory,
        ];
        for kind in kinds {
            let entry = FoundEntry {
                source: u32::MAX,
                path: long_path.clone(),
                kind,
                piece_blocks: Some(vec![u64::MAX - 1..u64::MAX; 100]),
            };
            let written = postcard::to_stdvec(&entry).unwrap().len();
            assert!(written <= variable_bytes(&entry) + 100, "{entry:?}");
        }
    }
}
