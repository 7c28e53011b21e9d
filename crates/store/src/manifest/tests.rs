// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use proptest::prelude::*;
use std::{
    fs::{self, File},
    os::{fd::AsFd, unix::fs::symlink},
};

fn test_dir() -> (tempfile::TempDir, Dir) {
    let temp = tempfile::tempdir().unwrap();
    let dir = Dir::new(File::open(temp.path()).unwrap().as_fd()).unwrap();
    (temp, dir)
}

fn record(size: u64) -> FileRecord {
    FileRecord {
        hash: FileHash(*blake3::hash(&size.to_be_bytes()).as_bytes()),
        size,
        mtime: (-7, 5),
    }
}

#[test]
fn writes_the_documented_line_format() {
    let hash = FileHash([0xab; 32]);
    let record = FileRecord {
        hash,
        size: 12,
        mtime: (-1, 5),
    };
    let line = line(b"a b/\n\\", &record);
    let (checked, check) = line.trim_end().rsplit_once(' ').unwrap();
    assert_eq!(checked, format!("{hash} 12 -1.000000005 a b/\\x0a\\\\"));
    assert_eq!(check.len(), 16);
}

#[test]
fn last_line_of_a_path_wins_and_damaged_lines_are_ignored() {
    let (temp, dir) = test_dir();
    let mut manifest = Manifest::load(&dir).unwrap();
    manifest
        .append(&[(b"a", record(1)), (b"b/c", record(2))])
        .unwrap();
    manifest.append(&[(b"a", record(3))]).unwrap();
    assert_eq!(manifest.lookup(b"a"), Some(&record(3)));
    let path = temp.path().join(MANIFEST);
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend(b"a line of another program\n\n\xff\n");
    bytes.extend(line(b"a", &record(4)).replace(" 4 ", " 5 ").as_bytes());
    let torn = line(b"b/c", &record(6));
    bytes.extend(&torn.as_bytes()[..torn.len() - 5]);
    fs::write(&path, bytes).unwrap();
    let mut manifest = Manifest::load(&dir).unwrap();
    assert_eq!(manifest.ignored(), 5);
    manifest.append(&[(b"d", record(7))]).unwrap();
    let manifest = Manifest::load(&dir).unwrap();
    assert_eq!(manifest.ignored(), 5, "the torn line was ended");
    let want = [
        (&b"a"[..], record(3)),
        (b"b/c", record(2)),
        (b"d", record(7)),
    ];
    let all: Vec<_> = manifest
        .iter()
        .map(|(path, record)| (path, *record))
        .collect();
    assert_eq!(all, want);
}

#[test]
fn compacts_when_most_lines_are_outdated() {
    let (temp, dir) = test_dir();
    let mut manifest = Manifest::load(&dir).unwrap();
    let paths: Vec<Vec<u8>> = (0..5000)
        .map(|n| format!("path {n}").into_bytes())
        .collect();
    let batch = |size| -> Vec<(&[u8], FileRecord)> {
        paths
            .iter()
            .map(|path| (path.as_slice(), record(size)))
            .collect()
    };
    manifest.append(&batch(1)).unwrap();
    manifest.append(&batch(2)).unwrap();
    assert!(!manifest.compact().unwrap(), "half of it counts");
    let mut other = Manifest::load(&dir).unwrap();
    other.append(&[(b"other", record(9))]).unwrap();
    manifest.append(&batch(3)).unwrap();
    let before = fs::metadata(temp.path().join(MANIFEST)).unwrap().len();
    assert!(manifest.compact().unwrap());
    let after = fs::metadata(temp.path().join(MANIFEST)).unwrap().len();
    assert!(after * 2 < before, "{after} of {before}");
    assert_eq!(manifest.lookup(b"other"), Some(&record(9)));
    other.append(&[(b"late", record(10))]).unwrap();
    let manifest = Manifest::load(&dir).unwrap();
    assert_eq!(manifest.iter().count(), 5002);
    assert_eq!(manifest.lookup(b"path 77"), Some(&record(3)));
    assert_eq!(manifest.lookup(b"late"), Some(&record(10)));
    assert_eq!(manifest.ignored(), 0);
}

#[test]
fn removed_path_is_unknown_until_added_again() {
    let (_temp, dir) = test_dir();
    let mut manifest = Manifest::load(&dir).unwrap();
    manifest
        .append(&[(b"a", record(1)), (b"b", record(2))])
        .unwrap();
    manifest.append(&[(b"a", FileRecord::REMOVED)]).unwrap();
    let known = |manifest: &Manifest| [&b"a"[..], b"b"].map(|path| manifest.lookup(path).copied());
    assert_eq!(known(&manifest), [None, Some(record(2))]);
    assert_eq!(
        known(&Manifest::load(&dir).unwrap()),
        [None, Some(record(2))]
    );
    manifest.append(&[(b"a", record(3))]).unwrap();
    assert_eq!(known(&Manifest::load(&dir).unwrap())[0], Some(record(3)));
}

#[test]
fn does_not_compact_a_short_manifest() {
    let (_temp, dir) = test_dir();
    let mut manifest = Manifest::load(&dir).unwrap();
    for size in 0..10 {
        manifest.append(&[(b"a", record(size))]).unwrap();
    }
    assert!(!manifest.compact().unwrap());
}

#[test]
fn concurrent_append_and_compact_lose_no_entry() {
    let (_temp, dir) = test_dir();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let dir = &dir;
            scope.spawn(move || {
                let mut manifest = Manifest::load(dir).unwrap();
                for n in 0..25 {
                    let own = format!("{thread} {n}");
                    let batch = [(own.as_bytes(), record(n)), (b"same", record(n))];
                    manifest.append(&batch).unwrap();
                    manifest.append(&[(b"same", record(n))]).unwrap();
                    manifest.compact_from(0).unwrap();
                }
            });
        }
    });
    let manifest = Manifest::load(&dir).unwrap();
    assert_eq!(manifest.iter().count(), 101);
    assert_eq!(manifest.ignored(), 0);
}

#[test]
fn parses_lines_split_across_chunks_and_skips_long_ones() {
    let lines = [
        line(b"a", &record(1)),
        "x".repeat(3 * LINE_LEN_MAX) + "\n",
        line(b"b", &record(2)),
    ];
    let text = lines.concat();
    for size in [1, 7, 100, 1 << 16] {
        let (mut contents, mut partial_line) = (Contents::default(), Vec::new());
        for chunk in text.as_bytes().chunks(size) {
            contents.parse(chunk, &mut partial_line);
            assert!(partial_line.len() <= LINE_LEN_MAX + 1);
        }
        assert_eq!((contents.records.len(), contents.ignored), (2, 1));
    }
}

#[test]
fn longest_path_fits_in_a_line() {
    let path = [b'\n'; 4096];
    let longest = line(&path, &record(u64::MAX));
    assert!(longest.len() <= LINE_LEN_MAX, "{}", longest.len());
}

/// As in a directory of several users: this user has a manifest beside it.
#[test]
fn does_not_follow_a_planted_symlink() {
    let (temp, dir) = test_dir();
    let own = own_name();
    let plant = |name: &str| symlink("elsewhere", temp.path().join(name)).unwrap();
    plant(MANIFEST);
    let mut manifest = Manifest::load(&dir).unwrap();
    manifest.append(&[(b"a", record(1))]).unwrap();
    assert!(Manifest::load(&dir).unwrap().lookup(b"a").is_some());
    assert!(temp.path().join(&own).is_file() && !temp.path().join("elsewhere").exists());

    fs::remove_file(temp.path().join(&own)).unwrap();
    plant(&own);
    let error = Manifest::load(&dir).err().unwrap().to_string();
    let expected = format!("cannot open {own}: a symbolic link");
    assert!(error.starts_with(&expected), "{error}");
}

proptest! {
    #[test]
    fn parse_reverses_line(path: Vec<u8>, hash: [u8; 32], size: u64, seconds: i64, nanoseconds in 0u32..1_000_000_000) {
        let record = FileRecord { hash: FileHash(hash), size, mtime: (seconds, nanoseconds) };
        let line = line(&path, &record);
        prop_assert_eq!(line.matches('\n').count(), 1);
        prop_assert_eq!(parse(line.trim_end_matches('\n').as_bytes()), Some((path, record)));
    }

    #[test]
    fn rejects_damaged_lines(at in 0usize..100, flip in 1u8..) {
        let mut line = line(b"some/path", &record(3)).into_bytes();
        line.pop();
        let at = at % line.len();
        line[at] ^= flip;
        prop_assert_eq!(parse(&line), None);
    }

    #[test]
    fn rejects_arbitrary_bytes(bytes: Vec<u8>) {
        prop_assert_eq!(parse(&bytes), None);
    }
}
