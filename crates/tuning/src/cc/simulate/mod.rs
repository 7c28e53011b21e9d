// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc simulate`: TCP flows over a shared path under simulated time.

mod args;
mod config;
mod record;
mod run;
mod summary;

pub(super) use args::Args;

/// Runs the command.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    run::run(config::Config::read(args)?, args.json)
}
