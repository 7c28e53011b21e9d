// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul tap`: takes the headers of TCP connections and says what their data streams and their
//! ACK streams did (paper 001's TAPEE, in software).
//!
//! `longhaul_packet::capture` knows the files, `longhaul_analysis::flow` what a segment means; here are threads, files and
//! words.

mod analyze;
mod args;
mod capture;
mod diff;
mod live;
mod report;
mod series;

pub(crate) use analyze::capture_with_bins;
use anyhow::Result;
pub(crate) use args::Args;
use args::Command;
pub(crate) use report::Finished;
pub(crate) use series::Row;

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Analyze(args) => analyze::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Capture(args) => capture::run(args),
        Command::Live(args) => live::run(args),
    }
}
