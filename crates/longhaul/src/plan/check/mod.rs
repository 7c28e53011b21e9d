// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul plan check`.
use anyhow::Result;
/// Arguments of `longhaul plan check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}
pub(super) fn run(_args: &Args) -> Result<()> {
    anyhow::bail!("not yet")
}
