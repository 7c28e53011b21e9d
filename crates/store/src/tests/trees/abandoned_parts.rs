// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts that interrupted copies left, beside which a copy with `--delete` runs.

use super::{tree_pieces::own, *};
use crate::tests::{file_in_pieces, keep_piece, part_of};

/// Differences between `dst` and a source that has only `d/here` and the directory `e`.
fn difference(temp: &TempDir, filter: &Filter) -> TreeDifference {
    let root = Root::open(&temp.path().join("dst")).unwrap();
    let mut plan = DeletionPlan::new(&root, filter);
    plan.set_contents_copied();
    for (path, is_directory) in [("d", true), ("d/here", false), ("e", true)] {
        plan.add(&rel(path), is_directory);
    }
    plan.finish(ScanEnd::Complete).unwrap()
}

#[test]
fn leftovers_of_files_that_the_source_does_not_have_are_removed() {
    let temp = dirs();
    let dst = temp.path().join("dst");
    for dir in ["d", "e", "other"] {
        fs::create_dir(dst.join(dir)).unwrap();
    }
    for path in ["d/here", "d/gone", "e/gone", "top"] {
        drop(part_of(&dst, &file_in_pieces(path, 1)));
    }
    for path in ["d/here", "e/small"] {
        fs::write(own(&dst, path, "whole"), "").unwrap();
    }
    fs::write(own(&dst, "e", "origin"), "").unwrap();
    keep_piece(&dst, &file_in_pieces("e/in pieces", 1), 0..1);
    let in_use = part_of(&dst, &file_in_pieces("e/in use", 1));

    let filter = Filter::default();
    let difference_now = difference(&temp, &filter);
    assert_eq!(difference_now.abandoned.len(), 5);
    let root = Root::open(&dst).unwrap();
    let remove_all = |difference: TreeDifference| {
        let removals = difference.abandoned.iter();
        removals.for_each(|parts| parts.remove(&root).unwrap());
    };
    // The names of the files are unknown, so a pattern could mean them.
    assert!(difference(&temp, &exclude("*.me")).abandoned.is_empty());
    remove_all(difference_now);
    let exists = |path, kind| own(&dst, path, kind).exists();
    for path in ["d/gone", "e/gone", "top", "e/small"] {
        for kind in ["part", "journal", "whole"] {
            assert!(!exists(path, kind), "{path}.{kind}");
        }
    }
    for path in ["d/here", "e/in use"] {
        assert!(exists(path, "part") && exists(path, "journal"), "{path}");
    }
    assert!(exists("d/here", "whole") && exists("e", "origin"));
    assert!(exists("e/in pieces", "piece-data"));

    if is_root() {
        let journal = own(&dst, "e/other user's", "journal");
        drop(part_of(&dst, &file_in_pieces("e/other user's", 1)));
        std::os::unix::fs::chown(&journal, Some(1234), None).unwrap();
        remove_all(difference(&temp, &filter));
        assert!(exists("e/other user's", "part") && journal.exists());
    }

    drop(in_use);
    remove_all(difference(&temp, &filter));
    assert!(!exists("e/in use", "part") && !exists("e/in use", "journal"));
}
