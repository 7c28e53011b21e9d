// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `longhaul tap analyze` is told on the command line.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are printed as they stand"
)]

use clap::{Args as _, FromArgMatches};
use longhaul_units::{Bytes, Time};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

const EXAMPLES: &str = "\
Examples:
  A capture, with a report that opens offline:
    longhaul tap analyze trace.pcapng -o out/trace
  What a rotating capture wrote, in any order, and series for a spreadsheet:
    longhaul tap analyze trace-*.pcap -o out/trace --csv
  The same transfer captured at both ends, for one-way delay and where packets were lost:
    longhaul tap analyze sender.pcapng receiver.pcapng -o out/both
  The result on standard output, from another program's:
    tcpdump -i eth0 -s 128 -w - 'tcp port 5201' | longhaul tap analyze - --json > result.json

Files are pcap or pcapng, plain or gzip. Those that continue each other (same interfaces, no overlap
in time) are one capture; those that overlap are seen from different places.";

/// Arguments of `longhaul tap analyze`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Captures: pcap or pcapng, plain or gzip, files or FIFOs; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Write result.json, report.html and series there; made if it is not there
    #[arg(short, long, value_name = "DIR", required_unless_present = "json")]
    pub(super) out: Option<PathBuf>,
    /// Width of the fine bins of every series, 10us to 1s; there are bins of 1 s beside them
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    pub(super) bin: Time,
    /// Print the result as JSON on standard output
    #[arg(long)]
    pub(super) json: bool,
    /// Threads that work [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) threads: Option<u16>,
    /// How many of the largest flows are drawn in the report and named on the terminal
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(super) flows: u16,
    /// Write every flow's series as CSV
    #[arg(long, requires = "out")]
    pub(super) csv: bool,
    /// Write every flow's series as Parquet
    #[arg(long, requires = "out")]
    pub(super) parquet: bool,
    /// What flows may take, 16MB or more: half for what is in flight and for their courses, a quarter for
    /// flows under way, 16 KB each; of more at once, those that were silent longest are cut in two
    #[arg(long, value_name = "SIZE", default_value = "1GB")]
    pub(super) memory: Bytes,
}

impl Args {
    /// One capture, and all flags as they are if not given.
    pub(super) fn of(file: &Path) -> Self {
        let command = Self::augment_args(clap::Command::new("analyze").no_binary_name(true));
        let given = [OsStr::new("--json"), OsStr::new("--"), file.as_os_str()];
        let parsed = command.try_get_matches_from(given);
        let args = parsed.and_then(|matches| Self::from_arg_matches(&matches));
        args.expect("a file is all that is required")
    }
}
