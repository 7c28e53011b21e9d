// SPDX-License-Identifier: MIT OR Apache-2.0
//! How directories below a root are found, and which of them are held open for the next name in them.

use crate::path::RelPath;
use parking_lot::{Mutex, MutexGuard};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Directories that a root holds open for the next name in them: as many descriptors, and their
/// paths.
pub(super) const OPEN_DIRS_MAX: usize = 32;

/// A descriptor that only names a directory: it needs no right to read it.
const NAMES_DIR: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A directory, and some of those below it.
pub(super) struct Directories {
    top: Arc<OwnedFd>,
    /// The kernel, or what watches over our system calls, has no openat2(2).
    pub(super) by_steps: AtomicBool,
    open: Mutex<VecDeque<(RelPath, Arc<OwnedFd>)>>,
}

impl Directories {
    pub(super) fn below(top: OwnedFd) -> Self {
        Self {
            top: Arc::new(top),
            by_steps: AtomicBool::new(false),
            open: Mutex::default(),
        }
    }

    pub(super) fn top(&self) -> &Arc<OwnedFd> {
        &self.top
    }

    /// A descriptor that only names a directory.
    pub(super) fn find(&self, path: &RelPath) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(dir) = self.held(path) {
            return Ok(dir);
        }
        let parent = path.parent().and_then(|parent| self.held(&parent));
        let dir = match parent {
            Some(parent) => step(parent.as_fd(), path.name()),
            None => self.resolve(path, at_once),
        };
        let dir = Arc::new(dir?);
        self.hold(path, &dir);
        Ok(dir)
    }

    fn held(&self, path: &RelPath) -> Option<Arc<OwnedFd>> {
        let mut dirs = self.open();
        let at = dirs.iter().position(|(held, _)| held == path)?;
        let entry = dirs.remove(at)?;
        let dir = Arc::clone(&entry.1);
        dirs.push_front(entry);
        Some(dir)
    }

    fn hold(&self, path: &RelPath, dir: &Arc<OwnedFd>) {
        let mut dirs = self.open();
        dirs.truncate(OPEN_DIRS_MAX - 1);
        dirs.push_front((path.clone(), Arc::clone(dir)));
    }

    /// A directory that is gone must not live on under its name, nor what was in it.
    pub(super) fn forget(&self, path: &RelPath) {
        let kept = |held: &RelPath| held != path && held.below(path).is_none();
        self.open().retain(|(held, _)| kept(held));
    }

    pub(super) fn open(&self) -> MutexGuard<'_, VecDeque<(RelPath, Arc<OwnedFd>)>> {
        self.open.lock()
    }

    pub(super) fn resolve(&self, path: &RelPath, at_once: Resolver) -> Result<OwnedFd, Errno> {
        if self.by_steps.load(Ordering::Relaxed) {
            return walk(&self.top, path);
        }
        match at_once(&self.top, path) {
            Err(Errno::NOSYS | Errno::PERM) => {
                self.by_steps.store(true, Ordering::Relaxed);
                walk(&self.top, path)
            }
            // A path is taken by openat2(2) up to a byte short of ours.
            Err(Errno::NAMETOOLONG) => walk(&self.top, path),
            answer => answer,
        }
    }
}

/// Opens a directory below another.
pub(super) type Resolver = fn(&OwnedFd, &RelPath) -> Result<OwnedFd, Errno>;

fn at_once(top: &OwnedFd, path: &RelPath) -> Result<OwnedFd, Errno> {
    let below = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // With O_NOFOLLOW a link at the end would be "no directory"; so it is what it is.
    let flags = NAMES_DIR.difference(OFlags::NOFOLLOW);
    fs::openat2(top, path.as_bytes(), flags, Mode::empty(), below)
}

/// The same without openat2(2): no name has a slash or dots, and none is followed.
fn walk(top: &OwnedFd, path: &RelPath) -> Result<OwnedFd, Errno> {
    let mut names = path.components();
    let first = step(top.as_fd(), names.next().ok_or(Errno::NOENT)?)?;
    names.try_fold(first, |dir, name| step(dir.as_fd(), name))
}

/// O_DIRECTORY refuses a link as "no directory"; openat2(2) says more clearly what it is.
fn step(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    fs::openat(dir, name, NAMES_DIR, Mode::empty()).map_err(|errno| {
        let link = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink());
        if link { Errno::LOOP } else { errno }
    })
}
