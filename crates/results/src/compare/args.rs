// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `longhaul lab compare`.

use super::rule::rule_of_noise;
use std::path::PathBuf;

/// `longhaul lab compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = compare_help())]
pub struct Compare {
    /// Directory that a run wrote, or its result.json
    #[arg(value_name = "FIRST")]
    pub first: PathBuf,
    /// Another
    #[arg(value_name = "SECOND")]
    pub second: PathBuf,
    /// Every metric of every cell, not only the main one and what differs
    #[arg(long)]
    pub all: bool,
    /// The comparison as JSON
    #[arg(long)]
    pub json: bool,
    /// Also write both side by side as one offline page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

fn compare_help() -> String {
    let rule = rule_of_noise();
    format!(
        "\
FIRST is called A, SECOND B. A figure of B is marked as better or worse than A's when noise does not explain it:
  {}

Examples:
  longhaul lab compare out/before out/after
  longhaul lab compare out/before out/after --html compare.html",
        rule.join("\n  ")
    )
}
