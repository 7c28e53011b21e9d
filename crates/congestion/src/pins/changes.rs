// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of the pins, under their lock, and of the mount of their file system.

use super::{Pins, lifetime};
use crate::{Error, feature_probe};
use rustix::{
    fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with},
    mount::{MountFlags, UnmountFlags, mount, unmount},
};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
};

/// Source of a mount that longhaul made, and may unmount.
const SOURCE: &str = "longhaul";

/// Lock of the pins: while it exists, no other longhaul process changes them.
#[derive(Debug)]
pub(crate) struct Lock {
    root: File,
}

impl Pins {
    pub(crate) fn directory_of(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    /// Waits for the lock. Mounts the file system if it is not mounted, as systemd does. The mount is made under a lock of
    /// the directory below it, or each of two concurrent processes would mount its own.
    pub(crate) fn lock(&self) -> Result<Lock, Error> {
        let named = |reason| self.error(&self.root, reason);
        loop {
            let root = File::open(&self.root).map_err(named)?;
            flock(&root, FlockOperation::LockExclusive).map_err(|error| named(error.into()))?;
            // Mounted or unmounted meanwhile: the path is another directory now.
            if !self.is_root(&root).map_err(named)? {
                continue;
            }
            if self.is_mounted() {
                return Ok(Lock { root });
            }
            if lifetime::mount_would_last(&root) {
                self.mount().map_err(named)?;
            } else {
                return Err(self.ends_with_command("is not mounted"));
            }
        }
    }

    /// Whether the root's path still refers to this directory.
    fn is_root(&self, opened: &File) -> io::Result<bool> {
        let (opened, named) = (opened.metadata()?, fs::metadata(&self.root)?);
        Ok((opened.dev(), opened.ino()) == (named.dev(), named.ino()))
    }

    /// Refuses a file system that is mounted for this command alone: it, and its pins, would end with the command.
    pub(crate) fn check_lifetime(&self, lock: &Lock) -> Result<(), Error> {
        if lifetime::mount_lasts(&lock.root) {
            Ok(())
        } else {
            Err(self.ends_with_command("is mounted in them alone"))
        }
    }

    fn ends_with_command(&self, state: &str) -> Error {
        Error::Kernel(format!(
            "this process has mounts of its own (as in ip netns exec and unshare --mount), which end with it, and {0} \
             {state}: first, outside, mount -t bpf bpf {0}",
            self.root.display()
        ))
    }

    fn mount(&self) -> io::Result<()> {
        let plain = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        Ok(mount(SOURCE, &self.root, "bpf", plain, c"mode=0700")?)
    }

    /// Removes empty directories, and the mount if longhaul made it and it is unused. The kernel refuses to
    /// remove those in use.
    pub(crate) fn remove_empty(&self, lock: Lock) {
        let _ = fs::remove_dir(self.directory());
        let _ = fs::remove_dir(self.root.join(SOURCE));
        drop(lock);
        if self.is_our_mount() && self.is_empty() {
            let _ = unmount(&self.root, UnmountFlags::empty());
        }
    }

    /// Whether longhaul made the mount. A line of mountinfo has the mount point as its fifth field, and type and
    /// source after a dash (proc(5)).
    fn is_our_mount(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let root = fs::canonicalize(&self.root).unwrap_or_default();
        let here = |line: &&str| {
            line.split(' ')
                .nth(4)
                .is_some_and(|at| root == Path::new(at))
        };
        // The last mount covers the others.
        let visible = mounts.lines().rfind(here);
        visible.is_some_and(|line| line.contains(&format!(" - bpf {SOURCE} ")))
    }

    /// Whether the file system has no entries other than the kernel's own, whose names have dots.
    fn is_empty(&self) -> bool {
        let Ok(entries) = fs::read_dir(&self.root) else {
            return false;
        };
        let mut names = entries.map(|entry| entry.map(|e| e.file_name()));
        names.all(|name| name.is_ok_and(|n| n.to_string_lossy().contains('.')))
    }

    pub(crate) fn error(&self, path: &Path, reason: io::Error) -> Error {
        match reason.kind() {
            io::ErrorKind::PermissionDenied => feature_probe::requires_root(&format!(
                "what is pinned at {} is seen",
                path.display()
            )),
            _ => Error::Pins {
                path: path.to_owned(),
                reason,
            },
        }
    }
}

/// Stores metadata beside the pins: a symbolic link `name` whose target is `value`.
pub(crate) fn set_metadata(directory: &Path, name: &str, value: &str) -> io::Result<()> {
    let path = directory.join(name);
    unpin(directory, name)?;
    symlink(value, path)
}

/// Reads metadata that [`set_metadata`] stored.
pub(crate) fn metadata(directory: &Path, name: &str) -> Option<String> {
    let target = fs::read_link(directory.join(name)).ok()?;
    target.into_os_string().into_string().ok()
}

/// Removes a pin or metadata, if it exists.
pub(crate) fn unpin(directory: &Path, name: &str) -> io::Result<()> {
    match fs::remove_file(directory.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a directory; the entry `first` is removed before all others.
pub(crate) fn remove(directory: &Path, first: &str) -> io::Result<()> {
    unpin(directory, first)?;
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Exchanges two directories atomically.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

/// An unfinished directory, removed on drop unless [`Draft::publish`]ed.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) path: PathBuf,
}

impl Draft {
    pub(crate) fn new(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        Ok(Self { path })
    }

    /// Renames it to its final path.
    pub(crate) fn publish(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // A published draft does not exist at this path.
        let _ = remove(&self.path, "link");
    }
}
