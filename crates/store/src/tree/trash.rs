// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removed entries that are kept for a time: `.longhaul-trash/SECONDS/PATH`, where SECONDS is the time of the copy that
//! removed them, since 1970; with `-N` if several copies did so within a second. The directory is an internal one, so no
//! copy sees it.

use crate::{
    path::RelPath,
    piece,
    root::{Failure, Root},
    tree::{
        delete::{list_removable, remove_all, remove_whole},
        filter::Filter,
    },
};
use rustix::io::Errno;
use std::time::{Duration, SystemTime};

/// Directory at the top of a copy.
const TRASH: &str = ".longhaul-trash";

/// Trash of one copy.
#[derive(Debug)]
pub struct Trash<'a> {
    root: &'a Root,
    now: SystemTime,
    /// Directory of this copy, once it is needed.
    directory: Option<RelPath>,
}

impl<'a> Trash<'a> {
    /// For what a copy removes below `root` from `now` on.
    #[must_use]
    pub fn new(root: &'a Root, now: SystemTime) -> Self {
        Self {
            root,
            now,
            directory: None,
        }
    }

    /// Moves what [`remove_all`] would remove into the trash. Pieces of files are removed: they are of no use alone.
    /// Returns the number of entries that are gone, and the failures.
    #[must_use]
    pub fn put(&mut self, filter: &Filter, path: &RelPath) -> (u64, Vec<Failure>) {
        if piece::exists(self.root, path) {
            return remove_all(self.root, filter, path);
        }
        let mut removable = Vec::new();
        let listed = |path: &RelPath| removable.push(path.clone());
        let mut failures = list_removable(self.root, filter, path, listed);
        let (mut gone, mut last): (u64, Option<(&RelPath, bool)>) = (0, None);
        let mut emptied = Vec::new();
        // Directories come after their contents.
        for path in removable.iter().rev() {
            let is_below = |(top, _): &(&RelPath, bool)| path.strip_prefix(top).is_some();
            if let Some((_, is_moved)) = last.filter(is_below) {
                gone += u64::from(is_moved);
                continue;
            }
            let moved = self.move_here(path);
            if moved.as_ref().is_err_and(is_across) && self.root.is_dir(path) {
                // overlayfs moves files out of the lower layer, but no directories.
                emptied.push(path);
                continue;
            }
            gone += u64::from(moved.is_ok());
            last = Some((path, moved.is_ok()));
            failures.extend(moved.err());
        }
        for directory in emptied.into_iter().rev() {
            let removed = self.remove_emptied(directory);
            gone += u64::from(removed.is_ok());
            failures.extend(removed.err());
        }
        if !failures.is_empty() {
            self.remove_unused(path);
        }
        (gone, failures)
    }

    /// Removes a directory whose contents were moved. The trash gets one like it, if it had none.
    fn remove_emptied(&mut self, directory: &RelPath) -> Result<(), Failure> {
        let place = self.directory()?.join_path(directory)?;
        self.make_parents(directory)?;
        make_dir_like(self.root, &place, directory)?;
        self.root
            .remove_dir(directory)
            .map_err(|failure| match failure.errno() {
                // What stayed there has been reported.
                Some(Errno::NOTEMPTY) => not_movable(directory, Errno::XDEV),
                _ => failure,
            })
    }

    /// Removes directories that were made for what could not be moved.
    fn remove_unused(&mut self, path: &RelPath) {
        let Some(own) = self.directory.clone() else {
            return;
        };
        let all = std::iter::successors(Some(path.clone()), RelPath::parent);
        for place in all.filter_map(|path| own.join_path(&path).ok()) {
            let _in_use = self.root.remove_dir(&place);
        }
        if self.root.remove_dir(&own).is_ok() {
            self.directory = None;
        }
    }

    fn move_here(&mut self, path: &RelPath) -> Result<(), Failure> {
        self.make_parents(path)?;
        let place = self.directory()?.join_path(path)?;
        self.root.make_writable(path.parent().as_ref())?;
        self.root
            .rename(path, &place)
            .map_err(|failure| match failure.errno() {
                Some(errno @ (Errno::XDEV | Errno::BUSY)) => not_movable(path, errno),
                _ => failure,
            })
    }

    fn make_parents(&mut self, path: &RelPath) -> Result<(), Failure> {
        let own = self.directory()?.clone();
        let parents = std::iter::successors(path.parent(), RelPath::parent);
        let parents: Vec<RelPath> = parents.collect();
        for parent in parents.iter().rev() {
            make_dir_like(self.root, &own.join_path(parent)?, parent)?;
        }
        Ok(())
    }

    /// Returns the directory of this copy. It is made first.
    fn directory(&mut self) -> Result<&RelPath, Failure> {
        if self.directory.is_none() {
            let trash = RelPath::parse(TRASH.as_bytes())?;
            make_dir(self.root, &trash, || {})?;
            self.directory = Some(self.make_own(&trash)?);
        }
        Ok(self
            .directory
            .as_ref()
            .unwrap_or_else(|| unreachable!("it was made")))
    }

    fn make_own(&self, trash: &RelPath) -> Result<RelPath, Failure> {
        let seconds = seconds(self.now);
        let mut number = 0;
        loop {
            let name = match number {
                0 => seconds.to_string(),
                _ => format!("{seconds}-{number}"),
            };
            let own = trash.join(name.as_bytes())?;
            match self.root.make_dir(&own) {
                Err(failure) if failure.errno() == Some(Errno::EXIST) => number += 1,
                made => return made.map(|()| own),
            }
        }
    }
}

/// Failure of an entry that cannot be moved into the trash: on another file system, or a mount point.
fn not_movable(path: &RelPath, errno: Errno) -> Failure {
    Failure::System {
        path: Some(path.clone()),
        action: match errno {
            Errno::BUSY => "move it into the trash (is a file system mounted there?)",
            _ => "move it into the trash on another file system (without --trash it is removed)",
        },
        errno,
    }
}

fn is_across(failure: &Failure) -> bool {
    failure.errno() == Some(Errno::XDEV)
}

/// Makes a directory, unless it is there. A new one is passed to `prepare`.
fn make_dir(root: &Root, path: &RelPath, prepare: impl FnOnce()) -> Result<(), Failure> {
    match root.make_dir(path) {
        Err(failure) if failure.errno() == Some(Errno::EXIST) => Ok(()),
        made => made.map(|()| prepare()),
    }
}

/// Makes a directory for what is moved out of `original`, unless it is there. A new one gets the original's metadata, so
/// that `cp -a` out of the trash restores it.
fn make_dir_like(root: &Root, path: &RelPath, original: &RelPath) -> Result<(), Failure> {
    make_dir(root, path, || {
        if let (Ok((mut metadata, _)), Ok(handle)) = (root.metadata(original), root.handle(path)) {
            // Others are kept out by the directory of the trash.
            metadata.mode |= 0o700;
            let _not_needed_to_keep_the_files = metadata.apply(&handle);
        }
    })
}

/// Removes what copies before a time have put into the trash. Returns the failures.
#[must_use]
pub fn remove_older(root: &Root, before: SystemTime) -> Vec<Failure> {
    match older(root, before) {
        Ok(old) => {
            let failures = old.iter().map(|path| remove_whole(root, path));
            failures.flatten().collect()
        }
        Err(failure) if failure.is_not_found() => Vec::new(),
        Err(failure) => vec![failure],
    }
}

fn older(root: &Root, before: SystemTime) -> Result<Vec<RelPath>, Failure> {
    let trash = RelPath::parse(TRASH.as_bytes())?;
    let (names, error) = root.list(Some(&trash))?;
    let time = |name: &[u8]| {
        let seconds = str::from_utf8(name).ok()?.split('-').next()?;
        seconds.parse::<u64>().ok()
    };
    let is_old = |name: &&[u8]| time(name).is_some_and(|time| time < seconds(before));
    let mut old = Vec::new();
    for name in names.iter().filter(is_old) {
        old.push(trash.join(name)?);
    }
    error.map_or(Ok(old), Err)
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs()
}
