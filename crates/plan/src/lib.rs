// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul plan`: predicts the throughput of TCP over a path and the best places for relays.
//!
//! `longhaul_tcpsim::formulas` has the formulas and finds chains of relays. `simulated` runs TCP under simulated time
//! where a formula is known to be inaccurate. `probe` measures paths and writes the input of `split`.
//!
//! ```no_run
//! use clap::Parser;
//!
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     plan: longhaul_plan::Args,
//! }
//!
//! let cli = Cli::parse_from(["plan", "path", "--rate", "1gbit", "--rtt", "100ms"]);
//! longhaul_plan::run(cli.plan).unwrap();
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod args;
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
        Command::Measure(args) => probe::run(args.task()?),
    }
}
