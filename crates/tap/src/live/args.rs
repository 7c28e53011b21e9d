// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command-line arguments of `longhaul tap live`.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are printed without changes"
)]

use super::Config;
use crate::capture::SourceArgs;
use anyhow::Result;
use longhaul_units::Time;

const EXAMPLES: &str = "\
Examples:
  Flows of an interface, the fastest first:
    longhaul tap live -i eth0
  One service, as a JSON record for each flow and second:
    longhaul tap live -i eth0 --filter 'tcp port 5201' --json | jq .upload.acks
  Half a minute to a file, in plain lines:
    longhaul tap live -i eth0 --duration 30s > flows.txt

Keys: q quit, s sort by next column, p pause, up and down select, enter one flow over time or all.
ACKs are those for a flow's data, in the opposite direction; packets are counted as on the wire.";

/// Arguments of `longhaul tap live`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    source: SourceArgs,
    /// Print a record for each flow and second as JSON lines
    #[arg(long)]
    json: bool,
    /// Stop after this time
    #[arg(long, value_name = "TIME")]
    duration: Option<Time>,
}

impl Args {
    /// Returns the configuration that the flags select.
    ///
    /// # Errors
    /// A value is not valid: a refusal that names the flag.
    pub(super) fn config(&self) -> Result<Config> {
        Ok(Config {
            source: self.source.source()?,
            json: self.json,
            duration: self.duration,
        })
    }
}
