// SPDX-License-Identifier: MIT OR Apache-2.0
//! An attempt at a feature, and what came of it.

use crate::doctor::facts::{Outcome, Trial};
use longhaul_congestion::Error;
use longhaul_linux::netfilter::nft::NftError;
use std::io;

/// ACKs at a rate, which takes a class of tc's and the programs of [`THINNING`].
pub(super) const PACING: &str = "run --ack-pace";
/// Fewer ACKs.
pub(super) const THINNING: &str = "run --ack-ratio";
/// What takes programs in the kernel takes them all.
pub(super) const ROOT: &str = "root (CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN)";

/// Why a feature was not seen at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// It does not work here.
    Fails(String),
    /// The caller's rights do not reach that far, so nothing is known.
    Untried(String),
}

/// How a feature is tried.
pub(super) type Attempt = fn() -> Result<(), Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Denied(reason) => Self::Untried(reason),
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

/// What came of trying a feature, which takes the rights `needs`.
pub(super) fn trial(
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
