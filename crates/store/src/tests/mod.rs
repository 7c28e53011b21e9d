// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers for tests of several modules: listings of trees, and threads with an ordinary user's
//! rights.

mod power_loss;
mod trees;

use crate::{
    blocks::BLOCK_LEN,
    entry::{Entry, Kind, Version, extents},
    metadata::{Metadata, Time},
    part::{OpenOutcome, Part, SourceInfo},
    path::RelPath,
    vfs::Dir,
};
use rustix::{
    process::{Gid, Uid},
    thread::{
        CapabilitySet, CapabilitySets, set_capabilities, set_thread_groups, set_thread_res_gid,
        set_thread_res_uid,
    },
};
use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    ops::Range,
    os::{
        fd::AsFd,
        unix::{
            ffi::OsStrExt,
            fs::{FileTypeExt, MetadataExt},
        },
    },
    path::{Path, PathBuf},
    thread,
};

/// User that is not root and owns nothing.
const ORDINARY: u32 = 54_321;

/// Whether the user is root of the machine. Root of a user namespace cannot give files away or
/// create devices.
pub(crate) fn is_root() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    is_called_root() && map.split_whitespace().eq(["0", "0", "4294967295"])
}

fn is_called_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a test on a thread with an ordinary user's rights. The user may be one already.
pub(crate) fn as_ordinary_user<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    let switch_user = || {
        if is_root() {
            set_ordinary_ids();
        } else if is_called_root() {
            drop_rights();
        }
        test()
    };
    thread::scope(|scope| scope.spawn(switch_user).join().unwrap())
}

fn set_ordinary_ids() {
    let (uid, gid) = (Uid::from_raw(ORDINARY), Gid::from_raw(ORDINARY));
    set_thread_groups(&[]).unwrap();
    set_thread_res_gid(gid, gid, gid).unwrap();
    set_thread_res_uid(uid, uid, uid).unwrap();
}

fn drop_rights() {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, sets).unwrap();
}

/// Access control list with a group entry, a named user (the current one) and their mask.
pub(crate) fn acl(user: u8, group: u8, named: u8) -> Vec<u8> {
    let (us, none) = (rustix::process::geteuid().as_raw(), u32::MAX.to_le_bytes());
    let entry = |tag: u8, bits: u8, id: [u8; 4]| [&[tag, 0, bits, 0], &id[..]].concat();
    [
        vec![2, 0, 0, 0],
        entry(0x01, user, none),
        entry(0x02, named, us.to_le_bytes()),
        entry(0x04, group, none),
        entry(0x10, named | group, none),
        entry(0x20, 0, none),
    ]
    .concat()
}

/// Entry of a file of two blocks and a thousand bytes, with its own version.
pub(crate) fn file_in_pieces(path: &str, version: i64) -> Entry {
    let modified = Time {
        seconds: version,
        nanos: 1,
    };
    let version = Version {
        size: 2 * BLOCK_LEN + 1000,
        modified,
        changed: modified,
        inode: 5,
        device: 6,
    };
    Entry {
        path: RelPath::parse(path.as_bytes()).unwrap(),
        kind: Kind::File {
            version,
            sparse: true,
        },
        metadata: Metadata {
            mode: 0o640,
            modified,
            ..Metadata::default()
        },
    }
}

/// Part of the entry, in its directory below `top`.
pub(crate) fn part_of(top: &Path, entry: &Entry) -> Part {
    let dir = dir_of(top, entry);
    match Part::open(&dir, entry.path.name(), &source_info_of(entry)).unwrap() {
        OpenOutcome::Fresh(part) | OpenOutcome::Resumed(part) => part,
        _ => panic!("busy"),
    }
}

pub(crate) fn source_info_of(entry: &Entry) -> SourceInfo {
    let Kind::File { version, .. } = &entry.kind else {
        panic!("no file");
    };
    SourceInfo {
        version: version.into(),
        length: version.size,
        sparse: true,
    }
}

pub(crate) fn dir_of(top: &Path, entry: &Entry) -> Dir {
    let dir = top.join(entry.path.as_path());
    Dir::new(File::open(dir.parent().unwrap()).unwrap().as_fd()).unwrap()
}

/// Writes blocks of the entry, each filled with its number, and keeps the part as a piece.
pub(crate) fn keep_piece(top: &Path, entry: &Entry, indexes: Range<u64>) {
    let part = part_of(top, entry);
    for index in indexes {
        write_block(&part, index);
    }
    part.keep_as_piece(entry).unwrap();
}

pub(crate) fn write_block(part: &Part, index: u64) {
    let range = part.blocks().range(index).unwrap();
    let bytes = vec![index as u8 + 1; (range.end - range.start) as usize];
    let hash = part.blocks().hash(index, &bytes).unwrap();
    assert!(part.write(index, &bytes, Some(hash)).unwrap());
}

/// State of all entries of a tree, by path; "." is the top. Access times are left out, because
/// reading changes them.
pub(crate) fn listing(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut first_names = HashMap::new();
    list(top, Path::new(""), &mut all, &mut first_names);
    all
}

fn list(
    top: &Path,
    path: &Path,
    all: &mut BTreeMap<PathBuf, String>,
    first_names: &mut HashMap<(u64, u64), PathBuf>,
) {
    let real = top.join(path);
    let stat = fs::symlink_metadata(&real).unwrap();
    let first = first_names
        .entry((stat.dev(), stat.ino()))
        .or_insert_with(|| path.into())
        .clone();
    let mode = if stat.is_symlink() {
        String::new()
    } else {
        format!("{:o}", stat.mode() & 0o7777)
    };
    let line = format!(
        "{} {mode} {}:{} {}.{:09} is {} {:?}",
        content(&real, &stat),
        stat.uid(),
        stat.gid(),
        stat.mtime(),
        stat.mtime_nsec(),
        first.display(),
        xattrs(top, path, &stat),
    );
    all.insert(path.into(), line);
    if stat.is_dir() {
        let mut names: Vec<_> = fs::read_dir(&real)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        for name in names {
            list(top, &path.join(name), all, first_names);
        }
    }
}

fn content(real: &Path, stat: &fs::Metadata) -> String {
    let kind = stat.file_type();
    if kind.is_file() {
        let data = fs::read(real).unwrap();
        let holes = extents(&File::open(real).unwrap(), stat.len()).unwrap();
        let allocated: u64 = holes.iter().map(|extent| extent.end - extent.start).sum();
        let sparse = allocated < stat.len();
        format!(
            "file {} {} sparse {sparse}",
            data.len(),
            blake3::hash(&data)
        )
    } else if kind.is_symlink() {
        format!("link {:?}", fs::read_link(real).unwrap())
    } else if kind.is_char_device() || kind.is_block_device() {
        format!("device {} {:x}", kind.is_block_device(), stat.rdev())
    } else {
        format!("directory {} fifo {}", kind.is_dir(), kind.is_fifo())
    }
}

fn xattrs(top: &Path, path: &Path, stat: &fs::Metadata) -> Vec<(String, String)> {
    let root = crate::root::Root::open(top).unwrap();
    let metadata = if path.as_os_str().is_empty() {
        Metadata::of(&root.top_handle().unwrap()).0
    } else {
        let path = crate::path::RelPath::parse(path.as_os_str().as_bytes()).unwrap();
        Metadata::of(&root.handle(&path).unwrap()).0
    };
    assert_eq!(metadata.uid, stat.uid());
    let shown = |bytes: &[u8]| crate::path::Printable(bytes).to_string();
    metadata
        .xattrs
        .iter()
        .map(|x| (shown(&x.name), shown(&x.value)))
        .collect()
}
