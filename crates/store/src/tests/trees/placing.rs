// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decisions about an entry, given the existing entry of that name.

use super::*;

#[test]
fn transfers_files_unless_same_or_newer() {
    let (old, new) = (existing(file(5, 10)), existing(file(5, 30)));
    assert_eq!(
        decide_alone(file(5, 20), &Existing::Missing, false),
        Decision::Transfer
    );
    assert_eq!(decide_alone(file(5, 20), &old, false), Decision::Transfer);
    assert_eq!(decide_alone(file(5, 20), &new, false), Decision::Transfer);
    assert_eq!(decide_alone(file(5, 20), &old, true), Decision::Transfer);
    assert_eq!(decide_alone(file(5, 20), &new, true), Decision::KeepNewer);
    assert_eq!(decide_alone(file(5, 10), &old, true), Decision::Unchanged);
    assert_eq!(decide_alone(file(6, 10), &old, true), Decision::Transfer);
    let mut other = entry("x", file(5, 10));
    other.metadata.mode = 0o600;
    let options = PlaceOptions::default();
    assert_eq!(decide(&other, &old, None, &options), Decision::SetMetadata);
}

#[test]
fn decides_which_entries_are_replaced() {
    let dir = || existing(Kind::Directory);
    let refused = Decision::Refuse;
    for kind in [file(5, 10), symlink_to("a"), Kind::Fifo] {
        assert_eq!(
            decide_alone(kind, &dir(), false),
            refused(Refusal::DirectoryInTheWay)
        );
    }
    assert_eq!(
        decide_alone(Kind::Directory, &existing(symlink_to("a")), false),
        refused(Refusal::SymlinkForDirectory)
    );
    assert_eq!(
        decide_alone(Kind::Directory, &existing(file(1, 1)), false),
        refused(Refusal::NonDirectoryInTheWay)
    );
    assert_eq!(
        decide_alone(Kind::Directory, &Existing::Unknown, false),
        refused(Refusal::NonDirectoryInTheWay)
    );
    assert_eq!(
        decide_alone(file(5, 10), &existing(symlink_to("a")), true),
        Decision::Transfer
    );
    assert_eq!(
        decide_alone(symlink_to("a"), &existing(file(5, 10)), false),
        Decision::Replace
    );
    assert_eq!(
        decide_alone(symlink_to("a"), &existing(symlink_to("b")), false),
        Decision::Replace
    );
    assert_eq!(
        decide_alone(symlink_to("a"), &existing(symlink_to("a")), false),
        Decision::Unchanged
    );
    assert_eq!(
        decide_alone(Kind::Fifo, &Existing::Unknown, false),
        Decision::Replace
    );
    let device = |minor| Kind::Device {
        block: false,
        major: 1,
        minor,
    };
    for kind in [file(5, 10), symlink_to("a"), Kind::Fifo] {
        assert_eq!(
            decide_alone(kind, &existing(device(3)), false),
            refused(Refusal::DeviceInTheWay)
        );
    }
    assert_eq!(
        decide_alone(device(5), &existing(device(3)), false),
        Decision::Replace
    );
}

#[test]
fn refuses_internal_names() {
    let options = PlaceOptions::default();
    let own = decide(
        &entry("a/.longhaul-0.part", Kind::Fifo),
        &Existing::Missing,
        None,
        &options,
    );
    assert_eq!(own, Decision::Refuse(Refusal::InternalName));
    let kind = Kind::HardLink {
        to: rel(".longhaul-manifest"),
    };
    let link = decide(
        &entry("x", kind),
        &Existing::Missing,
        Some(&existing(file(1, 1))),
        &options,
    );
    assert_eq!(link, Decision::Refuse(Refusal::InternalName));
}

#[test]
fn replaces_entries_in_one_step() {
    let temp = dirs();
    let dst = temp.path().join("dst");
    let root = Root::open(&dst).unwrap();
    let mut writer = TreeWriter::new(&root, PlaceOptions::default());
    fs::write(dst.join("x"), "old").unwrap();
    fs::write(dst.join("y"), "file").unwrap();
    let mut place = |path: &str, kind: Kind| writer.write(&entry(path, kind)).unwrap().0;
    assert_eq!(place("x", symlink_to("a")), WriteOutcome::Changed);
    assert_eq!(place("x", symlink_to("a")), WriteOutcome::Unchanged);
    assert_eq!(place("x", symlink_to("b")), WriteOutcome::Changed);
    assert_eq!(fs::read_link(dst.join("x")).unwrap(), Path::new("b"));
    assert_eq!(place("x", Kind::Fifo), WriteOutcome::Changed);
    assert_eq!(
        place("x", Kind::HardLink { to: rel("y") }),
        WriteOutcome::Changed
    );
    assert_eq!(
        place("x", Kind::HardLink { to: rel("y") }),
        WriteOutcome::Unchanged
    );
    assert_eq!(fs::read_to_string(dst.join("x")).unwrap(), "file");
    assert_eq!(
        fs::read_dir(&dst).unwrap().count(),
        2,
        "nothing is left beside"
    );
}

#[test]
fn dry_run_reports_the_same_and_changes_nothing() {
    let temp = dirs();
    let (src, dst) = (temp.path().join("src"), temp.path().join("dst"));
    make_every_type(&src);
    fs::create_dir(dst.join("dir")).unwrap();
    symlink("other", dst.join("dangling")).unwrap();
    fs::write(dst.join("empty"), "in the way").unwrap();
    let before = (listing(&dst), inodes(&dst));
    let dry_run = PlaceOptions {
        dry_run: true,
        ..PlaceOptions::default()
    };
    let dry = copy(&contents(&src), &dst, &Filter::default(), &dry_run);
    assert_eq!((listing(&dst), inodes(&dst)), before);
    let wet = plain_copy(&contents(&src), &dst);
    assert_eq!(wet.failures.len(), 1, "{wet:?}");
    assert_eq!(
        (dry.wanted, dry.changed, dry.failures),
        (wet.wanted, wet.changed, wet.failures)
    );
}

#[test]
fn corrects_metadata_of_a_matching_file_without_transfer() {
    let temp = dirs();
    let (src, dst) = (temp.path().join("src"), temp.path().join("dst"));
    fs::write(src.join("f"), "data").unwrap();
    plain_copy(&contents(&src), &dst);
    set_mode(&src.join("f"), 0o601);
    set_xattr(&src.join("f"), "user.new", b"1");
    let counts = plain_copy(&contents(&src), &dst);
    assert_eq!((counts.changed, counts.wanted), (1, 0));
    assert_eq!(listing(&src), listing(&dst));
}

#[test]
fn with_checksums_the_caller_compares_files_of_one_size() {
    let temp = dirs();
    let (src, dst) = (temp.path().join("src"), temp.path().join("dst"));
    fs::write(src.join("f"), "data").unwrap();
    fs::write(src.join("g"), "data").unwrap();
    plain_copy(&contents(&src), &dst);
    fs::write(src.join("g"), "more data").unwrap();
    let options = PlaceOptions {
        checksum: true,
        ..PlaceOptions::default()
    };
    let counts = copy(&contents(&src), &dst, &Filter::default(), &options);
    assert_eq!((counts.compared, counts.wanted), (1, 1));
    set_times(&src.join("f"), 5, 0);
    let root = Root::open(&dst).unwrap();
    let Some(ScanItem::Entry { entry, .. }) = scan(&src.join("f"), Filter::default()).next() else {
        panic!("no entry");
    };
    let dry_run = PlaceOptions {
        dry_run: true,
        ..PlaceOptions::default()
    };
    let file = root.open_file(&rel("f")).unwrap();
    let imagined = TreeWriter::new(&root, dry_run).correct_metadata(&entry, &file);
    let imagined = imagined.unwrap().0;
    assert_eq!(imagined, WriteOutcome::Changed);
    let writer = TreeWriter::new(&root, options);
    assert_eq!(
        writer.correct_metadata(&entry, &file).unwrap().0,
        WriteOutcome::Changed
    );
    assert_eq!(
        writer.correct_metadata(&entry, &file).unwrap().0,
        WriteOutcome::Unchanged
    );
    assert_eq!(listing(&dst)[Path::new("f")], listing(&src)[Path::new("f")]);
}

#[test]
fn does_not_change_metadata_of_a_file_swapped_meanwhile() {
    let temp = dirs();
    fs::write(temp.path().join("dst/f"), "").unwrap();
    let root = Root::open(&temp.path().join("dst")).unwrap();
    let compared = root.open_file(&rel("f")).unwrap();
    fs::write(temp.path().join("dst/new"), "").unwrap();
    fs::rename(temp.path().join("dst/new"), temp.path().join("dst/f")).unwrap();
    let before = listing(&temp.path().join("dst"));
    let writer = TreeWriter::new(&root, PlaceOptions::default());
    let settled = writer.correct_metadata(&entry("f", file(0, 10)), &compared);
    assert_eq!(settled.unwrap().0, WriteOutcome::Changed);
    assert_eq!(listing(&temp.path().join("dst")), before);
}

#[test]
fn unreadable_directories_get_their_mode_after_their_contents() {
    let temp = dirs();
    set_mode(temp.path(), 0o777);
    let dst = temp.path().join("theirs");
    as_ordinary_user(|| {
        let root = Root::open_or_create(&dst).unwrap();
        let dir = |path: &str| {
            let mut entry = entry(path, Kind::Directory);
            entry.metadata.mode = 0o200;
            (entry.metadata.uid, entry.metadata.gid) = owner_of(&dst);
            entry
        };
        for _ in 0..2 {
            let mut writer = TreeWriter::new(&root, PlaceOptions::default());
            for path in ["d", "d/e", "d/e/f"] {
                writer.write(&dir(path)).unwrap();
            }
            assert!(writer.finish().is_empty());
            assert_eq!(
                fs::metadata(dst.join("d")).unwrap().permissions().mode() & 0o7777,
                0o200
            );
        }
        assert!(
            remove_all(&root, &Filter::default(), &rel("d"))
                .1
                .is_empty()
        );
        assert!(!dst.join("d").exists());
    });
}

fn owner_of(path: &Path) -> (u32, u32) {
    use std::os::unix::fs::MetadataExt;
    let stat = fs::metadata(path).unwrap();
    (stat.uid(), stat.gid())
}

#[test]
fn compares_attributes_by_name_and_value() {
    let with = |value: &[u8]| Metadata {
        xattrs: vec![Xattr {
            name: (*b"user.a").into(),
            value: value.into(),
        }],
        ..metadata()
    };
    assert!(with(b"1").differs(&with(b"2"), false));
    assert!(!with(b"1").differs(&with(b"1"), false));
}

/// Each thread replaces the link with its own, over and over.
#[test]
fn concurrent_replacements_of_one_entry_all_succeed() {
    let temp = dirs();
    let dst = temp.path().join("dst");
    symlink("neither", dst.join("x")).unwrap();
    let replace = |target: &str| {
        let root = Root::open(&dst).unwrap();
        let mut writer = TreeWriter::new(&root, PlaceOptions::default());
        for _ in 0..2_000 {
            writer.write(&entry("x", symlink_to(target))).unwrap();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| replace("one"));
        replace("other");
    });
    assert_eq!(fs::read_dir(&dst).unwrap().count(), 1);
    let last = fs::read_link(dst.join("x")).unwrap();
    assert!(["one", "other"].contains(&last.to_str().unwrap()));
}
