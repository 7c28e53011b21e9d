// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of operations on the entries of a tree.

use crate::{
    part::{PartError, piece_header::PieceHeaderError},
    path::{BadPath, RelPath},
};
use rustix::io::Errno;

/// Operation on an entry of a tree that failed or was refused.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The system refused.
    #[error("{}: cannot {action}: {}", display_path(path.as_ref()), errno_text(*errno))]
    System {
        /// Entry; `None` for the top.
        path: Option<RelPath>,
        /// Operation that failed, as an infinitive.
        action: &'static str,
        /// Error of the system.
        errno: Errno,
    },
    /// The name cannot be copied.
    #[error(transparent)]
    Name(#[from] BadPath),
    /// A piece of a file cannot be read.
    #[error("{path}: {reason}")]
    Piece {
        /// Internal file that is not valid.
        path: RelPath,
        /// Reason.
        reason: PieceHeaderError,
    },
    /// A piece cannot be removed.
    #[error("{}{error}", path.parent().map_or_else(String::new, |dir| format!("{dir}/")))]
    Part {
        /// File of the piece.
        path: RelPath,
        /// Reason; names the file without its directory.
        error: Box<PartError>,
    },
    /// This program refuses.
    #[error("{path}: {refusal}")]
    Refused {
        /// Entry that is refused.
        path: RelPath,
        /// Reason.
        refusal: Refusal,
    },
}

/// Reason why this program refuses an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The directory would be created where the link points.
    #[error("a symbolic link is in the way of a directory, and is not followed; remove it first")]
    SymlinkForDirectory,
    /// The contents of the directory would be lost.
    #[error("a directory is in the way; remove or move it first")]
    DirectoryInTheWay,
    /// The machine may need the device.
    #[error("a device is in the way; remove or move it first")]
    DeviceInTheWay,
    /// The file in place of the directory would be lost.
    #[error(
        "an entry that is not a directory is in the way of a directory; remove or move it first"
    )]
    NonDirectoryInTheWay,
    /// Parts and journals of running copies have such names.
    #[error("names that begin with .longhaul- are reserved for internal files")]
    InternalName,
    /// Files in /proc are like this: their length is known only when they are read.
    #[error("it has data, although its length is 0; write the data into a file, and copy that")]
    NoLength,
    /// A directory cannot have hard links.
    #[error("the file that it is to be a hard link to is a directory")]
    LinkToDirectory,
}

impl Failure {
    /// Error of the system, if the system refused.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::System { errno, .. } => Some(*errno),
            Self::Piece {
                reason: PieceHeaderError::System(errno),
                ..
            } => Some(*errno),
            _ => None,
        }
    }

    /// Entry of the failure; `None` for the top, or for a name that cannot be copied.
    #[must_use]
    pub fn path(&self) -> Option<&RelPath> {
        match self {
            Self::System { path, .. } => path.as_ref(),
            Self::Piece { path, .. } | Self::Part { path, .. } | Self::Refused { path, .. } => {
                Some(path)
            }
            Self::Name(_) => None,
        }
    }

    /// Whether there is no entry of that name.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.errno() == Some(Errno::NOENT)
    }

    /// Returns a function that turns an error of the system into a failure of `action` at `path`.
    pub(crate) fn at(path: Option<&RelPath>, action: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::System {
            path: path.cloned(),
            action,
            errno,
        }
    }
}

fn display_path(path: Option<&RelPath>) -> String {
    path.map_or_else(|| ".".into(), RelPath::to_string)
}

/// Text for an error of the system. The system's own text for these two does not explain the cause.
fn errno_text(errno: Errno) -> String {
    match errno {
        Errno::LOOP => "a symbolic link is in the path, and is not followed".into(),
        Errno::NOTDIR => "a component of the path is not a directory".into(),
        _ => errno.to_string(),
    }
}
