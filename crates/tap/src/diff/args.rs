// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command-line arguments of `longhaul tap diff`.

use super::Config;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  Two analyses, with a page of both flows' charts on one scale:
    longhaul tap diff out/reno out/cubic -o out/reno-cubic
  Two captures, which are analysed first:
    longhaul tap diff before.pcapng after.pcapng
  Flows other than the largest, by their numbers in result.json:
    longhaul tap diff out/reno out/cubic --flow-a 17 --flow-b 3 --json

Of each flow, the direction with more data is compared.";

/// Arguments of `longhaul tap diff`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A directory that 'longhaul tap analyze -o' wrote, or a capture
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Directory or capture to compare A with
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Number of A's flow in result.json [default: the largest]
    #[arg(long, value_name = "N")]
    flow_a: Option<u64>,
    /// Number of B's flow [default: the largest]
    #[arg(long, value_name = "N")]
    flow_b: Option<u64>,
    /// Write diff.json and diff.html to this directory; created if it does not exist
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the comparison as JSON on standard output
    #[arg(long)]
    json: bool,
}

impl From<&Args> for Config {
    fn from(args: &Args) -> Self {
        Self {
            paths: [args.a.clone(), args.b.clone()],
            flows: [args.flow_a, args.flow_b],
            out: args.out.clone(),
            json: args.json,
        }
    }
}
