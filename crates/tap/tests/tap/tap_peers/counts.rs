// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets of each direction, in captures of all kinds, beside tshark's.

use super::{Direction, STORED_CAPTURES, has_programs, ours, tshark};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Packets of each direction, copies included.
pub(crate) type Counts = BTreeMap<Direction, u64>;

/// Returns the files below a directory.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let (directories, files): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| path.is_dir());
    let below = directories.iter().flat_map(|path| files_below(path));
    files.into_iter().chain(below).collect()
}

/// Compares the stored captures, which must agree, and all files in the directory `TAP_PEERS_DIRECTORY`. Prints the
/// directions that differ: docs/tap-peers.md says why some do.
#[test]
#[ignore = "needs tshark: make test-peers"]
fn counts_are_those_of_tshark() {
    if !has_programs(&["tshark"]) {
        return;
    }
    let captures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures"));
    let additional = std::env::var_os("TAP_PEERS_DIRECTORY");
    let additional = additional.map(|directory| files_below(directory.as_ref()));
    let stored = STORED_CAPTURES.map(|name| captures.join(name));
    let files: Vec<_> = stored
        .into_iter()
        .chain(additional.into_iter().flatten())
        .collect();
    let (mut equal, mut all, mut refused) = (0, 0, 0);
    for file in &files {
        let Some((ours, is_complete)) = ours::counts(file) else {
            refused += 1;
            println!("{}: no capture", file.display());
            continue;
        };
        let tshark = tshark::counts(file);
        // The largest 1,000 flows are listed.
        let unlisted = tshark
            .keys()
            .filter(|key| is_complete && !ours.contains_key(key));
        let directions = ours.keys().chain(unlisted);
        for direction in directions {
            let counts =
                [&ours, &tshark].map(|counts| counts.get(direction).copied().unwrap_or_default());
            all += 1;
            equal += usize::from(counts[0] == counts[1]);
            if counts[0] != counts[1] {
                println!("{}: {direction:?}: {counts:?}", file.display());
                assert!(!file.starts_with(captures));
            }
        }
    }
    println!(
        "{equal} of {all} directions in {} files are equal; {refused} files are no captures",
        files.len()
    );
}
