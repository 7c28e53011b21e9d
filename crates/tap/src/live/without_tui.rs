// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refusal of the screen, for a build without the feature `tui`.

use super::Samplers;
use crate::capture::Source;
use anyhow::Result;
use longhaul_command::exit::Refusal;

impl Samplers {
    /// Refuses: exit code 3.
    pub(super) fn show(&self, _source: &Source) -> Result<()> {
        Err(Refusal::unsupported(
            "this longhaul was built without the screen (cargo feature tui): use --json, or send lines to a file",
        ))
    }
}
