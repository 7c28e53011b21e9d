// SPDX-License-Identifier: MIT OR Apache-2.0
//! Durable data of a copy at its target, as found in the files there.

use super::{BLOCK, tree::walk};
use longhaul_store::{
    blocks::Blocks,
    entry::Version,
    part::journal::{self, HEADER_LEN, Header, RECORD_LEN},
};
use rustix::fs::{SeekFrom, seek};
use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, File, Metadata},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

/// Returns the bytes that a copy still has to send: those of unfinished files, without the blocks in their journals and
/// without holes.
pub(crate) fn missing_bytes(from: &Path, to: &Path) -> u64 {
    let mut files = BTreeMap::new();
    for path in walk(from) {
        let meta = fs::symlink_metadata(from.join(&path)).unwrap();
        if meta.is_file() {
            // A file with several names is complete under one of them. The other links are created at the end.
            files
                .entry(meta.ino())
                .or_insert((meta, Vec::new()))
                .1
                .push(path);
        }
    }
    let missing = |(meta, names): &(Metadata, Vec<_>)| {
        let there = |name| fs::symlink_metadata(to.join(name));
        let named = |name| there(name).is_ok_and(|there| same_file(meta, &there));
        if names.iter().any(named) {
            0
        } else {
            missing_bytes_of(&from.join(&names[0]), &to.join(&names[0]))
        }
    };
    files.values().map(missing).sum()
}

fn same_file(one: &Metadata, other: &Metadata) -> bool {
    let of = |meta: &Metadata| (meta.len(), meta.mtime(), meta.mtime_nsec());
    of(one) == of(other)
}

fn missing_bytes_of(from: &Path, to: &Path) -> u64 {
    let file = File::open(from).unwrap();
    let version = Version::of_file(&file).unwrap();
    let blocks = Blocks::new(version.size);
    let durable = if version.size > BLOCK {
        blocks_in_journal(to, &version)
    } else {
        HashSet::new()
    };
    let missing = (0..blocks.count()).filter(|index| !durable.contains(index));
    let ranges = missing.map(|index| blocks.range(index).unwrap());
    let data = |start| seek(&file, SeekFrom::Data(start)).unwrap_or(u64::MAX);
    ranges
        .filter(|range| data(range.start) < range.end)
        .map(|range| range.end - range.start)
        .sum()
}

/// Returns the blocks in the journal of a file.
fn blocks_in_journal(to: &Path, version: &Version) -> HashSet<u64> {
    let internal_file = |kind| to.with_file_name(internal_name(to, kind));
    let header = Header {
        version: version.into(),
        blocks: Blocks::new(version.size),
    };
    let part = fs::metadata(internal_file("part"));
    if !part.is_ok_and(|part| part.len() == version.size) {
        return HashSet::new();
    }
    let journal = fs::read(internal_file("journal")).unwrap_or_default();
    let records = journal::records(&journal, &header);
    records.into_iter().map(|(index, _)| index).collect()
}

/// Returns the name of an internal file beside a file: see `longhaul_store::part`.
pub(crate) fn internal_name(path: &Path, kind: &str) -> String {
    let name = path.file_name().unwrap().as_bytes();
    let hash = Blocks::new(name.len() as u64)
        .hash(0, name)
        .unwrap()
        .to_string();
    format!(
        "{}{}.{kind}",
        longhaul_store::part::INTERNAL_PREFIX,
        &hash[..32]
    )
}

/// Returns the number of blocks in journals and the number of finished files.
pub(crate) fn progress(to: &Path) -> (u64, u64) {
    let (mut blocks, mut named) = (0, 0);
    for path in walk(to) {
        let Ok(meta) = fs::symlink_metadata(to.join(&path)) else {
            continue;
        };
        let name = path.file_name().unwrap().to_string_lossy();
        if name.ends_with(".journal") {
            blocks += meta.len().saturating_sub(HEADER_LEN as u64) / RECORD_LEN as u64;
        } else if meta.is_file() && !name.starts_with(longhaul_store::part::INTERNAL_PREFIX) {
            named += 1;
        }
    }
    (blocks, named)
}
