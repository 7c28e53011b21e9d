// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole trees of an export: what they have of copies under way, and their removal.
//!
//! A path has up to 2,048 names, so walks keep what is to be done in a list and not on the stack: some 100 bytes for
//! each name in the directories on the way down.

use super::meta::{Meta, failed, names, within};
use dav_server::fs::{DavMetaData, FsResult};
use longhaul_store::{manifest::MANIFEST, path::RelPath, root::Root};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};

/// Whether a copy is under way in a tree: it has files there, which are not to be removed.
///
/// # Errors
/// Not all of it can be looked at.
pub(crate) fn is_busy(root: &Root, top: &RelPath) -> FsResult<bool> {
    if !Meta::any(root, Some(top))?.is_dir() {
        return Ok(false);
    }
    let tree = root.below(Some(top)).map_err(failed)?;
    let mut rest = vec![None];
    while let Some(directory) = rest.pop() {
        for path in members(&tree, directory.as_ref())? {
            if path.is_own() {
                match is_leftover(&tree, &path) {
                    true => continue,
                    false => return Ok(true),
                }
            }
            if tree.is_dir(&path) {
                rest.push(Some(path));
            }
        }
    }
    Ok(false)
}

/// Whether a name of our own may go with the directory that it is in: the record of a copy, or what is left of a file that was
/// put when the process ended that had it.
pub(crate) fn is_leftover(root: &Root, path: &RelPath) -> bool {
    path.name() == MANIFEST.as_bytes() || path.name().ends_with(b".put") && is_abandoned(root, path)
}

/// Whether it is a file that nobody is at: an upload holds its own.
fn is_abandoned(root: &Root, path: &RelPath) -> bool {
    let is_file = Meta::any(root, Some(path)).is_ok_and(|meta| meta.is_file());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let opened = is_file.then(|| root.open_with(path, flags, Mode::empty()));
    let free = |file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    opened.is_some_and(|opened| opened.is_ok_and(free))
}

/// Removes a tree, or what is no directory. Links in it are removed, not followed.
///
/// # Errors
/// Of the first thing that can't be removed; the rest stays.
pub(crate) fn remove(root: &Root, top: &RelPath) -> FsResult<()> {
    if !Meta::any(root, Some(top))?.is_dir() {
        return root.remove(top).map_err(failed);
    }
    let tree = root.below(Some(top)).map_err(failed)?;
    let mut rest: Vec<_> = members(&tree, None)?
        .into_iter()
        .map(|path| (path, false))
        .collect();
    while let Some((path, is_empty)) = rest.pop() {
        if is_empty {
            tree.remove_dir(&path)
        } else if tree.is_dir(&path) {
            let members = members(&tree, Some(&path))?;
            rest.push((path, true));
            rest.extend(members.into_iter().map(|path| (path, false)));
            Ok(())
        } else {
            tree.remove(&path)
        }
        .map_err(failed)?;
    }
    root.remove_dir(top).map_err(failed)
}

/// The paths of all that is in a directory.
fn members(tree: &Root, directory: Option<&RelPath>) -> FsResult<Vec<RelPath>> {
    let names = names(tree, directory)?;
    names.iter().map(|name| within(directory, name)).collect()
}
