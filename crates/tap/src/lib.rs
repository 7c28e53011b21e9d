// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul tap`: captures the headers of TCP connections and reports what their data streams and their
//! ACK streams did (paper 001's TAPEE, in software).
//!
//! `longhaul_flow` has the analysis, without I/O. The modules here have threads, files and output texts.
//! `longhaul_packet::capture` reads the file formats.
//!
//! # Tour
//!
//! | folder | subject |
//! |---|---|
//! | `capture` | `tap capture`: packet rings to pcapng, a thread for each interface |
//! | `live` | `tap live`: the same rings, sampled each second, drawn without knowledge of a terminal |
//! | `analyze` | `tap analyze`: files in, batches over a worker pool, shards of flows; the outcome never depends on the threads |
//! | `report` | `result.json`, the charts' data, the HTML page |
//! | `series` | every bin of every direction, as CSV or Parquet |
//! | `diff` | `tap diff`: two flows side by side |
//!
//! ```no_run
//! use clap::Parser;
//!
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     tap: longhaul_tap::Args,
//! }
//!
//! let cli = Cli::parse_from(["tap", "analyze", "record.pcapng"]);
//! longhaul_tap::run(&cli.tap).unwrap();
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod analyze;
mod args;
mod capture;
mod diff;
mod live;
mod report;
mod series;

pub use analyze::capture;
use anyhow::Result;
pub use args::Args;
use args::Command;
pub use report::AnalysisReport;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Analyze(args) => analyze::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Capture(args) => capture::run(args),
        Command::Live(args) => live::run(args),
    }
}
