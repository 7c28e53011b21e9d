// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of a copied tree in wire format. The types of the store may change without changing this format.

use longhaul_store::{entry, metadata, path::RelPath};
use serde::{Deserialize, Serialize};

/// One entry of a tree: its path in the copy, its kind and its metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Path relative to the root of the copy.
    pub path: RelPath,
    /// Kind of the entry, with its data.
    pub kind: Kind,
    /// Mode, owner, times and attributes.
    pub metadata: Metadata,
}

same_fields!(
    Entry,
    entry::Entry {
        path,
        kind,
        metadata
    }
);

/// Kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Identity, state and size of the file.
        version: Version,
        /// Whether the file occupies less disk space than its size.
        sparse: bool,
    },
    /// A symbolic link.
    Symlink {
        /// Path to which the link points.
        target: Box<[u8]>,
    },
    /// A further name of an entry that was announced before.
    HardLink {
        /// Path under which the entry was announced.
        to: RelPath,
    },
    /// A named pipe (FIFO).
    Fifo,
    /// A character or block device.
    Device {
        /// `true` for a block device, `false` for a character device.
        block: bool,
        /// Major number: the type of the device.
        major: u32,
        /// Minor number: the device of that type.
        minor: u32,
    },
}

impl From<entry::Kind> for Kind {
    fn from(kind: entry::Kind) -> Self {
        use entry::Kind as Own;
        match kind {
            Own::Directory => Self::Directory,
            Own::File { version, sparse } => Self::File {
                version: version.into(),
                sparse,
            },
            Own::Symlink { target } => Self::Symlink { target },
            Own::HardLink { to } => Self::HardLink { to },
            Own::Fifo => Self::Fifo,
            Own::Device {
                block,
                major,
                minor,
            } => Self::Device {
                block,
                major,
                minor,
            },
        }
    }
}

impl From<Kind> for entry::Kind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Directory => Self::Directory,
            Kind::File { version, sparse } => Self::File {
                version: version.into(),
                sparse,
            },
            Kind::Symlink { target } => Self::Symlink { target },
            Kind::HardLink { to } => Self::HardLink { to },
            Kind::Fifo => Self::Fifo,
            Kind::Device {
                block,
                major,
                minor,
            } => Self::Device {
                block,
                major,
                minor,
            },
        }
    }
}

/// State of a file at the source. As long as the state is unchanged, so is the file's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Size in bytes.
    pub size: u64,
    /// Modification time, which any program may set.
    pub modified: Time,
    /// Change time, which the kernel sets at each change.
    pub changed: Time,
    /// Inode number, which is independent of the file's names.
    pub inode: u64,
    /// Device number of the file system.
    pub device: u64,
}

same_fields!(
    Version,
    entry::Version {
        size,
        modified,
        changed,
        inode,
        device
    }
);

/// Metadata of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Permission, set-id and sticky bits: the lower twelve bits of the mode.
    pub mode: u32,
    /// User ID of the owner; 2³² − 1 leaves the owner as it is.
    pub uid: u32,
    /// Group ID; 2³² − 1 leaves the group as it is.
    pub gid: u32,
    /// Time of the last change of the data.
    pub modified: Time,
    /// Time of the last read.
    pub accessed: Time,
    /// Extended attributes, sorted by name.
    pub xattrs: Xattrs,
}

same_fields!(
    Metadata,
    metadata::Metadata {
        mode,
        uid,
        gid,
        modified,
        accessed,
        xattrs
    }
);

/// Point in time, to the nanosecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// Seconds since the Unix epoch; negative for earlier times.
    pub seconds: i64,
    /// Nanoseconds of that second, less than 10⁹.
    pub nanos: u32,
}

same_fields!(Time, metadata::Time { seconds, nanos });

/// Extended attributes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Xattrs(pub Vec<Xattr>);

impl From<Vec<metadata::Xattr>> for Xattrs {
    fn from(own: Vec<metadata::Xattr>) -> Self {
        Self(own.into_iter().map(Into::into).collect())
    }
}

impl From<Xattrs> for Vec<metadata::Xattr> {
    fn from(Xattrs(wire): Xattrs) -> Self {
        wire.into_iter().map(Into::into).collect()
    }
}

/// One extended attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xattr {
    /// Name with its namespace, such as `user.comment`.
    pub name: Box<[u8]>,
    /// Value, as raw bytes.
    pub value: Box<[u8]>,
}

same_fields!(Xattr, metadata::Xattr { name, value });
