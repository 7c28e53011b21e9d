// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc`: brings congestion controls to the running kernel, shows them at work, and runs them
//! under simulated time.
//!
//! The crate `congestion` loads, pins and reads.

mod default_setting;
mod list;
mod load;
mod output;
mod place;
mod show;
pub(crate) mod simulate;
mod unload;
mod watch;

use anyhow::Result;
use clap::Subcommand;

const EXAMPLES: &str = "\
Examples:
  longhaul cc list
      what this kernel has, what longhaul can bring
  sudo longhaul cc load bic
      every program may choose lh_bic now (TCP_CONGESTION, iperf3 -C lh_bic)
  sudo longhaul cc load bic --param ack_shift=3
      with a parameter; longhaul cc show bic names them all
  sudo longhaul cc watch
      window, rate and the algorithm's own state of each of its connections
  sudo longhaul cc unload bic
      connections that use it keep it until they close

docs/cc.md is the manual, docs/congestion-controls.md explains each of them.";

/// Arguments of `longhaul cc`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List congestion controls: the kernel's and those of longhaul
    List(list::Args),
    /// Bring a congestion control to this kernel, for all its programs and namespaces
    Load(load::Args),
    /// Take one away again; connections that use it go on with it
    Unload(unload::Args),
    /// Show one: its parameters, its state, its programs
    Show(show::Args),
    /// Watch the connections that use longhaul's congestion controls
    Watch(watch::Args),
    /// Simulate flows over a shared path: hours at 100 Gbit/s in minutes
    Simulate(Box<simulate::Args>),
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::List(args) => list::run(args),
        Command::Load(args) => load::run(args),
        Command::Unload(args) => unload::run(args),
        Command::Show(args) => show::run(args),
        Command::Watch(args) => watch::run(args),
        Command::Simulate(args) => simulate::run(args),
    }
}
