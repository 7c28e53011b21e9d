// SPDX-License-Identifier: MIT OR Apache-2.0
//! One thing of a copied tree as it goes over the wire. What the store keeps of it may differ.

use longhaul_store::{entry, metadata, path::RelPath};
use serde::{Deserialize, Serialize};

/// One thing of a tree: its name in the copy, what it is, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// From the top of the copy.
    pub path: RelPath,
    /// What it is.
    pub kind: Kind,
    /// Mode, owner, times, attributes.
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

/// What something is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A file with data.
    File {
        /// Which file and which state of it; its size too.
        version: Version,
        /// It occupies less than its size.
        sparse: bool,
    },
    /// A symbolic link.
    Symlink {
        /// Where it points.
        target: Box<[u8]>,
    },
    /// One more name of something that was named before.
    HardLink {
        /// The name before.
        to: RelPath,
    },
    /// A fifo.
    Fifo,
    /// A character or block device.
    Device {
        /// Else a character device.
        block: bool,
        /// Its type.
        major: u32,
        /// Which one of that type.
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

/// A state of a file at the source: as long as this is the same, so is its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Bytes.
    pub size: u64,
    /// Set by whoever likes.
    pub modified: Time,
    /// Set by the system at each change.
    pub changed: Time,
    /// The file itself, whatever its name.
    pub inode: u64,
    /// The file system it is on.
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

/// What is known of a file beside its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Permissions, set-id and sticky bits: the lower twelve.
    pub mode: u32,
    /// The owner's number; 2³² − 1 leaves the owner as it is.
    pub uid: u32,
    /// The group's number; 2³² − 1 leaves the group as it is.
    pub gid: u32,
    /// Of the data.
    pub modified: Time,
    /// Of the last reading.
    pub accessed: Time,
    /// Extended attributes, by name.
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

/// A moment, to the nanosecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// Seconds since 1970, before it if negative.
    pub seconds: i64,
    /// Nanoseconds after that, below a thousand million.
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
    /// With its namespace: `user.comment`.
    pub name: Box<[u8]>,
    /// Raw.
    pub value: Box<[u8]>,
}

same_fields!(Xattr, metadata::Xattr { name, value });
