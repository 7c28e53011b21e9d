// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul plan validate`.

use super::config::Config;
use anyhow::Result;
use longhaul_command::exit::Refusal;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  longhaul plan validate out/relay-efficiency
      predicted and measured goodput of every flow in every cell
  longhaul plan validate --scenario mine.toml --set edge=50mbit out/mine
      the same for a scenario that is not built in, run with another parameter";

/// Arguments of `longhaul plan validate`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory that longhaul lab run wrote, or its result.json
    #[arg(value_name = "RESULT", required = true)]
    results: Vec<PathBuf>,
    /// Scenario that was run [default: the built-in scenario that the result names]
    #[arg(long, value_name = "SCENARIO")]
    scenario: Option<String>,
    /// Parameter that the run had, as given to lab run --set; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Validates the arguments.
    pub(crate) fn config(self) -> Result<Config> {
        Ok(Config {
            settings: settings(&self.set)?,
            results: self.results,
            scenario: self.scenario,
            json: self.json,
        })
    }
}

fn settings(set: &[String]) -> Result<Vec<(String, String)>> {
    let pair = |text: &String| {
        let pair = text.split_once('=');
        let pair = pair.map(|(name, value)| (name.to_owned(), value.to_owned()));
        pair.ok_or_else(|| Refusal::usage(format!("--set {text:?} is not NAME=VALUE")))
    };
    set.iter().map(pair).collect()
}
