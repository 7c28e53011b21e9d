// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul plan split`.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are printed as they stand"
)]

use super::{
    super::{estimate::Method, path},
    config::Config,
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_tcpsim::formulas::{chain::RELAYS_MAX, relays::RelayOverhead};
use longhaul_units::{BitRate, Bytes, Ratio};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  longhaul plan split --sites sites.toml --from yoron --to tokyo
      the best chain with at most three relays
  longhaul plan split --sites a.json --sites b.json --from a --to b --overhead 9%
      from the output of longhaul plan measure --json at two sites; a relay costs 9 %
  longhaul plan split --sites sites.toml --from a --to b --cc cubic --window 1400KB --size 100MB
      all hops with CUBIC and windows of 1400 KB; time to transfer 100 MB

sites.toml (or JSON with the same keys):
  [sites.osaka]
  relay = true                # may relay; default
  forwarding_rate = \"9gbit\"   # highest rate of a relay there
  [[paths]]
  from = \"yoron\"
  to = \"osaka\"            # and back, unless a path says otherwise
  rtt = \"30.5ms\"
  loss = \"0.01%\"          # default 0
  rate = \"1gbit\"
  queue = \"1bdp\"          # default";

/// Arguments of `longhaul plan split`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Sites and paths, TOML or JSON; several files are merged
    #[arg(long, value_name = "FILE", required = true)]
    sites: Vec<PathBuf>,
    /// Sending site
    #[arg(long, value_name = "SITE")]
    from: String,
    /// Receiving site
    #[arg(long, value_name = "SITE")]
    to: String,
    /// Most relays in the chain
    #[arg(long, value_name = "N", default_value_t = 3)]
    relays: usize,
    /// Throughput that each relay costs: a share such as 9%, or a rate such as 3MB/s
    #[arg(long, value_name = "COST", default_value = "0%")]
    overhead: String,
    /// Congestion controls for a hop, separated by commas; the fastest is chosen
    #[arg(long, value_name = "NAMES", default_value = "cubic,bbr")]
    cc: String,
    /// Parallel connections on each hop
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    streams: u32,
    /// Window of every connection [default: TCP's largest]
    #[arg(long, value_name = "SIZE")]
    window: Option<Bytes>,
    /// Concurrent relayed connections, for the memory of relays
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    connections: u64,
    /// Also print the time to transfer this size on new connections
    #[arg(long)]
    size: Option<Bytes>,
    /// Method of estimation
    #[arg(long, value_enum, default_value_t)]
    method: Method,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Validates the arguments.
    pub(crate) fn config(self) -> Result<Config> {
        if self.relays > RELAYS_MAX {
            return Err(Refusal::usage(format!(
                "--relays {}: a chain has {RELAYS_MAX} relays at most",
                self.relays
            )));
        }
        Ok(Config {
            sites: self.sites,
            from: self.from,
            to: self.to,
            relays_max: self.relays,
            overhead: overhead(&self.overhead)?,
            controls: path::parse_controls(&self.cc)?,
            streams: self.streams,
            window: self.window,
            connections: self.connections,
            size: self.size,
            method: self.method,
            json: self.json,
        })
    }
}

/// Parses a cost: a share or a rate.
fn overhead(text: &str) -> Result<RelayOverhead> {
    let share = text.parse::<Ratio>().ok().filter(|share| share.get() < 1.0);
    match (share, text.parse::<BitRate>()) {
        (Some(share), _) => Ok(RelayOverhead {
            share: share.get(),
            ..RelayOverhead::default()
        }),
        (None, Ok(rate)) => Ok(RelayOverhead {
            per_relay_bps: rate.bits() as f64,
            ..RelayOverhead::default()
        }),
        (None, Err(error)) => Err(Refusal::usage(format!(
            "--overhead {text:?} is neither a share below 100% (9%) nor a rate (3MB/s): {error}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_cost_as_share_or_rate() {
        assert_eq!(overhead("9%").unwrap().share, 0.09);
        assert_eq!(overhead("3MB/s").unwrap().per_relay_bps, 24e6);
        for wrong in ["100%", "much", "-3%"] {
            assert!(overhead(wrong).is_err(), "{wrong}");
        }
    }
}
