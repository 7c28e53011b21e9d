// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul relay`.

/// Arguments of `longhaul relay`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Runs the command.
pub(crate) fn run(_args: Args) -> anyhow::Result<()> {
    Err(crate::exit::Refusal::unsupported("not built yet"))
}
