// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locations of the sources of a copy. A target that may be on the same machine needs them.

use longhaul_store::path::{Printable, RelPath};
use serde::{Deserialize, Serialize};

/// Hash that identifies a location in the file systems of one running machine.
pub type LocationId = [u8; 16];

/// Locations of all sources of an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// Location of each source.
    pub all: Vec<SourceLocation>,
    /// Directories that contain any of the sources.
    pub enclosing: Vec<LocationId>,
}

impl Sources {
    /// Adds the sources of another host.
    pub fn merge(mut self, other: Self) -> Self {
        self.all.extend(other.all);
        self.enclosing.extend(other.enclosing);
        self
    }

    /// Returns the names in the copy of the sources that are copied under their own names.
    pub fn names(&self) -> impl Iterator<Item = &RelPath> {
        self.all.iter().filter_map(|source| source.name.as_ref())
    }

    /// Returns the first source, as the user gave it, that differs from its counterpart on another host. Hosts that share a
    /// file system agree about the inode number of an entry and, if known, about its birth time.
    pub fn first_difference(&self, like: &Self) -> Option<String> {
        let pairs = self.all.iter().zip(&like.all);
        let mut others = pairs.filter(|(one, other)| match (one.identity, other.identity) {
            (Some(one), Some(other)) => one.differs_from(&other),
            _ => false,
        });
        let (other, _) = others.next()?;
        Some(Printable(&other.given_path).to_string())
    }

    /// Returns the names in the copy of the sources that are not devices, fifos or sockets.
    pub fn non_special_names(&self) -> impl Iterator<Item = Option<&RelPath>> {
        let plain = self.all.iter().filter(|source| !source.special);
        plain.map(|source| source.name.as_ref())
    }
}

/// Location of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLocation {
    /// Path as the user gave it.
    pub given_path: Vec<u8>,
    /// Name in the copy; `None` if only the contents are copied.
    pub name: Option<RelPath>,
    /// Whether the source is a device, a fifo or a socket.
    pub special: bool,
    /// Locations of the source itself, and of the file systems mounted in it with their paths in the source.
    pub location_ids: Vec<(LocationId, Option<RelPath>)>,
    /// Identity of the source; `None` if it cannot be read.
    pub identity: Option<FileIdentity>,
}

/// Identity of an entry, which is the same on all hosts that share its file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Inode number.
    pub inode: u64,
    /// Birth time in seconds and nanoseconds, if the file system records it.
    pub birth: Option<(i64, u32)>,
}

impl FileIdentity {
    fn differs_from(&self, other: &Self) -> bool {
        let births = self.birth.zip(other.birth);
        self.inode != other.inode || births.is_some_and(|(one, other)| one != other)
    }
}
