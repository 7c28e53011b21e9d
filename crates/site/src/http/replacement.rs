// SPDX-License-Identifier: MIT OR Apache-2.0
//! DELETE, COPY and MOVE: checked before any change, with a destination that is replaced in one step once its new
//! contents are complete.
//!
//! RFC 4918 §9.8.4 has a server delete the destination first. If the copy then fails, both are lost. Here a COPY is
//! made under an internal name beside the destination, which it then replaces. A MOVE replaces the destination
//! directly.

use super::{
    audit::ChangeCounter,
    dav_request::DavRequest,
    export::{
        files::Files,
        meta::{Meta, internal_name, optional},
        tree,
    },
    request::target::Depth,
    response::{Outcome, Rejection, empty_response},
};
use longhaul_store::{
    path::RelPath,
    root::{Root, lacks_rename_flags},
};
use std::{iter, sync::Arc};
use tracing::warn;

const NOT_FOUND: Rejection = Rejection(404, "not found");

/// Removes a file or a directory with all that is in it.
pub(super) fn delete(request: &DavRequest) -> Outcome {
    let (files, path) = (&request.files, request.path().ok_or(NOT_FOUND)?);
    // Other requests may make changes until the path is claimed.
    let _claim = request.claim(&[(Some(path), false)])?;
    request.check()?;
    let meta = request.meta()?;
    check_movable(files, path)?;
    if tree::has_active_copy(&files.root, path)? {
        return Err(tree::ACTIVE_COPY);
    }
    // It could be emptied, but not removed.
    if files.root.is_mount_point(path)? {
        return Err(Rejection(409, "it is a mount point"));
    }
    let remove = || tree::remove(&files.root, path, &files.changes);
    let failures = if meta.is_dir() {
        remove()?
    } else {
        request.step(remove)?
    };
    if failures.is_empty() {
        discard_locks(files, Some(path), None);
    }
    Ok(failures.response(&request.url(), 204))
}

/// Copies or moves a file or a directory.
pub(super) fn copy_or_move(request: &DavRequest) -> Outcome {
    let (files, moves) = (&request.files, request.method() == "MOVE");
    let paths = request.path().zip(request.target.destination.as_ref());
    let (source, destination) = paths.ok_or(NOT_FOUND)?;
    let _claim = request.claim(&[(Some(source), !moves), (Some(destination), false)])?;
    request.check()?;
    let replaces = check_paths(request, source, destination)?;
    let replacement = |new: &RelPath| Replacement {
        root: files.root.clone(),
        changes: files.changes.clone(),
        new: new.clone(),
        destination: destination.clone(),
        replaces,
    };
    let response = if moves {
        let status = replacement(source).install(request)?;
        files.changes.count_entry();
        empty_response(status)
    } else if replaces {
        replacement(&internal_name(destination, "put")?).copy(request, source)?
    } else {
        let paths = (source, destination);
        let failures = tree::copy(&files.root, paths, request.is_deep(), &files.changes)?;
        failures.response(&request.url(), 201)
    };
    if [201, 204].contains(&response.status().as_u16()) {
        discard_locks(files, Some(source).filter(|_| moves), Some(destination));
    }
    Ok(response)
}

/// Checks source and destination of a COPY or a MOVE, and returns whether the destination exists.
fn check_paths(request: &DavRequest, source: &RelPath, destination: &RelPath) -> Outcome<bool> {
    let (files, root, moves) = (
        &request.files,
        &request.files.root,
        request.method() == "MOVE",
    );
    let (meta, depth) = (request.meta()?, request.target.depth);
    if depth == Some(Depth::One) || moves && !request.is_deep() {
        return Err(Rejection(400, "want a Depth of infinity"));
    }
    if moves {
        check_movable(files, source)?;
    }
    match tree::has_active_copy(root, source) {
        Ok(true) if moves => return Err(tree::ACTIVE_COPY),
        // A directory that is too large to list.
        Err(rejection) if !moves && rejection.0 == 507 => {
            return Err(rejection);
        }
        // An unreadable tree can still be moved, and a copy reports what it left out.
        _ => {}
    }
    let existing = Meta::replaceable(root, destination)?;
    let is_in_other = is_above(root, &meta, destination)?
        || existing.map_or(Ok(false), |existing| is_above(root, &existing, source))?;
    if is_in_other {
        return Err(Rejection(
            403,
            "one of source and destination is in the other",
        ));
    }
    let parent = Meta::visible(root, destination.parent().as_ref());
    if !parent.is_ok_and(|parent| parent.is_dir()) {
        return Err(Rejection(409, "the parent directory does not exist"));
    }
    if existing.is_some() {
        if !request.target.overwrites {
            return Err(Rejection(412, "the destination exists"));
        }
        check_movable(files, destination)?;
        if tree::has_active_copy(root, destination)? {
            return Err(tree::ACTIVE_COPY);
        }
    }
    Ok(existing.is_some())
}

fn check_movable(files: &Files, path: &RelPath) -> Outcome<()> {
    let access = &files.access;
    if access.contains_export(&access.directory.join(path.as_path())) {
        Err(Rejection(403, "it contains another export"))
    } else {
        Ok(())
    }
}

/// Returns whether a directory is at a path or above it. Compares inodes: a mount may give a directory two names, and
/// a file system may ignore case.
fn is_above(root: &Root, directory: &Meta, path: &RelPath) -> Outcome<bool> {
    let parents = iter::successors(Some(path.clone()), RelPath::parent).map(Some);
    for at in parents.chain([None]).filter(|_| directory.is_dir()) {
        let meta = optional(Meta::stat(root, at.as_ref()))?;
        if meta.is_some_and(|meta| meta.identity() == directory.identity()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Discards the locks of a path that was removed or moved away, and those below a destination. The destination keeps
/// its own lock, which belongs to the name.
fn discard_locks(files: &Files, gone: Option<&RelPath>, destination: Option<&RelPath>) {
    for (path, itself) in [(gone, true), (destination, false)] {
        if path.is_some() {
            // If this fails, the locks expire.
            let _ = files.locks.discard(&files.lock_path(path), itself);
        }
    }
}

/// New contents of a destination.
struct Replacement {
    root: Arc<Root>,
    changes: ChangeCounter,
    /// Path of the new contents until then.
    new: RelPath,
    destination: RelPath,
    /// Whether there was a destination when the request was checked.
    replaces: bool,
}

impl Replacement {
    /// Makes a copy, which replaces the destination if it is complete.
    fn copy(self, request: &DavRequest, source: &RelPath) -> Outcome {
        let paths = (source, &self.new);
        let copied = tree::copy(&self.root, paths, request.is_deep(), &self.changes);
        let installed = copied.and_then(|failures| match failures {
            failures if failures.is_empty() => self.install(request).map(|_| failures),
            failures => Ok(failures),
        });
        if !installed.as_ref().is_ok_and(tree::Failures::is_empty) {
            self.discard(&self.new, &ChangeCounter::default());
        }
        Ok(installed?.response(&request.url(), 204))
    }

    /// Gives the new contents their name. Returns the status of the response.
    fn install(&self, request: &DavRequest) -> Outcome<u16> {
        let (status, old) = request.step(|| self.rename())?;
        if let Some(old) = old {
            self.discard(&old, &self.changes);
        }
        Ok(status)
    }

    /// Returns the status of the response, and the path of old contents that are still to be removed.
    fn rename(&self) -> Outcome<(u16, Option<RelPath>)> {
        let new = Meta::stat(&self.root, Some(&self.new))?;
        let old = optional(Meta::stat(&self.root, Some(&self.destination)))?;
        let Some(old) = old.filter(|_| self.replaces) else {
            // Fails if the destination was created after the check.
            self.root.rename_to_new(&self.new, &self.destination)?;
            return Ok((201, None));
        };
        if new.is_dir() || old.is_dir() {
            return Ok((204, Some(self.exchange()?)));
        }
        if new.identity() == old.identity() {
            self.rename_one_file()?;
        } else {
            self.root.rename(&self.new, &self.destination)?;
            self.changes.count_entry();
            self.changes.count_bytes(old.len());
        }
        Ok((204, None))
    }

    /// Renames a file that has both names. They are two hard links, between which rename(2) does nothing, or one name
    /// where the file system ignores case. So the source's name is moved aside first, to a name that is never removed
    /// as abandoned.
    fn rename_one_file(&self) -> Outcome<()> {
        let aside = internal_name(&self.destination, "replaced")?;
        self.root.rename_to_new(&self.new, &aside)?;
        if optional(Meta::stat(&self.root, Some(&self.destination)))?.is_some() {
            self.root.remove(&aside)?;
        } else if let Err(error) = self.root.rename_to_new(&aside, &self.destination) {
            self.root.rename_to_new(&aside, &self.new)?;
            return Err(error.into());
        }
        Ok(())
    }

    /// Exchanges the new and the old contents, since rename(2) can't replace a directory. Returns the path of the old
    /// contents.
    fn exchange(&self) -> Outcome<RelPath> {
        match self.root.exchange(&self.new, &self.destination) {
            Err(failure) if failure.errno().is_some_and(lacks_rename_flags) => {
                self.replace_without_exchange()
            }
            exchanged => exchanged.map(|()| self.hide_old()).map_err(Into::into),
        }
    }

    /// Moves the old contents from the source's name to an internal name, if that is possible, and returns it.
    fn hide_old(&self) -> RelPath {
        let hidden = internal_name(&self.new, "put").ok();
        let hidden = hidden.filter(|hidden| {
            !self.new.is_internal() && self.root.rename_to_new(&self.new, hidden).is_ok()
        });
        hidden.unwrap_or_else(|| self.new.clone())
    }

    /// Replaces the destination on a file system that can't exchange names: the old contents are renamed first, to a
    /// name that is never removed as abandoned. If the process ends in between, the operator still finds them.
    fn replace_without_exchange(&self) -> Outcome<RelPath> {
        let aside = internal_name(&self.destination, "replaced")?;
        self.root.rename_to_new(&self.destination, &aside)?;
        if let Err(error) = self.root.rename_to_new(&self.new, &self.destination) {
            self.root.rename_to_new(&aside, &self.destination)?;
            return Err(error.into());
        }
        Ok(aside)
    }

    /// Removes old contents. A failure is only logged, since the request has its result already.
    fn discard(&self, path: &RelPath, changes: &ChangeCounter) {
        let removed = tree::remove(&self.root, path, changes);
        let is_gone = removed.is_ok_and(|failures| failures.is_empty());
        if !is_gone && Meta::stat(&self.root, Some(path)).is_ok() {
            warn!("{path} is left, and can't be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn replacement(folder: &std::path::Path, names: [&str; 2], replaces: bool) -> Replacement {
        let [new, destination] = names.map(|name| RelPath::parse(name.as_bytes()).unwrap());
        Replacement {
            root: Arc::new(Root::open(folder).unwrap()),
            changes: ChangeCounter::default(),
            new,
            destination,
            replaces,
        }
    }

    #[test]
    fn a_file_with_both_names_keeps_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("new"), "contents").unwrap();
        fs::hard_link(at("new"), at("old")).unwrap();
        let outcome = replacement(folder.path(), ["new", "old"], true).rename();
        assert_eq!(outcome, Ok((204, None)));
        assert_eq!(fs::read_to_string(at("old")).unwrap(), "contents");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // One name in two spellings, as where the file system ignores case.
        let outcome = replacement(folder.path(), ["old", "old"], true).rename_one_file();
        assert_eq!(outcome, Ok(()));
        assert_eq!(fs::read_to_string(at("old")).unwrap(), "contents");
    }

    #[test]
    fn a_destination_that_appears_late_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("new"), "moved").unwrap();
        fs::write(at("old"), "uploaded").unwrap();
        let refused = replacement(folder.path(), ["new", "old"], false).rename();
        assert_eq!(refused.unwrap_err().0, 412);
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!([read("new"), read("old")], ["moved", "uploaded"]);
    }

    /// NFS can't exchange names.
    #[test]
    fn replaces_a_directory_without_exchange() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, contents) in [("new", "new"), ("old", "old")] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("file"), contents).unwrap();
        }
        let replacement = replacement(folder.path(), ["new", "old"], true);
        let aside = replacement.replace_without_exchange().unwrap();
        let read = |name: &str| fs::read_to_string(at(name).join("file")).unwrap();
        assert_eq!((read("old").as_str(), at("new").exists()), ("new", false));
        assert_eq!(read(&aside.to_string()), "old");
        assert!(!tree::is_orphaned(&replacement.root, &aside));
        // The new contents are missing, so the old ones come back.
        assert!(replacement.replace_without_exchange().is_err());
        assert_eq!(read("old"), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
