// SPDX-License-Identifier: MIT OR Apache-2.0
//! What cannot be done, or is not done, to something in a tree, and why.

use crate::{
    part::{PartError, label::BadLabel},
    path::{BadPath, RelPath},
};
use rustix::io::Errno;

/// Something that could not be done to something in a tree.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The operating system refused.
    #[error("{}: cannot {doing}: {}", shown(path.as_ref()), says(*errno))]
    System {
        /// What it was done to; none is the top.
        path: Option<RelPath>,
        /// What was being done, as an infinitive.
        doing: &'static str,
        /// The system's answer.
        errno: Errno,
    },
    /// A name that cannot be copied.
    #[error(transparent)]
    Name(#[from] BadPath),
    /// A piece of a file cannot be read.
    #[error("{path}: {why}")]
    Piece {
        /// Our own of it that something is wrong with.
        path: RelPath,
        /// What.
        why: BadLabel,
    },
    /// A piece cannot be removed.
    #[error("{}{error}", path.parent().map_or_else(String::new, |dir| format!("{dir}/")))]
    Part {
        /// Its file.
        path: RelPath,
        /// Why not; names the file without its directory.
        error: Box<PartError>,
    },
    /// We refuse.
    #[error("{path}: {why}")]
    Refused {
        /// What it was about.
        path: RelPath,
        /// Why.
        why: Refusal,
    },
}

/// Why we do not do what we could.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It would go where the link points.
    #[error("a symbolic link is in the way of a directory, and is not followed; remove it first")]
    SymlinkForDirectory,
    /// Its content would be lost.
    #[error("a directory is in the way; remove or move it first")]
    DirectoryInTheWay,
    /// The machine may need it.
    #[error("a device is in the way; remove or move it first")]
    DeviceInTheWay,
    /// Something else is lost.
    #[error("something that is no directory is in the way of one; remove or move it first")]
    NoDirectoryInTheWay,
    /// Parts and journals of running copies are called so.
    #[error("names that begin with .longhaul- are kept for the copy's own files")]
    OwnName,
    /// Files of /proc are so: their length is known only when they are read.
    #[error(
        "it has data, and says that its length is 0; write what it says into a file, and copy that"
    )]
    NoLength,
    /// A hard link cannot be one to a directory.
    #[error("the file that it is to be a hard link to is a directory")]
    LinkToDirectory,
}

impl Failure {
    /// The system's answer, if it was the system.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::System { errno, .. } => Some(*errno),
            Self::Piece {
                why: BadLabel::System(errno),
                ..
            } => Some(*errno),
            _ => None,
        }
    }

    /// What it was about; none is the top, or what has no name that could be copied.
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

    /// Whether there is nothing of that name.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.errno() == Some(Errno::NOENT)
    }

    /// Says what `doing` failed at `path`.
    pub(crate) fn at(path: Option<&RelPath>, doing: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::System {
            path: path.cloned(),
            doing,
            errno,
        }
    }
}

fn shown(path: Option<&RelPath>) -> String {
    path.map_or_else(|| ".".into(), RelPath::to_string)
}

/// The system's own words for these two lead nowhere.
fn says(errno: Errno) -> String {
    match errno {
        Errno::LOOP => "a symbolic link is in the way, and is not followed".into(),
        Errno::NOTDIR => "something in the way is no directory".into(),
        _ => errno.to_string(),
    }
}
