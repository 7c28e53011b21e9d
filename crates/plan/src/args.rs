// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul plan`.

use crate::{estimate::Method, path, probe, split};
use clap::{ValueEnum, builder::PossibleValue};

const EXAMPLES: &str = "\
Examples:
  longhaul plan path --rate 10gbit --rtt 180ms --loss 0.01%
      throughput and limit of each congestion control, and the streams that would fill the link
  longhaul plan split --sites sites.toml --from tokyo --to kagoshima
      best places for relays, and the gain of each
  longhaul plan measure --serve 192.0.2.7:5990 --duration 10min
      let others measure the path to this host
  longhaul plan measure 192.0.2.7:5990
      round trip, loss, path MTU and capacity from here

The manual has the formulas, with their sources and their accuracy.";

/// Arguments of `longhaul plan`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Predict throughput over one path, for each congestion control
    Path(Box<path::Args>),
    /// Find the best relays among candidate sites
    Split(split::Args),
    /// Measure round trip, loss, path MTU and capacity, or let others measure
    Measure(probe::Args),
}

/// Values of `--method` of `plan path` and `plan split`.
impl ValueEnum for Method {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Auto, Self::Formula, Self::Simulate]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            Self::Auto => (
                "auto",
                "Simulate if the path loses packets, where no formula is exact; else use the formula",
            ),
            Self::Formula => ("formula", "Use the formula"),
            Self::Simulate => ("simulate", "Simulate TCP"),
        };
        Some(PossibleValue::new(name).help(help))
    }
}
