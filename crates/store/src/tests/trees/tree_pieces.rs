// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pieces in a tree: a scan reports them, and a deletion removes those that the source does not
//! have.

use super::*;
use crate::{
    blocks::{BLOCK_LEN, Blocks},
    path::PIECE_DATA,
    tests::{file_in_pieces, keep_piece, part_of},
    tree::delete::{TreeDifference, list_removable},
};
use std::ops::Range;

fn keep(top: &Path, path: &str, indexes: Range<u64>) {
    keep_piece(top, &file_in_pieces(path, 1), indexes);
}

/// Path of the internal file of this `kind` that belongs to the file at `path`.
pub(super) fn own(top: &Path, path: &str, kind: &str) -> PathBuf {
    let name = crate::path::internal_name(rel(path).name(), kind);
    let dir = top.join(path);
    let name = std::ffi::OsStr::from_bytes(&name);
    dir.parent().unwrap().join(name)
}

#[test]
fn pieces_come_first_in_their_directory_sorted_by_name() {
    let temp = dirs();
    let src = temp.path().join("src");
    fs::create_dir(src.join("a")).unwrap();
    fs::write(src.join("a/b"), "").unwrap();
    fs::write(src.join("0"), "").unwrap();
    // The hashes of these names sort differently.
    for (path, held) in [("z", 0..1), ("y", 1..3), ("x", 0..0), ("a/c", 2..3)] {
        keep(&src, path, held);
    }
    let lines_of = |argument: &Path| {
        let mut scan = scan(argument, Filter::default());
        let lines = describe_items(&mut scan);
        assert_eq!(scan.ended(), ScanEnd::Complete);
        lines
    };
    let wanted = [
        ".",
        "x: piece []",
        "y: piece [1..3]",
        "z: piece [0..1]",
        "0",
        "a",
        "a/c: piece [2..3]",
        "a/b",
    ];
    assert_eq!(lines_of(&contents(&src)), wanted);
    assert_eq!(lines_of(&src)[1], "src/x: piece []");
}

#[test]
fn piece_has_the_entry_in_its_piece_header() {
    let temp = dirs();
    let src = temp.path().join("src");
    fs::create_dir(src.join("d")).unwrap();
    keep(&src, "d/x", 0..1);
    let pieces = scan(&src, Filter::default()).filter_map(|item| match item {
        ScanItem::Piece { entry, source, .. } => Some((source, entry)),
        _ => None,
    });
    let wanted = file_in_pieces("src/d/x", 1);
    assert_eq!(pieces.collect::<Vec<_>>(), [(0, wanted)]);
}

#[test]
fn patterns_match_the_file_and_whole_files_win_over_pieces() {
    let temp = dirs();
    let src = temp.path().join("src");
    for path in ["keep.dat", "leave.tmp", "whole"] {
        keep(&src, path, 0..1);
    }
    fs::write(src.join("whole"), "").unwrap();
    let mut scan = scan(&contents(&src), exclude("*.tmp"));
    assert_eq!(
        describe_items(&mut scan),
        [".", "keep.dat: piece [0..1]", "whole"]
    );
}

#[test]
fn reports_invalid_piece_headers_and_continues() {
    let temp = dirs();
    let src = temp.path().join("src");
    for path in ["a", "b", "c", "d"] {
        keep(&src, path, 0..1);
    }
    fs::write(own(&src, "a", "piece"), "nonsense").unwrap();
    fs::rename(own(&src, "b", "piece"), own(&src, "elsewhere", "piece")).unwrap();
    fs::remove_file(own(&src, "c", PIECE_DATA)).unwrap();
    let mut scan = scan(&contents(&src), Filter::default());
    let mut lines = describe_items(&mut scan);
    let failed: Vec<_> = lines.drain(1..3).collect();
    for (path, why) in [
        ("a", "not a piece header"),
        ("elsewhere", "a piece header with the name"),
    ] {
        let piece_header = own(&src, path, "piece");
        let piece_header = piece_header.file_name().unwrap().to_str().unwrap();
        let begin = format!("{piece_header}: {why}");
        assert!(
            failed.iter().any(|line| line.starts_with(&begin)),
            "{failed:?}"
        );
    }
    assert_eq!(lines, [".", "c: piece []", "d: piece [0..1]"]);
    assert_eq!(scan.ended(), ScanEnd::Failures(2));
}

/// A copied file gets the owner and mode in the piece header. So a piece header of another user
/// must not be trusted.
#[test]
fn refuses_internal_files_of_another_user() {
    if !is_root() {
        longhaul_testprograms::skip::record("needs root to act as another user");
        return;
    }
    for kind in ["piece", PIECE_DATA, "journal"] {
        let temp = dirs();
        let src = temp.path().join("src");
        keep(&src, "a", 0..1);
        std::os::unix::fs::chown(own(&src, "a", kind), Some(1234), None).unwrap();
        let lines = describe_items(&mut scan(&contents(&src), Filter::default()));
        assert!(lines[1].ends_with("belongs to another user"), "{lines:?}");
    }
}

#[test]
fn rejects_pieces_of_one_file_in_two_sources() {
    let temp = dirs();
    let tops = ["src", "dst"].map(|top| temp.path().join(top));
    tops.iter().for_each(|top| keep(top, "a", 0..1));
    let sources = tops.map(|top| Source::open(&contents(&top)).unwrap());
    let mut scan = Scan::new(sources, Filter::default(), Options::default()).unwrap();
    let lines = describe_items(&mut scan);
    assert!(
        lines[2].starts_with("a: cannot copy it from two"),
        "{lines:?}"
    );
}

#[test]
fn opens_a_piece_found_by_a_scan() {
    let temp = dirs();
    let src = temp.path().join("src");
    fs::create_dir(src.join("d")).unwrap();
    keep(&src, "d/x", 2..3);
    let source = Source::open(&src).unwrap();
    let piece = source.open_piece(&rel("src/d/x")).unwrap();
    let hash = Blocks::new(2 * BLOCK_LEN + 1000)
        .hash(2, &[3; 1000])
        .unwrap();
    assert_eq!((piece.hash_of(1), piece.hash_of(2)), (None, Some(hash)));
    let mut bytes = [0; 1000];
    piece.file.read_exact_at(&mut bytes, 2 * BLOCK_LEN).unwrap();
    assert_eq!(bytes, [3; 1000]);
    for none in ["src/d/y", "src/e/x", "d/x"] {
        let failure = source.open_piece(&rel(none)).unwrap_err();
        assert!(failure.is_not_found(), "{failure}");
    }
}

#[test]
fn counts_hard_links() {
    let temp = dirs();
    let src = temp.path().join("src");
    fs::write(src.join("a"), "").unwrap();
    let source = Source::open(&src).unwrap();
    assert_eq!(source.hard_links(&rel("src/a")).unwrap(), 1);
    fs::hard_link(src.join("a"), temp.path().join("b")).unwrap();
    assert_eq!(source.hard_links(&rel("src/a")).unwrap(), 2);
    assert!(source.hard_links(&rel("src/b")).unwrap_err().is_not_found());
    assert!(source.hard_links(&rel("a")).unwrap_err().is_not_found());
}

/// Paths that would be deleted at `dst` after a copy of `src/`, and all entries that this would
/// remove.
fn planned_deletions(temp: &TempDir, filter: &Filter) -> (Vec<String>, Vec<String>) {
    let root = Root::open(&temp.path().join("dst")).unwrap();
    let mut scan = scan(&contents(&temp.path().join("src")), filter.clone());
    let mut plan = DeletionPlan::new(&root, filter);
    for item in scan.by_ref() {
        match item {
            ScanItem::Entry { entry, .. } | ScanItem::Piece { entry, .. } => {
                plan.add_entry(&entry);
            }
            ScanItem::Top { .. } => plan.set_contents_copied(),
            other => panic!("{other:?}"),
        }
    }
    let TreeDifference {
        found, failures, ..
    } = plan.finish(scan.ended()).unwrap();
    assert!(failures.is_empty(), "{failures:?}");
    let mut listed = Vec::new();
    for path in &found {
        let failures = list_removable(&root, filter, path, |path| listed.push(path.to_string()));
        assert!(failures.is_empty(), "{failures:?}");
    }
    (found.iter().map(RelPath::to_string).collect(), listed)
}

#[test]
fn deletes_pieces_of_files_missing_at_the_source() {
    let temp = dirs();
    let (src, dst) = (temp.path().join("src"), temp.path().join("dst"));
    fs::create_dir(src.join("d")).unwrap();
    fs::write(src.join("whole there"), "").unwrap();
    keep(&src, "in pieces there", 1..2);
    for dir in ["d", "extra"] {
        fs::create_dir(dst.join(dir)).unwrap();
    }
    let paths = [
        "whole there",
        "in pieces there",
        "d/gone",
        "gone too",
        "x.me",
        "extra/deep",
    ];
    paths.iter().for_each(|path| keep(&dst, path, 0..1));
    fs::write(dst.join("gone too"), "whole").unwrap();
    // Parts of an unfinished copy, and a damaged piece header.
    drop(part_of(&dst, &file_in_pieces("unfinished", 1)));
    fs::write(own(&dst, "none", "piece"), "nonsense").unwrap();
    let filter = exclude("*.me");
    let (found, listed) = planned_deletions(&temp, &filter);
    assert_eq!(found, ["d/gone", "extra", "gone too"]);
    assert_eq!(listed, ["d/gone", "extra/deep", "extra", "gone too"]);

    let root = Root::open(&dst).unwrap();
    let removed = found.iter().map(|path| {
        let (removed, failures) = remove_all(&root, &filter, &rel(path));
        assert!(failures.is_empty(), "{failures:?}");
        removed
    });
    assert_eq!(removed.sum::<u64>(), 5);
    assert_eq!(fs::read_dir(dst.join("d")).unwrap().count(), 0);
    assert!(!dst.join("extra").exists() && !dst.join("gone too").exists());
    // Three pieces, the part with its journal, the damaged piece header, and d.
    assert_eq!(fs::read_dir(&dst).unwrap().count(), 3 * 3 + 2 + 1 + 1);
    assert_eq!(planned_deletions(&temp, &filter).0, Vec::<String>::new());
}

#[test]
fn removes_directories_with_abandoned_parts_and_reports_busy_pieces() {
    let temp = dirs();
    let dst = temp.path().join("dst");
    fs::create_dir_all(dst.join("extra/unfinished")).unwrap();
    keep(&dst, "extra/busy", 0..1);
    drop(part_of(&dst, &file_in_pieces("extra/unfinished/x", 1)));
    let other_part = part_of(&dst, &file_in_pieces("extra/busy", 1));
    let (found, listed) = planned_deletions(&temp, &Filter::default());
    assert_eq!(found, ["extra"]);
    assert_eq!(listed, ["extra/unfinished", "extra/busy", "extra"]);
    let root = Root::open(&dst).unwrap();
    let (removed, failures) = remove_all(&root, &Filter::default(), &rel("extra"));
    assert_eq!((removed, failures.len()), (1, 1));
    let message = failures[0].to_string();
    assert!(
        message.starts_with("extra/busy: cannot open .longhaul-"),
        "{message}"
    );
    drop(other_part);
    assert_eq!(remove_all(&root, &Filter::default(), &rel("extra")).0, 2);
    assert!(!dst.join("extra").exists());
}

/// An interrupted removal leaves the piece header, because the other internal files are found by
/// it.
#[test]
fn removes_a_piece_of_which_only_the_piece_header_is_left() {
    let temp = dirs();
    let dst = temp.path().join("dst");
    keep(&dst, "a", 0..1);
    for kind in ["journal", PIECE_DATA] {
        fs::remove_file(own(&dst, "a", kind)).unwrap();
    }
    assert_eq!(planned_deletions(&temp, &Filter::default()).1, ["a"]);
    let root = Root::open(&dst).unwrap();
    assert_eq!(remove_all(&root, &Filter::default(), &rel("a")).0, 1);
    assert_eq!(fs::read_dir(&dst).unwrap().count(), 0);
}
