// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a loaded congestion control stays: a directory of a BPF file system. What is pinned there
//! lives without a process, until it is removed or the machine stops.
//!
//! ```text
//! /sys/fs/bpf/longhaul/cc/bic/
//!     link            holds it registered (or `operations` before Linux 6.4)
//!     connections     a map: beside each connection that uses it
//!     parameters      a map: what a connection is told when it begins
//!     layout          a symbolic link whose target is a word: which build can read the connections
//!     loaded-by, map, transient, default-before: likewise
//! ```
//!
//! Facts are symbolic links because a BPF file system has no files: `ls -l` shows them all. Names
//! have no dots, which the kernel keeps for itself.

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

/// Where every distribution mounts it.
pub const DEFAULT: &str = "/sys/fs/bpf";

/// BPF_FS_MAGIC (include/uapi/linux/magic.h).
const BPF_FS: u64 = 0xcafe_4a11;

/// Below the file system's root.
const SUBDIRECTORY: &str = "longhaul/cc";

/// The source of a mount that longhaul made, and may take away.
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

/// Processes of this user whose mounts are likely the machine's. (The first may be closed even to
/// root.)
fn reference_processes() -> impl Iterator<Item = u32> {
    let user = rustix::process::geteuid().as_raw();
    let same_user = move |process: &u32| {
        fs::metadata(format!("/proc/{process}")).is_ok_and(|of| of.uid() == user)
    };
    let all = [1, std::os::unix::process::parent_id()];
    all.into_iter().filter(same_user)
}

/// While it lives, no other longhaul changes what is pinned.
#[derive(Debug)]
pub(crate) struct Lock {
    _root: File,
}

impl Pins {
    /// Those of the BPF file system whose root is there. Inside `ip netns exec`, which hides it, it is
    /// reached through process 1, or the one that started this.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        let here = Self { root: root.into() };
        if here.is_mounted() {
            return here;
        }
        let below = here.root.strip_prefix("/").unwrap_or(&here.root);
        let through = |process| Self {
            root: Path::new(&format!("/proc/{process}/root")).join(below),
        };
        let mut others = reference_processes().map(through);
        others.find(Self::is_mounted).unwrap_or(here)
    }

    /// Where congestion controls are, a directory each.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.root.join(SUBDIRECTORY)
    }

    pub(crate) fn of(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    /// Waits for its turn. Mounts the file system where it is not, as systemd does: under a lock of the directory that is
    /// there before, or each of two that come at once would mount its own.
    pub(crate) fn lock(&self) -> Result<Lock, Error> {
        let named = |source| self.error(&self.root, source);
        loop {
            let root = File::open(&self.root).map_err(named)?;
            flock(&root, FlockOperation::LockExclusive).map_err(|error| named(error.into()))?;
            // Mounted or unmounted meanwhile: another directory has its name now.
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

    /// Whether this is what has the name of the root.
    fn is_root(&self, opened: &File) -> io::Result<bool> {
        let (opened, named) = (opened.metadata()?, fs::metadata(&self.root)?);
        Ok((opened.dev(), opened.ino()) == (named.dev(), named.ino()))
    }

    /// Whether a BPF file system is there.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        statfs(&self.root).is_ok_and(|found| found.f_type as u64 == BPF_FS)
    }

    /// A mount in a namespace of this command's own would end with it, and all that is pinned.
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

    /// Removes directories that hold nothing, and the mount if longhaul made it and nobody uses it.
    /// What is in use stays: the kernel refuses.
    pub(crate) fn remove_empty(&self, lock: Lock) {
        let _ = fs::remove_dir(self.directory());
        let _ = fs::remove_dir(self.root.join(SOURCE));
        drop(lock);
        if self.is_our_mount() && self.is_empty() {
            let _ = unmount(&self.root, UnmountFlags::empty());
        }
    }

    /// A line of mountinfo has the place as its fifth field, and behind a dash type and source
    /// (proc(5)).
    fn is_our_mount(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let root = fs::canonicalize(&self.root).unwrap_or_default();
        let here = |line: &&str| {
            line.split(' ')
                .nth(4)
                .is_some_and(|at| root == Path::new(at))
        };
        // The last one mounted is the one that is seen.
        let seen = mounts.lines().rfind(here);
        seen.is_some_and(|line| line.contains(&format!(" - bpf {SOURCE} ")))
    }

    /// Names with dots are the kernel's own.
    fn is_empty(&self) -> bool {
        let Ok(entries) = fs::read_dir(&self.root) else {
            return false;
        };
        let mut names = entries.map(|entry| entry.map(|e| e.file_name()));
        names.all(|name| name.is_ok_and(|n| n.to_string_lossy().contains('.')))
    }

    pub(crate) fn error(&self, path: &Path, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::PermissionDenied => feature_probe::requires_root(&format!(
                "what is pinned at {} is seen",
                path.display()
            )),
            _ => Error::Pins {
                path: path.to_owned(),
                source,
            },
        }
    }
}

/// Puts down a fact, a word.
pub(crate) fn set_fact(directory: &Path, fact: &str, word: &str) -> io::Result<()> {
    let path = directory.join(fact);
    unpin(directory, fact)?;
    symlink(word, path)
}

/// Reads it.
pub(crate) fn fact(directory: &Path, fact: &str) -> Option<String> {
    let target = fs::read_link(directory.join(fact)).ok()?;
    target.into_os_string().into_string().ok()
}

/// Takes it away, if it is there.
pub(crate) fn unpin(directory: &Path, fact: &str) -> io::Result<()> {
    match fs::remove_file(directory.join(fact)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a directory; `first` goes before everything else in it.
pub(crate) fn remove(directory: &Path, first: &str) -> io::Result<()> {
    unpin(directory, first)?;
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Lets two directories change places, at once.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

/// A directory in the making, gone on drop unless [`Draft::publish`]ed.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) path: PathBuf,
}

impl Draft {
    pub(crate) fn new(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        Ok(Self { path })
    }

    /// Gives it its name.
    pub(crate) fn publish(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Published, it is not there any more.
        let _ = remove(&self.path, "link");
    }
}
