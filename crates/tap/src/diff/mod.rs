// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul tap diff`: compares two transfers.

mod args;
mod compare;
mod comparison;
mod page;
mod side;
mod table;

use anyhow::{Context, Result};
pub(crate) use args::Args;
use comparison::Comparison;
use longhaul_command::{console::escaped_lines, outln};
use side::Side;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Configuration of a comparison.
struct Config {
    /// Directories of analyses, or capture files.
    paths: [PathBuf; 2],
    /// Numbers of the flows in `result.json`; the largest flow if absent.
    flows: [Option<u64>; 2],
    /// Output directory, if any.
    out: Option<PathBuf>,
    /// Prints the comparison to standard output as JSON.
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let config = Config::from(args);
    let [place_a, place_b] = &config.paths;
    let (a, b) = (side::open(place_a)?, side::open(place_b)?);
    let a = Side::select(place_a, &a, config.flows[0])?;
    let b = Side::select(place_b, &b, config.flows[1])?;
    let comparison = Comparison::new(&a, &b);
    if let Some(directory) = &config.out {
        write(directory, &comparison, [&a, &b])?;
    }
    let text = if config.json {
        serde_json::to_string(&comparison)?
    } else {
        escaped_lines(&table::format_table(&comparison))
    };
    outln!("{text}");
    Ok(())
}

fn write(directory: &Path, comparison: &Comparison, sides: [&Side<'_>; 2]) -> Result<()> {
    let cannot = || format!("cannot write into {}", directory.display());
    fs::create_dir_all(directory).with_context(cannot)?;
    let json = serde_json::to_string_pretty(comparison)?;
    fs::write(directory.join("diff.json"), json).with_context(cannot)?;
    fs::write(directory.join("diff.html"), page::html(comparison, sides)).with_context(cannot)
}
