// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul doctor`.

use longhaul_units::{BitRate, Time};
use std::path::PathBuf;

/// Arguments of `longhaul doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Rate that the path should carry
    #[arg(long, default_value = "10gbit")]
    pub(super) rate: BitRate,
    /// Round-trip time of the path
    #[arg(long, default_value = "200ms")]
    pub(super) rtt: Time,
    /// Number of concurrent connections
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(super) connections: u64,
    /// Also check the requirements of a transparent relay
    #[arg(long)]
    pub(super) transparent: bool,
    /// Print the findings, and the facts about this host, as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Check another host, by the JSON that --json printed there ('-' is standard input)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fix", "undo", "clean"])]
    pub(super) facts: Option<PathBuf>,

    /// Apply the fixes that are kernel settings, after recording the old values
    #[arg(long, conflicts_with_all = ["undo", "clean"], help_heading = "Changes (root)")]
    pub(super) fix: bool,
    /// With --fix: only settings whose names have this prefix; repeatable
    #[arg(
        long,
        value_name = "PREFIX",
        requires = "fix",
        help_heading = "Changes (root)"
    )]
    pub(super) filter: Vec<String>,
    /// With --fix: also write the settings to FILE, for the next boot [default FILE:
    /// /etc/sysctl.d/90-longhaul.conf]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, requires = "fix",
          default_missing_value = "/etc/sysctl.d/90-longhaul.conf", help_heading = "Changes (root)")]
    pub(super) persist: Option<PathBuf>,
    /// Restore the settings that --fix changed
    #[arg(long, conflicts_with = "clean", help_heading = "Changes (root)")]
    pub(super) undo: bool,
    /// Remove leftovers of a killed longhaul: an interrupted --fix, nft tables, routing rules
    #[arg(long, help_heading = "Changes (root)")]
    pub(super) clean: bool,
}

const EXAMPLES: &str = "\
Examples:
  longhaul doctor
      which settings limit this host below 10 Gbit/s at 200 ms?
  longhaul doctor --rate 1gbit --rtt 26ms --connections 10000 --transparent
      and for a transparent relay on a shorter path?
  sudo longhaul doctor --fix --persist; sudo longhaul doctor --undo
      apply the kernel settings, also for the next boot; restore the old ones
  sudo longhaul doctor --fix --filter net.ipv4.tcp_
      apply only the settings of TCP
  ssh far longhaul doctor --json | longhaul doctor --facts - --rtt 350ms
      check another host

The manual explains each check.

Exit codes: 0 nothing limits that path, 1 something does (or a change failed), 2 usage, 3 --fix,
--undo or --clean without root.";
