// SPDX-License-Identifier: MIT OR Apache-2.0
//! What of a file's metadata did not come along, and why.

use crate::path::Shown;
use rustix::io::Errno;
use std::fmt;

/// Something of a file's metadata that did not come along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// What.
    pub what: What,
    /// The system's reason.
    pub errno: Errno,
}

/// Parts of a file's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Who owns it.
    Owner,
    /// The group.
    Group,
    /// Permissions.
    Mode,
    /// The set-user-id and set-group-id bits: never given to a file whose owner is another.
    SetId,
    /// All extended attributes.
    Xattrs,
    /// One of them, with its name.
    Xattr(Box<[u8]>),
    /// Both times.
    Times,
    /// What only the owner may set, who is another.
    OfAnother,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner => f.write_str("owner"),
            Self::Group => f.write_str("group"),
            Self::Mode => f.write_str("permissions"),
            Self::SetId => f.write_str("set-id bits"),
            Self::Xattrs => f.write_str("extended attributes"),
            Self::Xattr(name) => write!(f, "attribute {}", Shown(name)),
            Self::Times => f.write_str("times"),
            Self::OfAnother => f.write_str("permissions and times"),
        }
    }
}

/// What applying metadata came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// Anything was not yet as wanted, and now is.
    pub changed: bool,
    /// What could not be had.
    pub left_out: Vec<LeftOut>,
}
