// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lying entries, and planted or swapped links: nothing outside is touched.

use super::*;

/// Entries of all types that a source can send for `path`.
fn hostile_entries(path: &str) -> Vec<Entry> {
    let kinds = [
        Kind::Directory,
        symlink_to("/etc/passwd"),
        Kind::HardLink { to: rel("plain") },
        Kind::Fifo,
        file(0, 0),
    ];
    kinds.into_iter().map(|kind| entry(path, kind)).collect()
}

#[test]
fn planted_links_are_not_followed() {
    let names = ["a", "a/b", "a/b/c"];
    for (at, planted) in names.iter().enumerate() {
        let temp = dirs();
        let (dst, outside) = (temp.path().join("dst"), temp.path().join("outside"));
        fs::write(dst.join("plain"), "").unwrap();
        fs::create_dir_all(outside.join("b/c")).unwrap();
        names[..at]
            .iter()
            .for_each(|dir| fs::create_dir(dst.join(dir)).unwrap());
        symlink(&outside, dst.join(planted)).unwrap();
        let before = (listing(&outside), inodes(&outside));
        let root = Root::open(&dst).unwrap();
        let mut writer = TreeWriter::new(&root, PlaceOptions::default());
        // A directory at or below the link is refused. Other entries may be refused or written elsewhere.
        for path in ["a", "a/b", "a/b/c", "a/b/c/d"] {
            let at_or_below =
                rel(path) == rel(planted) || rel(path).strip_prefix(&rel(planted)).is_some();
            for entry in hostile_entries(path)
                .into_iter()
                .filter(|_| at_or_below)
                .take(1)
            {
                assert!(
                    writer.write(&entry).is_err(),
                    "{path} with a link at {planted}"
                );
            }
            for entry in hostile_entries(path)
                .into_iter()
                .skip(1)
                .filter(|_| path != *planted)
            {
                let _ = writer.write(&entry);
            }
            let _ = inspect(&root, &rel(path));
        }
        let _ = remove_all(&root, &Filter::default(), &rel(planted));
        let _ = writer.finish();
        assert_eq!((listing(&outside), inodes(&outside)), before, "{planted}");
    }
}

/// Directories become links to the outside and back while a tree is written, corrected and removed.
#[test]
fn destination_swapped_for_a_link_is_not_followed() {
    let temp = dirs();
    let (dst, outside) = (temp.path().join("dst"), temp.path().join("outside"));
    fs::create_dir(outside.join("sub")).unwrap();
    fs::create_dir(dst.join("d")).unwrap();
    symlink(&outside, dst.join("other")).unwrap();
    let before = (listing(&outside), inodes(&outside));
    while_swapping(&dst.join("d"), &dst.join("other"), || {
        place_and_remove(&dst);
    });
    assert_eq!((listing(&outside), inodes(&outside)), before);
}

/// Repeats `work` while another thread exchanges two names as fast as possible. The loop ends with
/// that thread, also when it fails.
fn while_swapping(a: &Path, b: &Path, work: impl Fn()) {
    thread::scope(|scope| {
        let swaps = scope.spawn(|| swap_often(a, b));
        while !swaps.is_finished() {
            work();
        }
    });
}

fn swap_often(a: &Path, b: &Path) {
    for _ in 0..500 {
        let exchange = sys::RenameFlags::EXCHANGE;
        sys::renameat_with(sys::CWD, a, sys::CWD, b, exchange).unwrap();
        thread::yield_now();
    }
}

/// A user who may read everything copies a source that others may write to. The copy must not reveal
/// files that these others cannot read.
#[test]
fn source_swapped_for_a_link_reveals_nothing() {
    let temp = dirs();
    let src = temp.path().join("src");
    fs::create_dir(src.join("d")).unwrap();
    fs::write(src.join("d/harmless"), "harmless").unwrap();
    symlink(temp.path().join("outside"), src.join("other")).unwrap();
    while_swapping(&src.join("d"), &src.join("other"), || {
        let mut scan = scan(&contents(&src), Filter::default());
        for path in describe_items(&mut scan) {
            assert!(!path.ends_with("secret"), "{path}");
        }
        let opened = scan.sources()[0].open_file(&rel("d/secret"), false);
        assert!(opened.is_err());
    });
}

fn place_and_remove(dst: &Path) {
    let root = Root::open(dst).unwrap();
    let mut writer = TreeWriter::new(&root, PlaceOptions::default());
    let kinds = [
        ("d", Kind::Directory),
        ("d/sub", Kind::Directory),
        ("d/secret", symlink_to("x")),
        ("d/sub/fifo", Kind::Fifo),
        (
            "d/link",
            Kind::HardLink {
                to: rel("d/secret"),
            },
        ),
    ];
    for (path, kind) in kinds {
        let _ = writer.write(&entry(path, kind));
    }
    let _ = writer.finish();
    let _ = remove_all(&root, &Filter::default(), &rel("d/sub"));
    let _ = remove_all(&root, &Filter::default(), &rel("d/secret"));
}

#[test]
fn refusals_name_the_path() {
    let temp = dirs();
    fs::create_dir_all(temp.path().join("dst/x/full")).unwrap();
    let root = Root::open(&temp.path().join("dst")).unwrap();
    let mut writer = TreeWriter::new(&root, PlaceOptions::default());
    let error = writer.write(&entry("x", file(1, 1))).unwrap_err();
    assert!(matches!(error, Failure::Refused { .. }));
    assert_eq!(
        error.to_string(),
        "x: a directory is in the way; remove or move it first"
    );
}

#[test]
fn invalid_metadata_is_refused_or_skipped() {
    let temp = dirs();
    let root = Root::open(&temp.path().join("dst")).unwrap();
    let mut writer = TreeWriter::new(&root, PlaceOptions::default());
    for target in ["", "with\0nul", &"x".repeat(5000)] {
        assert!(
            writer.write(&entry("x", symlink_to(target))).is_err(),
            "{target:?}"
        );
    }
    assert!(
        writer
            .write(&entry("none/x", Kind::Fifo))
            .unwrap_err()
            .is_not_found()
    );
    let mut without_owner = entry("x", Kind::Fifo);
    (without_owner.metadata.uid, without_owner.metadata.gid) = (u32::MAX, u32::MAX);
    without_owner.metadata.mode = u32::MAX;
    let (result, skipped) = writer.write(&without_owner).unwrap();
    assert_eq!(
        (result, skipped.len()),
        (WriteOutcome::Changed, 1),
        "set-id bits: these numbers leave the owner as it is"
    );
    let made = root.stat(&without_owner.path).unwrap();
    assert_eq!(
        (made.st_uid, made.st_mode & 0o6000),
        (rustix::process::geteuid().as_raw(), 0)
    );
}
