// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of congestion controls.

use longhaul_command::exit::Refusal;
use std::{io, path::PathBuf};

/// Error of one line, which names the remedy where there is one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Unknown congestion control.
    #[error("longhaul has no congestion control {name:?}; it has {known}")]
    Unknown {
        /// Requested name.
        name: String,
        /// All names.
        known: String,
    },
    /// An unknown parameter, or a value out of range.
    #[error("{0}")]
    Parameter(String),
    /// The caller lacks rights.
    #[error("{0}")]
    Denied(String),
    /// The kernel lacks something.
    #[error("{0}")]
    Kernel(String),
    /// This crate was built without the feature `bpf`.
    #[error("this longhaul was built without eBPF (cargo feature bpf)")]
    WithoutBpf,
    /// The name is registered by another program.
    #[error(
        "the name {0} is taken: something that is not pinned below {1} registered it \
         (bpftool struct_ops list)"
    )]
    Taken(String, PathBuf),
    /// A congestion control is loaded with other parameters or by another longhaul.
    #[error("{0}")]
    Loaded(String),
    /// The congestion control is not loaded.
    #[error("{0} is not loaded")]
    NotLoaded(String),
    /// An operation on the pins failed.
    #[error("{path}: {reason}")]
    Pins {
        /// Path of the pin.
        path: PathBuf,
        /// The kernel's answer.
        reason: io::Error,
    },
    /// libbpf or the kernel failed.
    #[error("cannot {step}: {reason}")]
    Failed {
        /// Step that failed.
        step: &'static str,
        /// Their message, on one line.
        reason: String,
    },
}

impl Error {
    /// Converts it to a command's error with its exit code. A wrong request is a usage error (2). What this build does
    /// not have, or this machine does not allow, is unsupported (3). All others are failures (1).
    #[must_use]
    pub fn refusal(self) -> anyhow::Error {
        match self {
            Self::Unknown { .. } | Self::Parameter(_) => Refusal::usage(self),
            Self::Denied(_) | Self::Kernel(_) | Self::WithoutBpf | Self::Taken(..) => {
                Refusal::unsupported(self)
            }
            _ => self.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_command::exit::report_outcome;

    #[test]
    fn exit_codes_distinguish_usage_and_unsupported() {
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
            (Error::WithoutBpf, 3),
            (Error::Taken("htcp".to_owned(), PathBuf::from("/")), 3),
            (Error::Loaded("htcp is loaded".to_owned()), 1),
            (failed, 1),
        ] {
            assert_eq!(report_outcome(&Err(error.refusal())), code);
        }
    }
}
