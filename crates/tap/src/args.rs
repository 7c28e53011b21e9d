// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command-line arguments of `longhaul tap`. Each subcommand has flags of its own.

use super::{analyze, capture, diff, live};
use clap::Subcommand;

const EXAMPLES: &str = "\
Examples:
  longhaul tap capture -i eth0 --filter 'tcp port 5201' -w trace.pcapng
      headers of every packet, until Ctrl-C
  longhaul tap live -i eth0
      flows with their data and ACK rates, each second
  longhaul tap analyze trace.pcapng -o out/trace
      every flow of a capture: result.json and a report that opens offline
  longhaul tap diff out/before out/after -o out/both
      two analyses side by side";

/// Arguments of `longhaul tap`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Report what limited each TCP flow of a capture, from its data and its ACK stream
    Analyze(analyze::Args),
    /// Compare two flows: figures, and charts on one scale
    Diff(diff::Args),
    /// Capture the packet headers of interfaces, with the segment size of super-packets
    Capture(capture::Args),
    /// Show live flows each second: data rate, ACK rate, retransmissions and round trips
    Live(live::Args),
}
