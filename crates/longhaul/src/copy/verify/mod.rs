// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy verify`: a tree against the hashes that copies into it have kept.

mod crew;
mod files;
mod findings;

use crate::exit::Refusal;
use anyhow::{Result, bail};
use crew::Crew;
use files::Files;
use findings::Findings;
use std::{
    fs::File,
    os::fd::AsFd,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};
use store::{
    manifest::{MANIFEST, Manifest},
    medium::Dir,
};

const EXAMPLES: &str = "\
Examples:
  longhaul copy verify /srv/data
      each file that differs, is missing, or is there without a hash
  longhaul copy verify --json .
      the same as JSON lines, the last with the totals";

/// Reads what was copied into a directory, and compares it with the hashes kept there.
///
/// Every CPU reads. Exit code 1 if a file differs, is missing or can't be read. What no copy brought, or one with --hash
/// off, has no hash: it is named, and changes no exit code.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The top of what was copied, where .longhaul-manifest is
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Print JSON lines: one for each finding, the last with the totals
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let manifest = manifest(args)?;
    let findings = Mutex::new(Findings::new(args.json, total(&manifest)));
    let files = Files::open(&args.dir, &manifest).map_err(Refusal::usage)?;
    Crew::new(files, &findings).work();
    let findings = findings
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    match findings.conclude()? {
        0 => Ok(()),
        1 => bail!("{}: 1 file is not as it was copied", args.dir.display()),
        bad => bail!(
            "{}: {bad} files are not as they were copied",
            args.dir.display()
        ),
    }
}

fn manifest(args: &Args) -> Result<Manifest> {
    let shown = args.dir.display();
    let refused = |error: &dyn std::fmt::Display| Refusal::usage(format!("{shown}: {error}"));
    let opened = File::open(&args.dir).map_err(|error| refused(&error))?;
    let dir = Dir::new(opened.as_fd()).map_err(|error| refused(&error))?;
    let manifest = Manifest::load(&dir).map_err(|error| refused(&error))?;
    let empty = manifest.iter().next().is_none();
    match empty {
        false => Ok(manifest),
        true => Err(refused(&format!(
            "no hashes are kept in {MANIFEST}; the top of a copy has them"
        ))),
    }
}

/// Bytes to be read.
fn total(manifest: &Manifest) -> u64 {
    manifest.iter().map(|(_, record)| record.size).sum()
}
