// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul link`.

/// Arguments of `longhaul link`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Runs the command.
pub(crate) fn run(_args: Args) -> anyhow::Result<()> {
    Err(crate::exit::Refusal::unsupported("not built yet"))
}
