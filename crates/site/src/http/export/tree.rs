// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole trees of an export: detection of copies in progress, copying, and removal.
//!
//! A path has up to 2,048 names, so walks keep pending directories in a list instead of recursing. The list takes about
//! 100 bytes for each.

use super::{
    attributes,
    meta::{Meta, names, within},
    upload::{Upload, lacks_locks},
};
use crate::http::{
    audit::ChangeCounter,
    request::target::escape_path,
    response::{
        HttpResponse, Outcome, Rejection, empty_response, multistatus_response, response_element,
        status_element,
    },
};
use jiff::{SignedDuration, Timestamp};
use longhaul_store::{
    manifest::MANIFEST,
    path::{RelPath, is_internal_name},
    root::{Failure, Root},
};
use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock},
    io::Errno,
};
use std::sync::Arc;

/// Age at which an upload counts as abandoned on a file system without locks. Silent connections end after a minute.
const ORPHAN_AGE: SignedDuration = SignedDuration::from_hours(1);

/// Most failures that a response lists. Each costs some 200 bytes.
const FAILURES_MAX: usize = 1000;

pub(crate) const ACTIVE_COPY: Rejection =
    Rejection(423, "a copy into it is in progress, or was interrupted");

/// Returns whether a copy into a tree is in progress. Then the copy's files in the tree must not be removed.
///
/// # Errors
/// A part of the tree can't be read, or a directory has too many entries.
pub(crate) fn has_active_copy(root: &Root, top: &RelPath) -> Outcome<bool> {
    if !Meta::stat(root, Some(top))?.is_dir() {
        return Ok(false);
    }
    let tree = root.subroot(Some(top))?;
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
    let age = meta
        .modified()
        .map(|modified| Timestamp::now().duration_since(modified));
    age.is_some_and(|age| age > ORPHAN_AGE)
}

/// Entries of a tree at which an operation has failed, relative to the top. `None` is the top.
#[derive(Debug, Default)]
pub(crate) struct Failures(Vec<(Option<RelPath>, Rejection)>);

impl Failures {
    /// Adds a failure. One more than a response lists is kept.
    fn add(&mut self, path: Option<RelPath>, rejection: Rejection) {
        if self.0.len() <= FAILURES_MAX {
            self.0.push((path, rejection));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a directory or an entry of it has failed. If there are too many failures to list, one may have.
    fn are_in(&self, directory: Option<&RelPath>) -> bool {
        let is_in = |(path, _): &(Option<RelPath>, Rejection)| match (path, directory) {
            (Some(path), Some(directory)) => {
                path == directory || path.strip_prefix(directory).is_some()
            }
            (_, directory) => directory.is_none(),
        };
        self.0.len() > FAILURES_MAX || self.0.iter().any(is_in)
    }

    /// Returns the response to a request for the tree at a URL: the status, or what has failed (RFC 4918 §13).
    pub(crate) fn response(self, url: &str, status: u16) -> HttpResponse {
        match &self.0[..] {
            [] => return empty_response(status),
            [(None, rejection)] => return (*rejection).into(),
            listed if listed.len() > FAILURES_MAX => {
                return Rejection(500, "there are too many failures to list").into();
            }
            _ => {}
        }
        let top = url.trim_end_matches('/').to_owned();
        multistatus_response(self.0.into_iter().map(move |(path, Rejection(status, _))| {
            let below = path.as_ref().map_or(&b""[..], RelPath::as_bytes);
            let url = format!("{top}/{}", escape_path(below));
            Ok(response_element(&url, &status_element(status)))
        }))
    }
}

/// Copies a file, or a directory and, with `is_deep`, all that is in it. Special files are failures.
///
/// # Errors
/// The file, or the directory without its contents, can't be copied.
pub(crate) fn copy(
    root: &Arc<Root>,
    (from, to): (&RelPath, &RelPath),
    is_deep: bool,
    changes: &ChangeCounter,
) -> Outcome<Failures> {
    let mut failures = Failures::default();
    let top = copy_entry((root, from), (root, to), changes);
    if !top.map_err(Rejection::of_new_name)? || !is_deep {
        return Ok(failures);
    }
    let (source, copy) = (root.subroot(Some(from))?, Arc::new(root.subroot(Some(to))?));
    let copy_entry = |path: &RelPath| {
        // Clients could not name a path that is too long with the new top.
        within(Some(to), path.as_bytes())?;
        copy_entry((&source, path), (&copy, path), changes)
    };
    let mut pending = vec![None];
    while let Some(directory) = pending.pop() {
        let mut copy_contents = || -> Outcome<()> {
            let names = names(&source, directory.as_ref())?;
            for name in names.iter().filter(|name| !is_internal_name(name)) {
                let path = within(directory.as_ref(), name)?;
                match copy_entry(&path) {
                    Ok(true) => pending.push(Some(path)),
                    Ok(false) => {}
                    Err(rejection) => failures.add(Some(path), rejection),
                }
            }
            Ok(())
        };
        if let Err(rejection) = copy_contents() {
            failures.add(directory, rejection);
        }
    }
    Ok(failures)
}

/// Copies a file, or a directory without its contents. Returns whether it is a directory.
fn copy_entry(
    (source, from): (&Root, &RelPath),
    (copy, to): (&Arc<Root>, &RelPath),
    changes: &ChangeCounter,
) -> Outcome<bool> {
    match Meta::stat(source, Some(from))? {
        meta if meta.is_dir() => {
            copy.make_dir_with_umask(to)?;
            changes.count_entry();
            // Its owner may always write, because it is still to be filled.
            attributes::copy(source.metadata(from)?, copy.open_dir(Some(to))?, 0o700)?;
            Ok(true)
        }
        meta if meta.is_file() => {
            Upload::begin(copy, to, true, changes)?.copy_from(source, from)?;
            Ok(false)
        }
        _ => Err(Rejection(404, "it is a symbolic link or a device")),
    }
}

/// Removes a tree or a single file. Symbolic links are removed, not followed. A directory with an entry that can't be
/// removed stays.
///
/// # Errors
/// The file can't be removed.
pub(crate) fn remove(root: &Root, top: &RelPath, changes: &ChangeCounter) -> Outcome<Failures> {
    if !Meta::stat(root, Some(top))?.is_dir() {
        return remove_file(root, top, changes).map(|()| Failures::default());
    }
    let mut removal = Removal {
        tree: root.subroot(Some(top))?,
        all: top.is_internal(),
        changes,
        pending: vec![(None, false)],
        failures: Failures::default(),
    };
    while let Some((directory, is_emptied)) = removal.pending.pop() {
        let done = match &directory {
            directory if !is_emptied => removal.remove_contents(directory.as_ref()),
            Some(path) => {
                removal.remove_directory(directory.as_ref(), |tree| tree.remove_dir(path))
            }
            None => removal.remove_directory(None, |_| root.remove_dir(top)),
        };
        if let Err(rejection) = done {
            removal.failures.add(directory, rejection);
        }
    }
    Ok(removal.failures)
}

/// Removal of a directory in progress.
struct Removal<'c> {
    tree: Root,
    /// Whether files of copies in progress are removed, too. Under an internal name, nothing is in use.
    all: bool,
    changes: &'c ChangeCounter,
    /// Directories to remove, and whether what they contained is removed already. `None` is the top.
    pending: Vec<(Option<RelPath>, bool)>,
    failures: Failures,
}

impl Removal<'_> {
    /// Removes what is in a directory; directories in it are still to be removed, before the directory itself.
    fn remove_contents(&mut self, directory: Option<&RelPath>) -> Outcome<()> {
        self.pending.push((directory.cloned(), true));
        for name in names(&self.tree, directory)?.iter() {
            let path = within(directory, name)?;
            if !self.all && is_internal_name(name) && !is_orphaned(&self.tree, &path) {
                self.failures.add(Some(path), ACTIVE_COPY);
            } else if self.tree.is_dir(&path) {
                self.pending.push((Some(path), false));
            } else if let Err(rejection) = remove_file(&self.tree, &path, self.changes) {
                self.failures.add(Some(path), rejection);
            }
        }
        Ok(())
    }

    /// Removes an emptied directory. Where it still contains an entry that has failed, that failure tells of it.
    fn remove_directory(
        &self,
        directory: Option<&RelPath>,
        remove: impl FnOnce(&Root) -> Result<(), Failure>,
    ) -> Outcome<()> {
        match remove(&self.tree) {
            Err(failure)
                if failure.errno() == Some(Errno::NOTEMPTY) && self.failures.are_in(directory) => {}
            removed => {
                removed?;
                self.changes.count_entry();
            }
        }
        Ok(())
    }
}

/// Removes an entry that is not a directory.
pub(crate) fn remove_file(root: &Root, path: &RelPath, changes: &ChangeCounter) -> Outcome<()> {
    let meta = Meta::stat(root, Some(path))?;
    root.remove(path)?;
    changes.count_entry();
    changes.count_bytes(meta.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::{File, FileTimes},
        time::{Duration, SystemTime},
    };

    const HOUR: Duration = Duration::from_secs(3600);

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
            let time = SystemTime::now() - hours * HOUR;
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
        let old_times = FileTimes::new().set_modified(SystemTime::now() - 2 * HOUR);
        file.set_times(old_times).unwrap();
        assert!(is_old());
    }
}
