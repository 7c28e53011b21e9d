// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where loaded congestion controls are kept, and what a failure there means for the exit code.

use longhaul_command::exit::Refusal;
use longhaul_congestion::{Kind, pins::Pins};
use std::path::PathBuf;

/// Where loaded congestion controls are kept.
#[derive(Debug, clap::Args)]
pub(super) struct Place {
    /// BPF file system that keeps what is loaded; mounted if it is not
    #[arg(long, value_name = "DIR", default_value = longhaul_congestion::pins::DEFAULT)]
    bpffs: PathBuf,
}

impl Place {
    pub(super) fn pins(&self) -> Pins {
        Pins::at(&self.bpffs)
    }
}

/// The exit code is that of the error's kind.
pub(super) fn refusal(error: longhaul_congestion::Error) -> anyhow::Error {
    match error.kind() {
        Kind::Usage => Refusal::usage(error),
        Kind::Unsupported => Refusal::unsupported(error),
        Kind::Failed => error.into(),
    }
}
