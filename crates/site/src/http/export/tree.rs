// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole trees of an export: what they have of copies under way, and their removal.
//!
//! A path has up to 2,048 names, so walks keep what is to be done in a list and not on the stack: some 100 bytes for
//! each name in the directories on the way down.

use super::{
    meta::{Meta, failed, names, within},
    upload::has_no_locks,
};
use crate::http::audit::Changes;
use dav_server::fs::{DavMetaData, FsError, FsResult};
use longhaul_store::{manifest::MANIFEST, path::RelPath, root::Root};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::time::Duration;

/// Where a file system has no locks, an upload that was not written to for so long is none any more: silent
/// connections end after a minute.
const ORPHAN_AGE: Duration = Duration::from_secs(3600);

/// Whether a copy is under way in a tree: it has files there, which are not to be removed.
///
/// # Errors
/// Not all of it can be looked at, or a directory has more than so many entries.
pub(crate) fn is_busy(root: &Root, top: &RelPath, entries_max: usize) -> FsResult<bool> {
    if !Meta::any(root, Some(top))?.is_dir() {
        return Ok(false);
    }
    let tree = root.subroot(Some(top)).map_err(failed)?;
    let (mut rest, mut is_busy, mut is_large) = (vec![None], false, false);
    while let Some(directory) = rest.pop() {
        let members = members(&tree, directory.as_ref())?;
        is_large |= members.iter().filter(|path| !path.is_internal()).count() > entries_max;
        for path in members {
            if path.is_internal() {
                is_busy |= !is_orphaned(&tree, &path);
            } else if tree.is_dir(&path) {
                rest.push(Some(path));
            }
        }
    }
    match is_large {
        true => Err(FsError::TooLarge),
        false => Ok(is_busy),
    }
}

/// Whether a name of our own may go with the directory that it is in, which is the caller's claim: the record of a
/// copy, or what is left of a PUT or a COPY when the process ended that had it.
pub(crate) fn is_orphaned(root: &Root, path: &RelPath) -> bool {
    path.name() == MANIFEST.as_bytes() || path.name().ends_with(b".put") && is_abandoned(root, path)
}

/// Whether nobody is at it: an upload holds its file, and who fills a directory has claimed it.
fn is_abandoned(root: &Root, path: &RelPath) -> bool {
    match Meta::any(root, Some(path)) {
        Ok(meta) if meta.is_dir() => true,
        Ok(meta) if meta.is_file() => is_unlocked(root, path, &meta),
        _ => false,
    }
}

fn is_unlocked(root: &Root, path: &RelPath, meta: &Meta) -> bool {
    // NFS gives a lock that nobody shares to who may write.
    let open = |access| root.open_with(path, access | OFlags::NONBLOCK, Mode::empty());
    let Ok(file) = open(OFlags::RDWR).or_else(|_| open(OFlags::RDONLY)) else {
        return false;
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(error) if has_no_locks(error) => is_old(meta),
        locked => locked.is_ok(),
    }
}

fn is_old(meta: &Meta) -> bool {
    let age = meta.modified().map(|modified| modified.elapsed());
    age.is_ok_and(|age| age.is_ok_and(|age| age > ORPHAN_AGE))
}

/// Removes a tree, or what is no directory. Links in it are removed, not followed.
///
/// # Errors
/// Of the first thing that can't be removed; the rest stays.
pub(crate) fn remove(root: &Root, top: &RelPath, changes: &Changes) -> FsResult<()> {
    if !Meta::any(root, Some(top))?.is_dir() {
        return remove_file(root, top, changes);
    }
    let tree = root.subroot(Some(top)).map_err(failed)?;
    let mut rest: Vec<_> = members(&tree, None)?
        .into_iter()
        .map(|path| (path, false))
        .collect();
    while let Some((path, is_empty)) = rest.pop() {
        if is_empty {
            tree.remove_dir(&path).map_err(failed)?;
            changes.count_entry();
        } else if tree.is_dir(&path) {
            let members = members(&tree, Some(&path))?;
            rest.push((path, true));
            rest.extend(members.into_iter().map(|path| (path, false)));
        } else {
            remove_file(&tree, &path, changes)?;
        }
    }
    root.remove_dir(top).map_err(failed)?;
    changes.count_entry();
    Ok(())
}

/// Removes what is no directory.
pub(crate) fn remove_file(root: &Root, path: &RelPath, changes: &Changes) -> FsResult<()> {
    let meta = Meta::any(root, Some(path))?;
    root.remove(path).map_err(failed)?;
    changes.count_entry();
    changes.count_bytes(meta.len());
    Ok(())
}

/// The paths of all that is in a directory.
fn members(tree: &Root, directory: Option<&RelPath>) -> FsResult<Vec<RelPath>> {
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
    fn nobody_is_at_an_upload_that_is_not_locked_or_old() {
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
        // As far as it has no locks.
        let path = RelPath::parse(b".longhaul-1.put").unwrap();
        let is_old = || is_old(&Meta::any(&root, Some(&path)).unwrap());
        assert!(!is_old());
        let ago = FileTimes::new().set_modified(SystemTime::now() - 2 * ORPHAN_AGE);
        file.set_times(ago).unwrap();
        assert!(is_old());
    }
}
