// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks a damaged manifest: it loads with the lines that are intact, and no others. Lines that are appended later
//! are found too.
//!
//! The input is the number of lines, the set of paths, then a script for [`super::damage`], two NUL bytes, and a
//! path.

use super::{
    damage::apply_damage,
    memory::{MemoryDirectory, MemoryFile},
};
use longhaul_store::{
    blocks::FileHash,
    manifest::{FileRecord, MANIFEST, Manifest, parse},
    path::PATH_LEN_MAX,
    vfs::{Directory as _, OpenMode},
};
use std::collections::{BTreeMap, HashMap};

type Records = BTreeMap<Vec<u8>, FileRecord>;

pub(crate) fn check(input: &[u8]) {
    assert_eq!(parse(input), None, "no line is intact");
    check_arbitrary_file(input);
    let Some(([count, paths], rest)) = input.split_first_chunk() else {
        return;
    };
    let end = rest.windows(2).position(|pair| pair == [0, 0]);
    let (script, path) = rest.split_at(end.unwrap_or(rest.len()));
    let path = &path[..path.len().min(PATH_LEN_MAX)];
    let folder = MemoryDirectory::default();
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
    apply_damage(&mut file.bytes(), script);
    let expected = intact_records(&written, &whole, &file);
    let mut manifest = Manifest::load(&folder).unwrap();
    assert_eq!(records(&manifest), expected);
    check_next_run(&folder, &mut manifest, expected, path);
}

/// Loads a file with exactly these bytes.
fn check_arbitrary_file(input: &[u8]) {
    let folder = MemoryDirectory::default();
    let file = folder
        .open(MANIFEST.as_bytes(), OpenMode::CreateExclusive)
        .unwrap()
        .unwrap();
    *file.bytes() = input.to_vec();
    let mut manifest = Manifest::load(&folder).unwrap();
    assert!(records(&manifest).is_empty());
    check_next_run(&folder, &mut manifest, Records::new(), input);
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
fn intact_records(
    written: &[(Vec<u8>, FileRecord)],
    whole: &[u8],
    damaged: &MemoryFile,
) -> Records {
    let lines = whole.split(|byte| *byte == b'\n');
    let lines: HashMap<&[u8], &(Vec<u8>, FileRecord)> = lines.zip(written).collect();
    let mut records = Records::new();
    for line in damaged.bytes().split(|byte| *byte == b'\n') {
        if let Some((path, record)) = lines.get(line) {
            apply_record(&mut records, path, *record);
        }
    }
    records
}

fn apply_record(records: &mut Records, path: &[u8], record: FileRecord) {
    if record.hash == FileRecord::REMOVED.hash {
        records.remove(path)
    } else {
        records.insert(path.to_vec(), record)
    };
}

fn records(manifest: &Manifest<MemoryDirectory>) -> Records {
    let all = manifest.iter();
    all.map(|(path, record)| (path.to_vec(), *record)).collect()
}

/// Appends, reloads and compacts as the next run does.
fn check_next_run(
    folder: &MemoryDirectory,
    manifest: &mut Manifest<MemoryDirectory>,
    mut expected: Records,
    path: &[u8],
) {
    let path = &path[..path.len().min(PATH_LEN_MAX)];
    let (path, new) = (path.to_vec(), record(1, 1, b"").1);
    manifest.append(&[(&path, new)]).unwrap();
    apply_record(&mut expected, &path, new);
    assert_eq!(records(manifest), expected);
    let mut reloaded = Manifest::load(folder).unwrap();
    assert_eq!(records(&reloaded), expected, "loaded again");
    reloaded.compact().unwrap();
    assert_eq!(records(&reloaded), expected, "replaced");
    assert_eq!(
        records(&Manifest::load(folder).unwrap()),
        expected,
        "replaced"
    );
}
