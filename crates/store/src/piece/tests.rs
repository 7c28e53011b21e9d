// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::single_range_in_vec_init)] // a run of blocks is what is meant

use super::*;
use crate::{
    blocks::BlockHash,
    part::{OpenOutcome, Part, remove_leftovers},
    path::RelPath,
    tests::{dir_of, file_in_pieces, keep_piece, part_of, source_info_of, write_block},
    vfs::UntrustedFile,
};
use std::{
    fs,
    os::{
        fd::AsFd,
        unix::{
            ffi::OsStrExt,
            fs::{FileExt, symlink},
        },
    },
    path::PathBuf,
};

const ALL: Range<u64> = 0..3;

struct TestDir {
    temp: tempfile::TempDir,
    entry: Entry,
}

impl TestDir {
    fn new() -> Self {
        Self {
            temp: tempfile::tempdir().unwrap(),
            entry: file_in_pieces("file", 1),
        }
    }

    fn keep(&self, indexes: Range<u64>) {
        keep_piece(self.temp.path(), &self.entry, indexes);
    }

    fn part(&self) -> Part {
        part_of(self.temp.path(), &self.entry)
    }

    fn slice(&self) -> Part {
        let dir = dir_of(self.temp.path(), &self.entry);
        match Part::open_slice(&dir, b"file", &source_info_of(&self.entry), &[ALL]) {
            Ok(OpenOutcome::Resumed(slice)) => slice,
            _ => panic!("no slice"),
        }
    }

    fn held(&self) -> Option<Vec<Range<u64>>> {
        self.held_of(&self.entry)
    }

    fn held_of(&self, entry: &Entry) -> Option<Vec<Range<u64>>> {
        held_blocks(&dir_of(self.temp.path(), entry), entry).unwrap()
    }

    fn internal(&self, kind: &str) -> PathBuf {
        let internal = internal_name(self.entry.path.name(), kind);
        self.temp
            .path()
            .join(std::ffi::OsStr::from_bytes(&internal))
    }

    fn names(&self) -> usize {
        fs::read_dir(self.temp.path()).unwrap().count()
    }

    fn open(&self) -> Result<OpenPiece, String> {
        let dir = fs::File::open(self.temp.path()).unwrap();
        let opened = OpenPiece::open(dir.as_fd(), self.entry.path.name());
        opened.map_err(|error| error.into_failure(None).to_string())
    }
}

#[test]
fn resumes_a_kept_piece() {
    let test_dir = TestDir::new();
    let part = test_dir.part();
    write_block(&part, 1);
    part.commit().unwrap();
    assert_eq!(test_dir.held(), None, "not kept yet");
    part.keep_as_piece(&test_dir.entry).unwrap();
    assert_eq!(test_dir.names(), 3, "part, journal, piece header");
    assert_eq!(test_dir.held(), Some(vec![1..2]));
    let mut elsewhere = test_dir.entry.clone();
    elsewhere.metadata.mode = 0;
    assert_eq!(test_dir.held_of(&elsewhere), Some(vec![1..2]));

    let part = test_dir.part();
    assert_eq!(part.missing(), [0..1, 2..3]);
    write_block(&part, 2);
    part.keep_as_piece(&test_dir.entry).unwrap();
    assert_eq!(test_dir.held(), Some(vec![1..3]));
    assert_eq!(test_dir.names(), 3);
}

#[test]
fn keeps_a_piece_without_blocks() {
    let test_dir = TestDir::new();
    test_dir.keep(0..0);
    assert_eq!(test_dir.held(), Some(vec![]));
}

#[test]
fn new_version_removes_the_piece_header() {
    let mut test_dir = TestDir::new();
    test_dir.keep(ALL);
    test_dir.entry = file_in_pieces("file", 2);
    assert_eq!(test_dir.held(), None);
    drop(test_dir.part());
    assert!(!test_dir.internal("piece").exists());
    assert_eq!(test_dir.held_of(&file_in_pieces("file", 1)), None);
    test_dir.keep(0..1);
    assert_eq!(test_dir.held(), Some(vec![0..1]));
}

#[test]
fn reports_no_blocks_without_piece_header_part_or_journal() {
    for kind in ["piece", PIECE_DATA, "journal"] {
        let test_dir = TestDir::new();
        test_dir.keep(ALL);
        fs::remove_file(test_dir.internal(kind)).unwrap();
        assert_eq!(test_dir.held(), None, "{kind}");
    }
    let test_dir = TestDir::new();
    test_dir.keep(ALL);
    let part = fs::File::options()
        .write(true)
        .open(test_dir.internal(PIECE_DATA));
    part.unwrap().set_len(5).unwrap();
    assert_eq!(test_dir.held(), None);
}

#[test]
fn replaces_an_invalid_piece_header() {
    let test_dir = TestDir::new();
    test_dir.keep(ALL);
    for nonsense in [&b""[..], b"nonsense", &vec![0; PIECE_HEADER_LEN_MAX + 1]] {
        fs::write(test_dir.internal("piece"), nonsense).unwrap();
        assert_eq!(test_dir.held(), None);
    }
    test_dir.keep(0..0);
    assert_eq!(test_dir.held(), Some(vec![ALL]));
}

#[test]
fn finishing_a_file_removes_its_piece_header() {
    let test_dir = TestDir::new();
    test_dir.keep(0..2);
    let part = test_dir.part();
    write_block(&part, 2);
    part.commit().unwrap();
    let finished = part.finish(None, |_| Ok(())).unwrap();
    assert_eq!(test_dir.held(), None);
    finished.remove_journal().unwrap();
    assert_eq!(test_dir.names(), 1);
}

#[test]
fn discarding_a_piece_removes_its_piece_header() {
    let test_dir = TestDir::new();
    test_dir.keep(ALL);
    test_dir.part().discard().unwrap();
    assert_eq!(test_dir.names(), 0);
    test_dir.keep(ALL);
    remove_leftovers(&dir_of(test_dir.temp.path(), &test_dir.entry), b"file").unwrap();
    assert_eq!(test_dir.names(), 0);
    // Left by a process that was killed.
    fs::write(test_dir.internal("whole"), "half a piece header").unwrap();
    test_dir.keep(0..1);
    assert_eq!(test_dir.names(), 3);
    let dir = dir_of(test_dir.temp.path(), &test_dir.entry);
    drop(crate::small::SmallFile::write(&dir, b"file", b"", None, false, |_| Ok(())).unwrap());
    assert_eq!(
        test_dir.names(),
        0,
        "nor does an unfinished small file stay"
    );
}

#[test]
fn refuses_to_keep_slices_and_other_entries() {
    let test_dir = TestDir::new();
    let refused = |part: Part, entry: &Entry| {
        let error = part.keep_as_piece(entry).unwrap_err().to_string();
        assert!(error.starts_with("file: cannot be kept"), "{error}");
        assert!(!test_dir.internal("piece").exists());
    };
    refused(test_dir.part(), &file_in_pieces("other", 1));
    refused(test_dir.part(), &file_in_pieces("file", 2));
    let slice = test_dir.slice();
    refused(slice, &test_dir.entry);
    test_dir
        .part()
        .keep_as_piece(&file_in_pieces("d/file", 1))
        .unwrap();
}

#[test]
fn counts_slice_records_after_merging() {
    let test_dir = TestDir::new();
    test_dir.keep(0..1);
    let slice = test_dir.slice();
    write_block(&slice, 2);
    slice.commit().unwrap();
    drop(slice);
    assert_eq!(test_dir.held(), Some(vec![0..1]));
    drop(test_dir.part());
    assert_eq!(test_dir.held(), Some(vec![0..1, 2..3]));
}

#[test]
fn reads_blocks_and_hashes_of_a_piece() {
    let test_dir = TestDir::new();
    test_dir.keep(1..2);
    let part = test_dir.part();
    let bytes = vec![3; 1000];
    assert!(part.write(2, &bytes, None).unwrap());
    part.keep_as_piece(&test_dir.entry).unwrap();
    let piece = test_dir.open().unwrap();
    let blocks = Blocks::new(2 * BLOCK_LEN + 1000);
    let hash = blocks.hash(1, &vec![2; BLOCK_LEN as usize]).ok();
    assert_eq!(piece.hash_of(0), None);
    assert_eq!(piece.hash_of(1), hash);
    assert_eq!(piece.hash_of(2), Some(BlockHash::UNKNOWN));
    assert_eq!(piece.hash_of(3), None);
    let other = BlockHash([9; 32]);
    assert!(piece.may_match(1, hash.unwrap()) && !piece.may_match(1, other));
    assert!(piece.may_match(1, BlockHash::UNKNOWN) && piece.may_match(2, other));
    assert!(!piece.may_match(0, other) && !piece.may_match(0, BlockHash::UNKNOWN));
    assert_eq!(
        Some(&*piece_data_name(b"file")),
        test_dir.internal(PIECE_DATA).file_name().unwrap().to_str()
    );
    assert_eq!(
        Some(&piece.version),
        piece_header::file_version(&test_dir.entry).ok()
    );
    let mut last = [0; 1000];
    piece.file.read_exact_at(&mut last, 2 * BLOCK_LEN).unwrap();
    assert_eq!(last, [3; 1000]);
}

#[test]
fn refuses_planted_internal_files() {
    let precious = |test_dir: &TestDir| test_dir.temp.path().join("precious");
    for kind in ["piece", PIECE_DATA, "journal"] {
        let test_dir = TestDir::new();
        test_dir.keep(ALL);
        let internal = test_dir.internal(kind);
        fs::rename(&internal, precious(&test_dir)).unwrap();
        let shown = internal.file_name().unwrap().to_str().unwrap();
        fs::hard_link(precious(&test_dir), &internal).unwrap();
        let refused = format!("{shown}: {}", UntrustedFile::HardLinks);
        assert_eq!(test_dir.open().unwrap_err(), refused);
        fs::remove_file(&internal).unwrap();
        fs::create_dir(&internal).unwrap();
        let refused = format!("{shown}: {}", UntrustedFile::NotRegular);
        assert_eq!(test_dir.open().unwrap_err(), refused);
        fs::remove_dir(&internal).unwrap();
        symlink(precious(&test_dir), &internal).unwrap();
        assert_eq!(test_dir.open().unwrap_err(), refused);
        let dir = dir_of(test_dir.temp.path(), &test_dir.entry);
        assert!(held_blocks(&dir, &test_dir.entry).is_err());
    }
}

#[test]
fn uses_the_last_record_of_a_block() {
    let (first, second) = (BlockHash([1; 32]), BlockHash([2; 32]));
    let records = vec![(7, first), (3, first), (7, second)];
    assert_eq!(last_records(records), [(3, first), (7, second)]);
}

#[test]
fn recognises_internal_names_of_a_piece() {
    let names = PieceFileNames::of(&[(*b"file").into()]);
    let internal = |kind: &str| internal_name(b"file", kind);
    for kind in [
        "piece",
        PIECE_DATA,
        "part",
        "journal",
        "journal-12",
        "whole",
    ] {
        assert!(names.contains(&internal(kind)), "{kind}");
    }
    for other in [internal("new"), internal_name(b"x", "part")] {
        assert!(!names.contains(&other));
    }
    assert!(!names.contains(b"file") && !names.contains(b"file.part"));
}

#[test]
fn error_names_the_path_of_the_piece_header() {
    let test_dir = TestDir::new();
    let dir = fs::File::open(test_dir.temp.path()).unwrap();
    let error = read_piece(dir.as_fd(), b"file").unwrap_err();
    let shown = error
        .into_failure(Some(&RelPath::parse(b"d/e").unwrap()))
        .to_string();
    assert!(shown.starts_with("d/e/.longhaul-"), "{shown}");
    assert!(
        shown.contains(".piece: cannot read it: No such file"),
        "{shown}"
    );
}
