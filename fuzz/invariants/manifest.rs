// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks a damaged manifest: it loads with the lines that are intact, and no others. Lines that are appended later
//! are found too.
//!
//! The input is the number of lines, the set of paths, then a script for [`super::damage`], two NUL bytes, and a
//! path.

use super::{
    damage::befall,
    memory::{Folder, Memory},
};
use longhaul_store::{
    blocks::FileHash,
    manifest::{FileRecord, MANIFEST, Manifest, parse},
    path::PATH_LEN_MAX,
    vfs::{Directory as _, OpenMode},
};
use std::collections::{BTreeMap, HashMap};

type Known = BTreeMap<Vec<u8>, FileRecord>;

pub(crate) fn check(input: &[u8]) {
    assert_eq!(parse(input), None, "nobody has checked it");
    loads_anything(input);
    let Some(([count, paths], rest)) = input.split_first_chunk() else {
        return;
    };
    let end = rest.windows(2).position(|pair| pair == [0, 0]);
    let (script, path) = rest.split_at(end.unwrap_or(rest.len()));
    let path = &path[..path.len().min(PATH_LEN_MAX)];
    let folder = Folder::default();
    let mut manifest = Manifest::load(&folder).unwrap();
    let written: Vec<_> = (0..*count & 31).map(|n| record(n, *paths, path)).collect();
    for (path, record) in &written {
        manifest.append(&[(path, *record)]).unwrap();
    }
    let file = folder
        .open(MANIFEST.as_bytes(), OpenMode::CreateExclusive)
        .unwrap()
        .unwrap();
    let whole = file.bytes().clone();
    befall(&mut file.bytes(), script);
    let left = unharmed(&written, &whole, &file);
    let mut manifest = Manifest::load(&folder).unwrap();
    assert_eq!(known(&manifest), left);
    goes_on(&folder, &mut manifest, left, path);
}

/// Loads a file with exactly these bytes.
fn loads_anything(input: &[u8]) {
    let folder = Folder::default();
    let file = folder
        .open(MANIFEST.as_bytes(), OpenMode::CreateExclusive)
        .unwrap()
        .unwrap();
    *file.bytes() = input.to_vec();
    let mut manifest = Manifest::load(&folder).unwrap();
    assert!(known(&manifest).is_empty());
    goes_on(&folder, &mut manifest, Known::new(), input);
}

/// Returns the path and record of a line: few paths, some repeated, some removed.
fn record(number: u8, paths: u8, path: &[u8]) -> (Vec<u8>, FileRecord) {
    let name = number & (paths | 1);
    let path = [path, b"/", &[name]].concat();
    let record = FileRecord {
        hash: FileHash([number; 32]),
        size: u64::MAX >> (number & 63),
        mtime: (i64::from(number.cast_signed()) << 40, u32::from(number)),
    };
    match number % 5 {
        3 => (path, FileRecord::REMOVED),
        _ => (path, record),
    }
}

/// Returns the records of the lines that are intact.
fn unharmed(written: &[(Vec<u8>, FileRecord)], whole: &[u8], damaged: &Memory) -> Known {
    let lines = whole.split(|byte| *byte == b'\n');
    let lines: HashMap<&[u8], &(Vec<u8>, FileRecord)> = lines.zip(written).collect();
    let mut known = Known::new();
    for line in damaged.bytes().split(|byte| *byte == b'\n') {
        if let Some((path, record)) = lines.get(line) {
            take(&mut known, path, *record);
        }
    }
    known
}

fn take(known: &mut Known, path: &[u8], record: FileRecord) {
    match record.hash == FileRecord::REMOVED.hash {
        true => known.remove(path),
        false => known.insert(path.to_vec(), record),
    };
}

fn known(manifest: &Manifest<Folder>) -> Known {
    let all = manifest.iter();
    all.map(|(path, record)| (path.to_vec(), *record)).collect()
}

/// Appends, reloads and compacts as the next run does.
fn goes_on(folder: &Folder, manifest: &mut Manifest<Folder>, mut wanted: Known, path: &[u8]) {
    let path = &path[..path.len().min(PATH_LEN_MAX)];
    let (path, new) = (path.to_vec(), record(1, 1, b"").1);
    manifest.append(&[(&path, new)]).unwrap();
    take(&mut wanted, &path, new);
    assert_eq!(known(manifest), wanted);
    let mut again = Manifest::load(folder).unwrap();
    assert_eq!(known(&again), wanted, "loaded again");
    again.compact().unwrap();
    assert_eq!(known(&again), wanted, "replaced");
    assert_eq!(known(&Manifest::load(folder).unwrap()), wanted, "replaced");
}
