// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul tap analyze`: capture files in, what each flow did out.

mod args;
mod crew;

use anyhow::Result;
pub(crate) use args::Args;

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    anyhow::bail!("{}: not yet", args.files[0].display())
}
