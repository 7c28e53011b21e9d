// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trees to copy, and comparisons of trees.

use super::BLOCK;
use longhaul_store::{
    blocks::{Blocks, FileHash},
    manifest::Manifest,
    vfs::Dir,
};
pub(crate) use longhaul_testnet::payload::bytes;
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};
use std::{
    collections::BTreeMap,
    fs::{self, File, FileTimes, Permissions},
    io::Read,
    os::{
        fd::AsFd,
        unix::{
            ffi::OsStrExt,
            fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, chown, symlink},
        },
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Creates files of sizes around every boundary, many small files, links of both kinds, a fifo, sparse files, attributes,
/// owners, modes and times, and one large file of a number of blocks and some bytes.
pub(crate) fn make(top: &Path, large_blocks: u64) {
    fs::create_dir_all(top.join("sizes")).unwrap();
    fs::create_dir_all(top.join("many/deep/er")).unwrap();
    fs::create_dir(top.join("closed")).unwrap();
    let sizes = [0, 1, 1024, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17];
    for (seed, size) in (1..).zip(sizes) {
        fs::write(top.join(format!("sizes/{size}")), bytes(seed, size)).unwrap();
    }
    for number in 0..300 {
        let path = top.join(format!("many/deep/er/{number}"));
        fs::write(path, bytes(1000 + number, number * 137)).unwrap();
    }
    fs::write(top.join("large"), bytes(7, large_blocks * BLOCK + 4711)).unwrap();
    fs::write(top.join("closed/secret"), "secret").unwrap();
    fs::hard_link(top.join("sizes/1024"), top.join("many/again")).unwrap();
    symlink("../sizes/1", top.join("closed/link")).unwrap();
    symlink("/nowhere", top.join("dangling")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        top.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    let sparse = File::create(top.join("sparse")).unwrap();
    sparse.set_len(10 * BLOCK).unwrap();
    sparse.write_all_at(b"in the middle", 5 * BLOCK).unwrap();
    let hole = File::create(top.join("hole")).unwrap();
    hole.set_len(100_000).unwrap();
    let value = XattrFlags::empty();
    lsetxattr(top.join("large"), "user.origin", b"telescope", value).unwrap();
    let other_owners = (0..300).step_by(3);
    let other_owners = other_owners.map(|number| format!("many/deep/er/{number}"));
    for path in other_owners.chain(["large".to_owned()]) {
        let _only_root_may = chown(top.join(path), Some(1234), Some(1234));
    }
    let mode = |path: &str, mode| {
        fs::set_permissions(top.join(path), Permissions::from_mode(mode)).unwrap();
    };
    mode("sizes/1", 0o4711);
    mode("closed/secret", 0o400);
    mode("closed", 0o500);
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    for path in ["sizes/0", "large", "many/deep"] {
        let times = FileTimes::new().set_modified(then);
        File::open(top.join(path))
            .unwrap()
            .set_times(times)
            .unwrap();
    }
}

/// Describes a tree by path, without the contents of files. Internal files are left out.
pub(crate) fn listing(top: &Path) -> BTreeMap<PathBuf, String> {
    let all = walk(top).into_iter().filter(|path| !is_internal(path));
    all.map(|path| {
        let description = describe(&top.join(&path));
        (path, description)
    })
    .collect()
}

fn describe(path: &Path) -> String {
    let meta = fs::symlink_metadata(path).unwrap();
    let kind = match meta.file_type() {
        kind if kind.is_symlink() => format!("-> {:?}", fs::read_link(path).unwrap()),
        kind if kind.is_file() => format!("{} bytes, {} links", meta.len(), meta.nlink()),
        kind if kind.is_fifo() => "fifo".to_owned(),
        kind => format!("{kind:?}"),
    };
    let (mode, owner) = (meta.mode(), (meta.uid(), meta.gid()));
    let time = (meta.mtime(), meta.mtime_nsec());
    format!("{kind} {mode:o} {time:?} {owner:?} {:?}", attributes(path))
}

fn attributes(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 4096];
    let length = llistxattr(path, &mut names[..]).unwrap();
    let names = names[..length].split(|byte| *byte == 0);
    let names = names.filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 4096];
        let length = lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(length);
        (String::from_utf8_lossy(name).into_owned(), value)
    };
    names.map(value).collect()
}

/// Asserts that two trees are equal.
pub(crate) fn assert_same(from: &Path, to: &Path, context: &str) {
    let wanted = listing(from);
    let got = listing(to);
    let differs = |path: &&PathBuf| wanted.get(*path) != got.get(*path);
    if let Some(path) = wanted.keys().chain(got.keys()).find(differs) {
        let (wanted, got) = (wanted.get(path), got.get(path));
        panic!("{context}: {}: {got:?}, not {wanted:?}", path.display());
    }
    for path in wanted.keys().filter(|path| from.join(path).is_file()) {
        let same = from.join(path).is_symlink() || same_bytes(&from.join(path), &to.join(path));
        assert!(same, "{context}: {}: other bytes", path.display());
    }
    let blocks = fs::metadata(to.join("sparse")).map_or(0, |meta| meta.blocks());
    assert!(
        blocks * 512 <= 2 * BLOCK,
        "{context}: a sparse file is full"
    );
}

fn same_bytes(one: &Path, other: &Path) -> bool {
    let (mut one, mut other) = (File::open(one).unwrap(), File::open(other).unwrap());
    let (mut here, mut there) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let read = one.read(&mut here).unwrap();
        if read == 0 {
            return other.read(&mut there).unwrap() == 0;
        }
        if other.read_exact(&mut there[..read]).is_err() || here[..read] != there[..read] {
            return false;
        }
    }
}

/// Returns the BLAKE3 hash of every file with a single name, by path.
pub(crate) fn hashes(top: &Path) -> BTreeMap<PathBuf, FileHash> {
    let files = walk(top).into_iter().filter(|path| {
        let meta = fs::symlink_metadata(top.join(path)).unwrap();
        meta.is_file() && meta.nlink() == 1 && !is_internal(path)
    });
    let hash = |path: &Path| {
        let bytes = fs::read(top.join(path)).unwrap();
        let blocks = Blocks::new(bytes.len() as u64);
        let each = (0..).zip(bytes.chunks(BLOCK as usize));
        let each: Vec<_> = each
            .map(|(n, block)| blocks.hash(n, block).unwrap())
            .collect();
        blocks.file_hash(&each).unwrap()
    };
    files
        .map(|path| {
            let hash = hash(&path);
            (path, hash)
        })
        .collect()
}

/// Returns the files whose hash in the manifest differs or is missing.
pub(crate) fn not_in_manifest(top: &Path, hashes: &BTreeMap<PathBuf, FileHash>) -> Vec<PathBuf> {
    let dir = Dir::new(File::open(top).unwrap().as_fd()).unwrap();
    let manifest = Manifest::load(&dir).unwrap();
    let known = |path: &Path| Some(manifest.lookup(path.as_os_str().as_bytes())?.hash);
    let unknown = hashes
        .iter()
        .filter(|(path, hash)| known(path) != Some(**hash));
    unknown.map(|(path, _)| path.clone()).collect()
}

/// Returns internal files that a copy has left, other than the manifest.
pub(crate) fn remaining_internal_files(top: &Path) -> Vec<PathBuf> {
    let manifest = Path::new(longhaul_store::manifest::MANIFEST);
    let all = walk(top).into_iter();
    all.filter(|path| is_internal(path) && path != manifest)
        .collect()
}

fn is_internal(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_string_lossy();
    name.starts_with(longhaul_store::part::INTERNAL_PREFIX)
}

/// Returns all paths below a directory. Entries that are removed meanwhile are left out.
pub(crate) fn walk(top: &Path) -> Vec<PathBuf> {
    let (mut found, mut directories) = (Vec::new(), vec![top.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.is_symlink() {
                directories.push(path.clone());
            }
            found.push(path.strip_prefix(top).unwrap().to_owned());
        }
    }
    found
}
