// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul plan`: how fast TCP can be over a path, where relays belong, and how right that is.
//!
//! `longhaul_tcpsim::formulas` has the formulas and finds chains, `simulated` runs TCP under simulated time
//! where a formula is known to be off; `probe` measures paths and writes what `split` reads; `check`
//! holds predictions against results of the lab.
//!
//! ```no_run
//! use clap::Parser;
//!
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     plan: longhaul_planner::Args,
//! }
//!
//! let cli = Cli::parse_from(["plan", "path", "--rate", "1gbit", "--rtt", "100ms"]);
//! longhaul_planner::run(cli.plan).unwrap();
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod args;
mod check;
mod estimate;
#[cfg(test)]
mod golden;
mod path;
mod probe;
mod simulated;
mod split;

pub use args::Args;

use anyhow::Result;
use args::Command;

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Path(args) => path::run(&args.config()?),
        Command::Split(args) => split::run(&args.config()?),
        Command::Probe(args) => probe::run(args.task()?),
        Command::Check(args) => check::run(&args.config()?),
    }
}
