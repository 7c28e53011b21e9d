// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul link`.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are printed unchanged"
)]

use crate::{
    config::{self, Config, file, options::LinkOptions},
    counters::Direction,
};
use anyhow::Result;
use longhaul_units::{Time, WithInput};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  A 10 Gbit/s path with 26 ms RTT between two existing namespaces:
    longhaul link --left client:wan0:10.9.0.1/30 --right server:wan0:10.9.0.2/30 \\
        --delay 13ms --rate 10gbit --queue 1bdp
  Loss in one direction only, and a path switch after 30 s:
    longhaul link --left client:wan0:10.9.0.1/30 --right server:wan0:10.9.0.2/30 \\
        --delay 19ms --rate 1gbit --backward 'loss=0.1%' --at '30s: delay 40ms'
  Several links from a file:
    longhaul link --config path.toml
  With a record of every segment at both ends:
    longhaul link … --capture wan.pcapng
  A change of the running link that was started with --name wan:
    longhaul link set wan delay 40ms
  Back to the default; then print the current settings:
    longhaul link set wan loss default; longhaul link show wan

Settings apply to both directions; --forward (left to right) and --backward override them.
Jitter keeps the order of segments unless it says reorder, which lengthens the delays of close segments unless it
varies slowly (correlation). At an unlimited rate there is no queue.";

/// Arguments of `longhaul link`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    #[command(flatten)]
    pub(super) start: StartArgs,
}

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Change a running link
    Set {
        /// Name of the link, as given by --name
        name: String,
        /// Setting to change, named as its flag without --: delay, rate, loss …
        key: String,
        /// New value, or default
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// Change only this direction [default: both]
        #[arg(long, value_enum)]
        direction: Option<DirectionArg>,
    },
    /// Print the current settings and the counters of a running link
    Show {
        /// Name of the link, as given by --name [default: the only one that runs]
        name: Option<String>,
        /// Print one JSON object per direction
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum DirectionArg {
    /// Left to right
    Forward,
    /// Right to left
    Backward,
}

impl DirectionArg {
    pub(super) fn direction(self) -> Direction {
        match self {
            Self::Forward => Direction::Forward,
            Self::Backward => Direction::Backward,
        }
    }
}

#[derive(clap::Args)]
pub(super) struct StartArgs {
    /// TOML file with any number of links, instead of the flags
    #[arg(long, value_name = "FILE", conflicts_with_all = ["settings", "left", "right", "name", "forward", "backward",
        "mtu", "delivery", "no_offload", "seed", "memory", "capture", "snap_length", "capture_memory"])]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) link: LinkOptions,
    /// Threads per link: 1, or 2 (one per direction) if cores are free
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=2))]
    pub(super) threads: usize,
    /// Run at real-time priority (SCHED_RR): delays are more exact on busy cores, but throughput is lower
    #[arg(long)]
    pub(super) realtime: bool,
    /// Write counters to this file as JSON lines; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) counters: Option<PathBuf>,
    /// Interval at which counters are written and shown, at least 1ms
    #[arg(long, default_value = "1s", value_name = "TIME")]
    pub(super) interval: WithInput<Time>,
    /// End after this time
    #[arg(long, value_name = "TIME")]
    pub(super) duration: Option<Time>,
}

impl StartArgs {
    /// Returns the configuration: one link from flags, or all links of a file.
    ///
    /// # Errors
    /// Exit code 2: the error, with the link's name.
    pub(super) fn config(&self) -> Result<Config> {
        config::check_interval(&self.interval)?;
        let config = Config {
            links: match &self.config {
                Some(path) => file::read(path)?,
                None => vec![self.link.link(Path::new("."))?],
            },
            threads: self.threads,
            realtime: self.realtime,
            counters: self.counters.clone(),
            interval: self.interval.value,
            duration: self.duration,
        };
        config.check()
    }
}
