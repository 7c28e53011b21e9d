// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy verify`: a tree against the hashes that copies into it have kept.

mod crew;
mod files;
mod findings;
mod kept;

use anyhow::{Result, bail};
use crew::Crew;
use files::Files;
use findings::Findings;
use kept::Kept;
use longhaul_command::exit::Refusal;
use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
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
    /// What was copied, or a directory of it: the nearest .longhaul-manifest, here or further up, that knows something of it counts
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Print JSON lines: one for each finding, the last with the totals
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let kept = Kept::of(&args.dir)?;
    let findings = Mutex::new(Findings::new(args.json, kept.bytes()));
    let files = Files::open(&args.dir, &kept).map_err(Refusal::usage)?;
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
