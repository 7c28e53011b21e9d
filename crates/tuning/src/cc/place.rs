// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where loaded congestion controls are kept.

use longhaul_congestion::pins::Pins;
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
