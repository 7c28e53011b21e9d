// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can stand in a congestion control's way.

use std::{io, path::PathBuf};

/// Whose matter an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The caller asked for what does not exist; nothing was touched.
    Usage,
    /// This kernel, this user or this machine's state does not allow it.
    Unsupported,
    /// Something went wrong on the way, and was undone.
    Failed,
}

/// One line each, which names the way out where there is one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such congestion control here.
    #[error("no congestion control {name:?} here; there are {known}")]
    Unknown {
        /// As asked for.
        name: String,
        /// All names.
        known: String,
    },
    /// A parameter that it does not have, or a value out of its range.
    #[error("{0}")]
    Parameter(String),
    /// The caller's rights don't reach.
    #[error("{0}")]
    Denied(String),
    /// The kernel lacks something.
    #[error("{0}")]
    Kernel(String),
    /// Something else registered a congestion control of this name.
    #[error(
        "the name {0} is taken: something that is not pinned below {1} registered it \
         (bpftool struct_ops list)"
    )]
    Taken(String, PathBuf),
    /// It is loaded, with other parameters or by another longhaul.
    #[error("{0}")]
    Loaded(String),
    /// It is not loaded.
    #[error("{0} is not loaded")]
    NotLoaded(String),
    /// The file system of pins.
    #[error("{path}: {source}")]
    Pins {
        /// Where.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// libbpf or the kernel's verifier said no.
    #[error("cannot {step}: {reason}")]
    Failed {
        /// What was being done.
        step: &'static str,
        /// Their words, on one line.
        reason: String,
    },
}

impl Error {
    /// Whose matter it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Unknown { .. } | Self::Parameter(_) => Kind::Usage,
            Self::Denied(_) | Self::Kernel(_) | Self::Taken(..) => Kind::Unsupported,
            _ => Kind::Failed,
        }
    }
}
