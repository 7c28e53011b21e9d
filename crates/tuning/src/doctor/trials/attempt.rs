// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attempt to use a feature, and its result.

use crate::doctor::facts::{Outcome, Trial};
use longhaul_congestion::Error;
use longhaul_linux::netfilter::nft::NftError;
use std::io;

/// Pacing of ACKs, which needs a tc class and the programs of [`ACK_THINNING`].
pub(super) const ACK_PACING: &str = "run --ack-rate";
/// Thinning of ACKs.
pub(super) const ACK_THINNING: &str = "run --ack-ratio";
/// Rights of features that load BPF programs.
pub(super) const BPF_RIGHTS: &str = "root (CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN)";

/// Reason why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The feature does not work here.
    Fails(String),
    /// The caller lacks the rights to try it, or this build lacks the code, so nothing is known.
    Untried(String),
}

/// Function that tries a feature.
pub(super) type Attempt = fn() -> Result<(), Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Denied(reason) => Self::Untried(reason),
            Error::WithoutBpf => Self::Untried(Error::WithoutBpf.to_string()),
            other => Self::Fails(other.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Untried(error.to_string()),
            _ => Self::Fails(error.to_string()),
        }
    }
}

impl From<NftError> for Failure {
    fn from(error: NftError) -> Self {
        Self::Fails(error.to_string())
    }
}

/// Creates the trial of a feature, which needs the rights `needs`, from its outcome.
pub(super) fn new_trial(
    feature: impl Into<String>,
    needs: &str,
    outcome: Result<(), Failure>,
) -> Trial {
    let (outcome, reason) = match outcome {
        Ok(()) => (Outcome::Works, String::new()),
        Err(Failure::Fails(reason)) => (Outcome::Fails, reason),
        Err(Failure::Untried(reason)) => (Outcome::Untried, reason),
    };
    Trial {
        feature: feature.into(),
        needs: needs.to_owned(),
        outcome,
        reason,
    }
}
