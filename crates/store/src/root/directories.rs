// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resolves directories below a root, and caches open ones.

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

/// Maximum number of cached directories: a descriptor and a path each.
pub(super) const OPEN_DIRS_MAX: usize = 32;

/// Flags for a descriptor that only names a directory. It needs no read permission.
const DIR_PATH_FLAGS: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Directory, and a cache of open directories below it.
pub(super) struct Directories {
    top: Arc<OwnedFd>,
    /// openat2(2) is missing in the kernel, or blocked by a system call filter.
    pub(super) openat2_missing: AtomicBool,
    cache: Mutex<VecDeque<(RelPath, Arc<OwnedFd>)>>,
}

impl Directories {
    pub(super) fn new(top: OwnedFd) -> Self {
        Self {
            top: Arc::new(top),
            openat2_missing: AtomicBool::new(false),
            cache: Mutex::default(),
        }
    }

    pub(super) fn top(&self) -> &Arc<OwnedFd> {
        &self.top
    }

    /// Descriptor that only names the directory at `path`.
    pub(super) fn find(&self, path: &RelPath) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(dir) = self.cached(path) {
            return Ok(dir);
        }
        let parent = path.parent().and_then(|parent| self.cached(&parent));
        let dir = match parent {
            Some(parent) => open_component(parent.as_fd(), path.name()),
            None => self.resolve(path, resolve_with_openat2),
        };
        let dir = Arc::new(dir?);
        self.insert(path, &dir);
        Ok(dir)
    }

    fn cached(&self, path: &RelPath) -> Option<Arc<OwnedFd>> {
        let mut dirs = self.lock_cache();
        let at = dirs
            .iter()
            .position(|(cached_path, _)| cached_path == path)?;
        let entry = dirs.remove(at)?;
        let dir = Arc::clone(&entry.1);
        dirs.push_front(entry);
        Some(dir)
    }

    fn insert(&self, path: &RelPath, dir: &Arc<OwnedFd>) {
        let mut dirs = self.lock_cache();
        dirs.truncate(OPEN_DIRS_MAX - 1);
        dirs.push_front((path.clone(), Arc::clone(dir)));
    }

    /// Removes a directory, and those below it, from the cache: another directory may get the name.
    pub(super) fn evict(&self, path: &RelPath) {
        let stays =
            |cached_path: &RelPath| cached_path != path && cached_path.strip_prefix(path).is_none();
        self.lock_cache()
            .retain(|(cached_path, _)| stays(cached_path));
    }

    pub(super) fn lock_cache(&self) -> MutexGuard<'_, VecDeque<(RelPath, Arc<OwnedFd>)>> {
        self.cache.lock()
    }

    pub(super) fn resolve(&self, path: &RelPath, openat2: Resolver) -> Result<OwnedFd, Errno> {
        if self.openat2_missing.load(Ordering::Relaxed) {
            return walk(&self.top, path);
        }
        match openat2(&self.top, path) {
            Err(Errno::NOSYS | Errno::PERM) => {
                self.openat2_missing.store(true, Ordering::Relaxed);
                walk(&self.top, path)
            }
            // openat2(2) takes paths up to a byte shorter than PATH_LEN_MAX.
            Err(Errno::NAMETOOLONG) => walk(&self.top, path),
            result => result,
        }
    }
}

/// Function that opens a directory below another.
pub(super) type Resolver = fn(&OwnedFd, &RelPath) -> Result<OwnedFd, Errno>;

fn resolve_with_openat2(top: &OwnedFd, path: &RelPath) -> Result<OwnedFd, Errno> {
    let below = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // With O_NOFOLLOW, a link at the end would be reported as "no directory", not as a link.
    let flags = DIR_PATH_FLAGS.difference(OFlags::NOFOLLOW);
    fs::openat2(top, path.as_bytes(), flags, Mode::empty(), below)
}

/// Opens a directory without openat2(2), name by name. No name has a slash or dots, and no link is
/// followed.
fn walk(top: &OwnedFd, path: &RelPath) -> Result<OwnedFd, Errno> {
    let mut names = path.components();
    let first = open_component(top.as_fd(), names.next().ok_or(Errno::NOENT)?)?;
    names.try_fold(first, |dir, name| open_component(dir.as_fd(), name))
}

/// Opens a directory by one name. O_DIRECTORY reports a link as "no directory"; this reports
/// `ELOOP`, as openat2(2) does.
fn open_component(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    fs::openat(dir, name, DIR_PATH_FLAGS, Mode::empty()).map_err(|errno| {
        let link = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink());
        if link { Errno::LOOP } else { errno }
    })
}
