// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc`: congestion controls.

mod simulate;

use anyhow::Result;
use clap::Subcommand;

/// Arguments of `longhaul cc`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Simulate flows over a shared path: hours at 100 Gbit/s in minutes
    Simulate(Box<simulate::Args>),
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Simulate(args) => simulate::run(args),
    }
}
