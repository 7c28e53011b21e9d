// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole trees of an export: detection of copies in progress, and removal.
//!
//! A path has up to 2,048 names, so walks keep pending entries in a list instead of recursing. The list takes about 100
//! bytes for each name in the directories on the path.

use super::{
    meta::{Meta, from_failure, names, within},
    upload::lacks_locks,
};
use crate::http::audit::ChangeCounter;
use dav_server::fs::{DavMetaData, FsResult};
use longhaul_store::{
    manifest::MANIFEST,
    path::{RelPath, is_internal_name},
    root::Root,
};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::time::Duration;

/// Age at which an upload counts as abandoned on a file system without locks. Silent connections end after a minute.
const ORPHAN_AGE: Duration = Duration::from_secs(3600);

/// Returns whether a copy into a tree is in progress. Then the copy's files in the tree must not be removed.
///
/// # Errors
/// A part of the tree can't be read, or a directory has too many entries.
pub(crate) fn has_active_copy(root: &Root, top: &RelPath) -> FsResult<bool> {
    if !Meta::stat(root, Some(top))?.is_dir() {
        return Ok(false);
    }
    let tree = root.subroot(Some(top)).map_err(from_failure)?;
    let (mut pending, mut has_active_copy) = (vec![None], false);
    while let Some(directory) = pending.pop() {
        for name in names(&tree, directory.as_ref())?.iter() {
            let path = within(directory.as_ref(), name)?;
            if path.is_internal() {
                has_active_copy |= !is_orphaned(&tree, &path);
            } else if tree.is_dir(&path) {
                pending.push(Some(path));
            }
        }
    }
    Ok(has_active_copy)
}

/// Returns whether an internal file may be removed with its directory, which the caller has claimed. This holds for
/// the manifest of a copy, and for the file of a PUT or a COPY whose process has ended.
pub(crate) fn is_orphaned(root: &Root, path: &RelPath) -> bool {
    path.name().starts_with(MANIFEST.as_bytes())
        || path.name().ends_with(b".put") && is_abandoned(root, path)
}

/// Removes files of PUTs whose process ended over an hour ago from the top of an export. In other directories, they go
/// with the directory.
pub(crate) fn remove_orphaned_uploads(root: &Root) {
    let Ok(names) = names(root, None) else {
        return;
    };
    let uploads = names
        .iter()
        .filter(|name| is_internal_name(name) && name.ends_with(b".put"));
    for path in uploads.filter_map(|name| RelPath::parse(name).ok()) {
        let is_old = Meta::stat(root, Some(&path)).is_ok_and(|meta| is_old(&meta));
        if is_old && is_orphaned(root, &path) {
            // Requests report what they cannot write.
            let _ = root.remove(&path);
        }
    }
}

/// Returns whether no process uses an internal file or directory. An upload holds a lock on its file. A request that
/// fills a directory would have claimed it, so a directory is in use by none.
fn is_abandoned(root: &Root, path: &RelPath) -> bool {
    match Meta::stat(root, Some(path)) {
        Ok(meta) if meta.is_dir() => true,
        Ok(meta) if meta.is_file() => is_unlocked(root, path, &meta),
        _ => false,
    }
}

fn is_unlocked(root: &Root, path: &RelPath, meta: &Meta) -> bool {
    // On NFS an exclusive lock needs a file that is open for writing.
    let open = |access| root.open_with(path, access | OFlags::NONBLOCK, Mode::empty());
    let Ok(file) = open(OFlags::RDWR).or_else(|_| open(OFlags::RDONLY)) else {
        return false;
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(error) if lacks_locks(error) => is_old(meta),
        locked => locked.is_ok(),
    }
}

fn is_old(meta: &Meta) -> bool {
    let age = meta.modified().map(|modified| modified.elapsed());
    age.is_ok_and(|age| age.is_ok_and(|age| age > ORPHAN_AGE))
}

/// Removes a tree or a single file. Symbolic links are removed, not followed.
///
/// # Errors
/// The first entry that can't be removed ends the removal. The others stay.
pub(crate) fn remove(root: &Root, top: &RelPath, changes: &ChangeCounter) -> FsResult<()> {
    if !Meta::stat(root, Some(top))?.is_dir() {
        return remove_file(root, top, changes);
    }
    let tree = root.subroot(Some(top)).map_err(from_failure)?;
    let mut pending: Vec<_> = children(&tree, None)?
        .into_iter()
        .map(|path| (path, false))
        .collect();
    while let Some((path, is_empty)) = pending.pop() {
        if is_empty {
            tree.remove_dir(&path).map_err(from_failure)?;
            changes.count_entry();
        } else if tree.is_dir(&path) {
            let children = children(&tree, Some(&path))?;
            pending.push((path, true));
            pending.extend(children.into_iter().map(|path| (path, false)));
        } else {
            remove_file(&tree, &path, changes)?;
        }
    }
    root.remove_dir(top).map_err(from_failure)?;
    changes.count_entry();
    Ok(())
}

/// Removes an entry that is not a directory.
pub(crate) fn remove_file(root: &Root, path: &RelPath, changes: &ChangeCounter) -> FsResult<()> {
    let meta = Meta::stat(root, Some(path))?;
    root.remove(path).map_err(from_failure)?;
    changes.count_entry();
    changes.count_bytes(meta.len());
    Ok(())
}

/// Returns the paths of all entries in a directory.
fn children(tree: &Root, directory: Option<&RelPath>) -> FsResult<Vec<RelPath>> {
    let names = names(tree, directory)?;
    names.iter().map(|name| within(directory, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::{File, FileTimes},
        time::SystemTime,
    };

    #[test]
    fn old_uploads_go_from_the_top_of_an_export() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        for (name, hours) in [
            (".longhaul-1.put", 2),
            (".longhaul-2.put", 0),
            (MANIFEST, 2),
            ("mine.put", 2),
        ] {
            let file = File::create(folder.path().join(name)).unwrap();
            let time = SystemTime::now() - hours * ORPHAN_AGE;
            file.set_modified(time).unwrap();
        }
        remove_orphaned_uploads(&root);
        let exists = |name: &str| folder.path().join(name).exists();
        assert!(!exists(".longhaul-1.put") && exists(".longhaul-2.put"));
        assert!(exists(MANIFEST) && exists("mine.put"));
    }

    #[test]
    fn unlocked_or_old_uploads_are_orphaned() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let orphaned = |name: &str| {
            let path = RelPath::parse(name.as_bytes()).unwrap();
            is_orphaned(&root, &path)
        };
        let file = File::create(folder.path().join(".longhaul-1.put")).unwrap();
        assert!(orphaned(".longhaul-1.put") && !orphaned(".longhaul-2.put"));
        flock(&file, FlockOperation::LockShared).unwrap();
        assert!(!orphaned(".longhaul-1.put"));
        // On a file system without locks the age decides.
        let path = RelPath::parse(b".longhaul-1.put").unwrap();
        let is_old = || is_old(&Meta::stat(&root, Some(&path)).unwrap());
        assert!(!is_old());
        let old_times = FileTimes::new().set_modified(SystemTime::now() - 2 * ORPHAN_AGE);
        file.set_times(old_times).unwrap();
        assert!(is_old());
    }
}
