// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deletion of entries that the source does not have.

use super::*;

/// Paths that would be deleted at `dst` after a copy of `src/`.
fn planned_deletions(
    temp: &TempDir,
    filter: &Filter,
    ended: Option<ScanEnd>,
) -> Result<Vec<String>, DeletionRefused> {
    let root = Root::open(&temp.path().join("dst")).unwrap();
    let mut scan = scan(&contents(&temp.path().join("src")), filter.clone());
    let mut plan = DeletionPlan::new(&root, filter);
    for item in scan.by_ref() {
        match item {
            ScanItem::Entry { entry, .. } => plan.add_entry(&entry),
            ScanItem::Top { .. } => plan.set_contents_copied(),
            ScanItem::Shares { .. } | ScanItem::Conflict { .. } => {}
            ScanItem::Skipped { path, .. } => plan.protect(&path),
            ScanItem::Piece { entry, .. } => plan.add_entry(&entry),
            ScanItem::Failed(failure) | ScanItem::SourceFailed { failure, .. } => {
                panic!("{failure}")
            }
        }
    }
    let extras = plan.finish(ended.unwrap_or(scan.ended()))?;
    assert!(extras.failures.is_empty(), "{extras:?}");
    Ok(extras.found.iter().map(RelPath::to_string).collect())
}

#[test]
fn deletes_only_entries_missing_at_the_source() {
    let temp = dirs();
    let (src, dst) = (temp.path().join("src"), temp.path().join("dst"));
    for dir in ["both/in", "new"] {
        fs::create_dir_all(src.join(dir)).unwrap();
    }
    for dir in ["both/in", "extra/deep"] {
        fs::create_dir_all(dst.join(dir)).unwrap();
    }
    let _listener = UnixListener::bind(src.join("socket")).unwrap();
    let files = [
        "a",
        "both/x",
        "both/in/.longhaul-1.part",
        "keep.me",
        "extra/deep/keep.me",
        "socket",
    ];
    for file in files {
        fs::write(dst.join(file), "").unwrap();
    }
    symlink("../outside", dst.join("extra/link")).unwrap();
    let filter = exclude("*.me");
    assert_eq!(
        planned_deletions(&temp, &filter, None).unwrap(),
        ["a", "both/x", "extra"]
    );
    let failed = planned_deletions(&temp, &filter, Some(ScanEnd::Failures(3)));
    assert_eq!(failed, Err(DeletionRefused::Failures(3)));
    assert_eq!(
        planned_deletions(&temp, &filter, Some(ScanEnd::Unfinished)),
        Err(DeletionRefused::Unfinished)
    );

    let root = Root::open(&dst).unwrap();
    let (removed, failures) = remove_all(&root, &filter, &rel("extra"));
    assert_eq!((removed, failures.len()), (1, 0));
    assert!(dst.join("extra/deep/keep.me").exists(), "patterns protect");
    let (removed, _) = remove_all(&root, &Filter::default(), &rel("extra"));
    assert_eq!(removed, 3);
    assert_eq!(remove_all(&root, &filter, &rel("both")).0, 1);
    assert!(
        dst.join("both/in/.longhaul-1.part").exists(),
        "the part of another copy"
    );
    assert!(temp.path().join("outside/secret").exists());
}

#[test]
fn does_not_follow_a_link_in_place_of_a_copied_directory() {
    let temp = dirs();
    fs::create_dir(temp.path().join("src/d")).unwrap();
    symlink("../outside", temp.path().join("dst/d")).unwrap();
    let root = Root::open(&temp.path().join("dst")).unwrap();
    let filter = Filter::default();
    let mut plan = DeletionPlan::new(&root, &filter);
    plan.add_entry(&entry("d", Kind::Directory));
    let extras = plan.finish(ScanEnd::Complete).unwrap();
    assert_eq!((extras.found.len(), extras.failures.len()), (0, 1));
}
