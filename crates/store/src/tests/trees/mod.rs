// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of whole trees, compared with cp and rsync; and sources that lie.

mod abandoned_parts;
mod deleting;
mod hostile;

mod placing;
mod random;
mod scanning;
mod tree_pieces;
mod whole_trees;

use crate::{
    entry::{Entry, Kind, Version, extents},
    metadata::{Metadata, Time, Xattr},
    path::RelPath,
    root::{Failure, Refusal, Root},
    tests::{acl, as_ordinary_user, is_root, listing},
    tree::{
        delete::{DeletionPlan, DeletionRefused, TreeDifference, remove_all},
        filter::{Filter, Rule},
        scan::{Options, Scan, ScanEnd, ScanItem, SkipReason, Source, SourceError},
        writer::{
            Decision, Existing, Options as PlaceOptions, TreeWriter, WriteOutcome, decide, inspect,
        },
    },
};
use proptest::{collection::vec, prelude::*};
use rustix::fs::{self as sys, FileType, Mode, OFlags};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, PermissionsExt, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::Command,
    thread,
};
use tempfile::TempDir;

fn rel(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

fn exclude(pattern: &str) -> Filter {
    Filter::new(&[Rule::Exclude(pattern.into())]).unwrap()
}

/// Directories `src/`, `dst/`, and `outside/` with a secret in it.
fn dirs() -> TempDir {
    let temp = TempDir::new().unwrap();
    for name in ["src", "dst", "outside"] {
        fs::create_dir(temp.path().join(name)).unwrap();
    }
    fs::write(temp.path().join("outside/secret"), "secret").unwrap();
    temp
}

fn scan(argument: &Path, filter: Filter) -> Scan {
    Scan::new(
        [Source::open(argument).unwrap()],
        filter,
        Options::default(),
    )
    .unwrap()
}

fn contents(dir: &Path) -> PathBuf {
    dir.join("")
}

/// Line of text for each item of a scan.
fn describe_items(scan: &mut Scan) -> Vec<String> {
    scan.map(|item| match item {
        ScanItem::Entry { entry, .. } => entry.path.to_string(),
        ScanItem::Top { .. } => ".".into(),
        ScanItem::Piece {
            entry,
            piece_blocks: held,
            ..
        } => format!("{}: piece {held:?}", entry.path),
        ScanItem::Shares { path, shares } => format!("{path}: {} shares", shares.unwrap().len()),
        ScanItem::Skipped { path, reason: why } => format!("{path}: {why}"),
        ScanItem::Conflict { path, .. } => format!("{path}: conflict"),
        ScanItem::Failed(failure) => failure.to_string(),
        ScanItem::SourceFailed { failure, .. } => format!("source {failure}"),
    })
    .collect()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    unchanged: u32,
    changed: u32,
    newer: u32,
    compared: u32,
    wanted: u32,
    failures: Vec<String>,
    skipped: usize,
}

/// Copies a whole tree on one machine; file data is copied in the simplest way.
fn copy(argument: &Path, to: &Path, filter: &Filter, options: &PlaceOptions) -> Counts {
    let mut scan = scan(argument, filter.clone());
    let root = Root::open_or_create(to).unwrap();
    let mut writer = TreeWriter::new(&root, options.clone());
    let mut counts = Counts::default();
    while let Some(item) = scan.next() {
        match item {
            ScanItem::Entry { source, entry, .. } => {
                let result = writer.write(&entry).map(|(result, skipped)| {
                    counts.skipped += skipped.len();
                    result
                });
                match result {
                    Ok(WriteOutcome::Unchanged) => counts.unchanged += 1,
                    Ok(WriteOutcome::Changed) => counts.changed += 1,
                    Ok(WriteOutcome::Compare) => counts.compared += 1,
                    Ok(WriteOutcome::KeptNewer) => counts.newer += 1,
                    Ok(WriteOutcome::Transfer) => {
                        counts.wanted += 1;
                        if !options.dry_run {
                            transfer(&scan.sources()[source], &entry, &root);
                        }
                    }
                    Err(failure) => counts.failures.push(failure.to_string()),
                }
            }
            ScanItem::Top { metadata, .. } => writer.set_top_metadata(metadata),
            ScanItem::Piece { .. }
            | ScanItem::Shares { .. }
            | ScanItem::Skipped { .. }
            | ScanItem::Conflict { .. } => {}
            ScanItem::Failed(failure) | ScanItem::SourceFailed { failure, .. } => {
                counts.failures.push(failure.to_string());
            }
        }
    }
    for (_, applied) in writer.finish() {
        counts.skipped += applied.unwrap().skipped.len();
    }
    counts
}

fn transfer(source: &Source, entry: &Entry, root: &Root) {
    let opened = source.open_file(&entry.path, false).unwrap();
    let from = opened.file();
    let Kind::File { version, .. } = entry.kind else {
        panic!("no file");
    };
    assert_eq!(Version::of_file(from).unwrap(), version);
    let part = match entry.path.parent() {
        Some(dir) => dir.join(b".longhaul-7e57.part").unwrap(),
        None => rel(".longhaul-7e57.part"),
    };
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    let to = root
        .open_with(&part, flags, Mode::RUSR | Mode::WUSR)
        .unwrap();
    to.set_len(version.size).unwrap();
    for extent in extents(&from, version.size).unwrap() {
        let mut data = vec![0; usize::try_from(extent.end - extent.start).unwrap()];
        from.read_exact_at(&mut data, extent.start).unwrap();
        to.write_all_at(&data, extent.start).unwrap();
    }
    entry.metadata.apply_to_file(&to).unwrap();
    root.rename(&part, &entry.path).unwrap();
}

fn plain_copy(argument: &Path, to: &Path) -> Counts {
    copy(argument, to, &Filter::default(), &PlaceOptions::default())
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    sys::lsetxattr(path, name, value, sys::XattrFlags::empty()).unwrap();
}

fn set_times(path: &Path, seconds: i64, nanos: i64) {
    let time = sys::Timespec {
        tv_sec: seconds,
        tv_nsec: nanos,
    };
    let times = sys::Timestamps {
        last_access: time,
        last_modification: time,
    };
    sys::utimensat(sys::CWD, path, &times, sys::AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Creates a tree with an entry of every type that this user may create.
fn make_every_type(top: &Path) {
    let dir = top.join("dir");
    fs::create_dir_all(dir.join("deep/er")).unwrap();
    fs::create_dir(top.join("empty")).unwrap();
    fs::write(dir.join("file"), "data").unwrap();
    fs::write(dir.join("nothing"), "").unwrap();
    fs::hard_link(dir.join("file"), top.join("linked")).unwrap();
    fs::hard_link(dir.join("file"), dir.join("deep/linked")).unwrap();
    symlink("../dir/file", dir.join("symlink")).unwrap();
    symlink("/no/where", top.join("dangling")).unwrap();
    fs::hard_link(top.join("dangling"), top.join("dangling too")).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"odd \xff\n\x1b[m");
    fs::write(top.join(odd), "odd").unwrap();
    sys::mkfifoat(sys::CWD, top.join("fifo"), Mode::RUSR).unwrap();
    let sparse = fs::File::create(top.join("sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
    sparse.write_all_at(&[7; 5000], 1 << 20).unwrap();
    set_xattr(&dir.join("file"), "user.note", b"\0binary\xff");
    set_xattr(&dir, "user.dir", b"1");
    set_xattr(&dir, "system.posix_acl_default", &acl(7, 5, 7));
    set_xattr(
        &dir.join("nothing"),
        "system.posix_acl_access",
        &acl(6, 0, 7),
    );
    if is_root() {
        make_privileged_types(top);
    }
    set_mode(&top.join("linked"), 0o4750);
    set_old_times(top);
    set_times(&dir.join("nothing"), -1_000_000, 123_456_789);
    set_times(&top.join("dangling"), 1_000_000, 1);
    set_times(&dir.join("deep"), 1_234_567, 999_999_999);
    set_mode(&dir.join("deep"), 0o555);
    set_times(&dir, 1_234_568, 1);
    set_times(top, 12, 34);
}

/// Sets times far from now: rsync treats times within the same second as equal.
fn set_old_times(path: &Path) {
    let stat = fs::symlink_metadata(path).unwrap();
    if stat.is_dir() {
        fs::read_dir(path)
            .unwrap()
            .for_each(|entry| set_old_times(&entry.unwrap().path()));
    }
    set_times(path, 900_000_000, 987_654_321);
}

fn make_privileged_types(top: &Path) {
    let mode = Mode::RUSR | Mode::WUSR;
    let null = sys::makedev(1, 3);
    sys::mknodat(
        sys::CWD,
        top.join("null"),
        FileType::CharacterDevice,
        mode,
        null,
    )
    .unwrap();
    let disk = sys::makedev(7, 300);
    sys::mknodat(
        sys::CWD,
        top.join("disk"),
        FileType::BlockDevice,
        mode,
        disk,
    )
    .unwrap();
    set_xattr(&top.join("dangling"), "trusted.link", b"x");
    set_xattr(&top.join("null"), "trusted.device", b"x");
    for (name, owner) in [
        ("dir/file", 1001),
        ("dangling", 1002),
        ("fifo", 1003),
        ("empty", 1004),
    ] {
        std::os::unix::fs::lchown(top.join(name), Some(owner), Some(owner + 1)).unwrap();
    }
}

/// Inode number and change time of each entry.
fn inodes(top: &Path) -> BTreeMap<PathBuf, (u64, i64, i64)> {
    use std::os::unix::fs::MetadataExt;
    let id = |path: PathBuf| {
        let stat = fs::symlink_metadata(top.join(&path)).unwrap();
        (path, (stat.ino(), stat.ctime(), stat.ctime_nsec()))
    };
    listing(top).into_keys().map(id).collect()
}

fn metadata() -> Metadata {
    let owner = |id: u32| if is_root() { id } else { 0 };
    Metadata {
        mode: 0o755,
        uid: if is_root() {
            owner(0)
        } else {
            rustix::process::geteuid().as_raw()
        },
        gid: if is_root() {
            owner(0)
        } else {
            rustix::process::getegid().as_raw()
        },
        modified: Time {
            seconds: 1000,
            nanos: 5,
        },
        ..Metadata::default()
    }
}

fn entry(path: &str, kind: Kind) -> Entry {
    Entry {
        path: rel(path),
        kind,
        metadata: metadata(),
    }
}

fn symlink_to(target: &str) -> Kind {
    Kind::Symlink {
        target: target.as_bytes().into(),
    }
}

fn file(size: u64, seconds: i64) -> Kind {
    let modified = Time { seconds, nanos: 0 };
    Kind::File {
        version: Version {
            size,
            modified,
            changed: modified,
            inode: 1,
            device: 1,
        },
        sparse: false,
    }
}

fn existing(kind: Kind) -> Existing {
    Existing::Entry {
        kind,
        metadata: metadata(),
        id: (1, 2),
    }
}

fn decide_alone(kind: Kind, there: &Existing, update: bool) -> Decision {
    let options = PlaceOptions {
        update,
        ..PlaceOptions::default()
    };
    decide(&entry("x", kind), there, None, &options)
}
