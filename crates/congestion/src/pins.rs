// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pins of loaded congestion controls: directories of a BPF file system. Pinned objects exist without a
//! process, until they are removed or the machine stops.
//!
//! ```text
//! /sys/fs/bpf/longhaul/cc/bic/
//!     link            keeps it registered (or `operations` before Linux 6.4)
//!     connections     a map: storage of each connection that uses it
//!     parameters      a map: parameters of new connections
//!     layout          a symbolic link: its target identifies the layout of a connection's state
//!     loaded-by, map, transient, default-before: further symbolic links
//! ```
//!
//! Facts are symbolic links because a BPF file system has no files: `ls -l` shows them all. Names
//! have no dots, which the kernel reserves.

use crate::{Error, feature_probe};
use rustix::{
    fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with, statfs},
    mount::{MountFlags, UnmountFlags, mount, unmount},
};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
};

/// Mount point of the BPF file system in every distribution.
pub const DEFAULT: &str = "/sys/fs/bpf";

/// BPF_FS_MAGIC (include/uapi/linux/magic.h).
const BPF_FS: u64 = 0xcafe_4a11;

/// Directory of congestion controls below the file system's root.
const SUBDIRECTORY: &str = "longhaul/cc";

/// Source of a mount that longhaul made, and may unmount.
const SOURCE: &str = "longhaul";

/// A BPF file system, mounted or to be mounted.
#[derive(Debug, Clone)]
pub struct Pins {
    root: PathBuf,
}

impl Default for Pins {
    fn default() -> Self {
        Self::at(DEFAULT)
    }
}

/// Returns processes of this user whose mounts are likely the machine's. (Process 1 may be inaccessible
/// even to root.)
fn reference_processes() -> impl Iterator<Item = u32> {
    let user = rustix::process::geteuid().as_raw();
    let same_user = move |process: &u32| {
        fs::metadata(format!("/proc/{process}")).is_ok_and(|of| of.uid() == user)
    };
    let all = [1, std::os::unix::process::parent_id()];
    all.into_iter().filter(same_user)
}

/// Lock of the pins: while it exists, no other longhaul process changes them.
#[derive(Debug)]
pub(crate) struct Lock {
    _root: File,
}

impl Pins {
    /// Returns the pins of the BPF file system mounted at `root`. Inside `ip netns exec`, which hides the mount,
    /// it is accessed through process 1 or the parent process.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        let here = Self { root: root.into() };
        if here.is_mounted() {
            return here;
        }
        let relative = here.root.strip_prefix("/").unwrap_or(&here.root);
        let through = |process| Self {
            root: Path::new(&format!("/proc/{process}/root")).join(relative),
        };
        let mut others = reference_processes().map(through);
        others.find(Self::is_mounted).unwrap_or(here)
    }

    /// Returns the directory that contains a directory for each congestion control.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.root.join(SUBDIRECTORY)
    }

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
                return Ok(Lock { _root: root });
            }
            self.check_mount_namespace()?;
            self.mount().map_err(named)?;
        }
    }

    /// Whether the root's path still refers to this directory.
    fn is_root(&self, opened: &File) -> io::Result<bool> {
        let (opened, named) = (opened.metadata()?, fs::metadata(&self.root)?);
        Ok((opened.dev(), opened.ino()) == (named.dev(), named.ino()))
    }

    /// Whether a BPF file system is mounted at the root.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        statfs(&self.root).is_ok_and(|found| found.f_type as u64 == BPF_FS)
    }

    /// Refuses a mount namespace of this command's own: a mount in it, and its pins, would end with the command.
    fn check_mount_namespace(&self) -> Result<(), Error> {
        let namespace = |process: u32| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
        let ours = namespace(std::process::id());
        let mut others = reference_processes().filter_map(namespace);
        match others.all(|other| Some(other) == ours) {
            true => Ok(()),
            false => Err(Error::Kernel(format!(
                "this process has mounts of its own (as in ip netns exec) and {0} is not mounted: \
                 first, outside, mount -t bpf bpf {0}",
                self.root.display()
            ))),
        }
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
