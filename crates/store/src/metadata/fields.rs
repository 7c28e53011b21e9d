// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metadata that could not be copied, with the reasons.

use crate::path::Printable;
use rustix::io::Errno;
use std::fmt;

/// Field of a file's metadata that could not be copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedField {
    /// Field.
    pub field: MetadataField,
    /// Error of the system.
    pub errno: Errno,
}

/// Field of a file's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetadataField {
    /// Owner.
    Owner,
    /// Group.
    Group,
    /// Permissions.
    Mode,
    /// Set-user-id and set-group-id bits: never given to a file with another owner.
    SetId,
    /// All extended attributes.
    Xattrs,
    /// Extended attribute of this name.
    Xattr(Box<[u8]>),
    /// Access and modification time.
    Times,
    /// All fields that only the owner may set, where another user owns the file.
    OwnerOnly,
}

impl fmt::Display for MetadataField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner => f.write_str("owner"),
            Self::Group => f.write_str("group"),
            Self::Mode => f.write_str("permissions"),
            Self::SetId => f.write_str("set-id bits"),
            Self::Xattrs => f.write_str("extended attributes"),
            Self::Xattr(name) => write!(f, "attribute {}", Printable(name)),
            Self::Times => f.write_str("times"),
            Self::OwnerOnly => f.write_str("permissions and times"),
        }
    }
}

/// Result of applying metadata.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApplyOutcome {
    /// Whether a field differed and was changed.
    pub changed: bool,
    /// Fields that could not be set.
    pub skipped: Vec<SkippedField>,
}
