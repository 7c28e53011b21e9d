// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can stand in a congestion control's way.

use longhaul_command::exit::Refusal;
use std::{io, path::PathBuf};

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
    /// As the end of a command, with the exit code of whose matter it is: the caller's, who asked for what does not
    /// exist; this machine's, whose kernel, user or state does not allow it; or neither's, where something went wrong
    /// on the way.
    #[must_use]
    pub fn refusal(self) -> anyhow::Error {
        match self {
            Self::Unknown { .. } | Self::Parameter(_) => Refusal::usage(self),
            Self::Denied(_) | Self::Kernel(_) | Self::Taken(..) => Refusal::unsupported(self),
            _ => self.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_command::exit::exit_code;

    #[test]
    fn the_exit_code_says_whose_matter_an_error_is() {
        let unknown = Error::Unknown {
            name: "htpc".to_owned(),
            known: "htcp".to_owned(),
        };
        let failed = Error::Failed {
            step: "load htcp",
            reason: "no memory".to_owned(),
        };
        for (error, code) in [
            (unknown, 2),
            (Error::Parameter("ai=0".to_owned()), 2),
            (Error::Denied("run as root".to_owned()), 3),
            (Error::Kernel("no BTF".to_owned()), 3),
            (Error::Taken("htcp".to_owned(), PathBuf::from("/")), 3),
            (Error::Loaded("htcp is loaded".to_owned()), 1),
            (failed, 1),
        ] {
            assert_eq!(exit_code(&Err(error.refusal())), code);
        }
    }
}
