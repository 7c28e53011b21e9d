// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul lab`.

#[allow(dead_code, reason = "written by `lab run`, which is on its own branch")]
pub(crate) mod result;
#[allow(dead_code, reason = "called by `lab run`, which is on its own branch")]
pub(crate) mod summary;

/// Arguments of `longhaul lab`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Runs the command.
pub(crate) fn run(_args: Args) -> anyhow::Result<()> {
    Err(crate::exit::Refusal::unsupported("not built yet"))
}
