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

#[cfg(feature = "bpf")]
mod changes;
#[cfg(feature = "bpf")]
mod lifetime;

#[cfg(feature = "bpf")]
pub(crate) use changes::{Draft, exchange, metadata, remove, set_metadata, unpin};

use rustix::fs::statfs;
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Mount point of the BPF file system in every distribution.
pub const DEFAULT: &str = "/sys/fs/bpf";

/// BPF_FS_MAGIC (include/uapi/linux/magic.h).
const BPF_FS: u64 = 0xcafe_4a11;

/// Directory of congestion controls below the file system's root.
const SUBDIRECTORY: &str = "longhaul/cc";

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

/// Most ancestors of a process that are looked at.
const ANCESTORS_MAX: usize = 64;

/// Returns processes whose mounts are likely the machine's, the likeliest first: process 1, and the ancestors of
/// this process from the oldest on. (Process 1 may be inaccessible even to root.)
fn reference_processes() -> impl Iterator<Item = u32> {
    let first = Some(std::os::unix::process::parent_id());
    let ancestors = std::iter::successors(first, |process| parent(*process));
    let ancestors: Vec<u32> = ancestors
        .take_while(|process| *process > 1)
        .take(ANCESTORS_MAX)
        .collect();
    std::iter::once(1).chain(ancestors.into_iter().rev())
}

/// Returns the parent of a process (proc(5)): the second field after the name, which is in parentheses.
fn parent(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = status.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

/// Whether a process is this user's, so that its file system can be trusted.
fn is_same_user(process: &u32) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::metadata(format!("/proc/{process}")).is_ok_and(|of| of.uid() == user)
}

impl Pins {
    /// Returns the pins of the BPF file system mounted at `root`. Inside `ip netns exec`, which hides the mount,
    /// it is accessed through process 1 or an ancestor of this process.
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
        let mut others = reference_processes().filter(is_same_user).map(through);
        others.find(Self::is_mounted).unwrap_or(here)
    }

    /// Returns the directory that contains a directory for each congestion control.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.root.join(SUBDIRECTORY)
    }

    /// Whether a BPF file system is mounted at the root.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        statfs(&self.root).is_ok_and(|found| found.f_type as u64 == BPF_FS)
    }
}
