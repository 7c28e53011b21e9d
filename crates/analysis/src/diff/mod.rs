// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul tap diff`: two transfers beside each other.

mod args;
mod comparison;
mod page;
mod side;
mod table;

use anyhow::{Context, Result};
pub(crate) use args::Args;
use comparison::Comparison;
use longhaul_command::{console::escaped_lines, say};
use side::Side;
use std::{fs, path::Path};

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (a, b) = (side::open(&args.a)?, side::open(&args.b)?);
    let a = Side::of(&args.a, &a, args.flow_a)?;
    let b = Side::of(&args.b, &b, args.flow_b)?;
    let comparison = Comparison::of(&a, &b);
    if let Some(directory) = &args.out {
        write(directory, &comparison, [&a, &b])?;
    }
    let text = match args.json {
        true => serde_json::to_string(&comparison)?,
        false => escaped_lines(&table::text(&comparison)),
    };
    say!("{text}");
    Ok(())
}

fn write(directory: &Path, comparison: &Comparison, sides: [&Side<'_>; 2]) -> Result<()> {
    let cannot = || format!("cannot write into {}", directory.display());
    fs::create_dir_all(directory).with_context(cannot)?;
    let json = serde_json::to_string_pretty(comparison)?;
    fs::write(directory.join("diff.json"), json).with_context(cannot)?;
    fs::write(directory.join("diff.html"), page::html(comparison, sides)).with_context(cannot)
}
