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
//! longhaul_planner::run(&cli.plan).unwrap();
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod check;
mod estimate;
#[cfg(test)]
mod golden;
mod path;
mod probe;
mod simulated;
mod split;

use anyhow::Result;
use clap::Subcommand;

const EXAMPLES: &str = "\
Examples:
  longhaul plan path --rate 10gbit --rtt 180ms --loss 0.01%
      what each congestion control comes to, what limits it, how many streams would fill the line
  longhaul plan split --sites sites.toml --from tokyo --to kagoshima
      where relays belong, and what each brings
  longhaul plan probe --serve 192.0.2.7:5990 --for 10min
      let others measure the path to this host
  longhaul plan probe 192.0.2.7:5990
      round trip, loss, path MTU and capacity from here
  longhaul plan check out/result.json
      predictions beside what the lab measured

docs/plan.md has the formulas with their sources, and how far each was off.";

/// Arguments of `longhaul plan`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Predict throughput over one path, for each congestion control
    Path(Box<path::Args>),
    /// Find the best relays among candidate sites
    Split(split::Args),
    /// Measure round trip, loss, path MTU and capacity, or let others measure
    Probe(probe::Args),
    /// Put predictions beside results of the lab
    Check(check::Args),
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Path(args) => path::run(args),
        Command::Split(args) => split::run(args),
        Command::Probe(args) => probe::run(args),
        Command::Check(args) => check::run(args),
    }
}
