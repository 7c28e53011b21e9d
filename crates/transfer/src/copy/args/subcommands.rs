// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command lines of `longhaul copy verify` and `longhaul copy jobs`, as typed.

use std::path::PathBuf;

const VERIFY_EXAMPLES: &str = "\
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
#[command(after_help = VERIFY_EXAMPLES)]
pub(crate) struct Verify {
    /// What was copied, or a directory of it: the nearest .longhaul-manifest, here or further up, that knows something of it counts
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Print JSON lines: one for each finding, the last with the totals
    #[arg(long)]
    pub(crate) json: bool,
}

const JOBS_EXAMPLES: &str = "\
Examples:
  longhaul copy jobs --leases postgresql://longhaul@db/longhaul
      which copies movers share there, how far they are, and who is at them
  longhaul copy jobs --leases @/etc/longhaul/leases --forget 5f0c2a91
      one that nobody will end: its movers stop, what has arrived stays";

/// Lists the copies that movers share through a database.
#[derive(Debug, clap::Args)]
#[command(after_help = JOBS_EXAMPLES)]
pub(crate) struct Jobs {
    /// The database, postgresql://USER@HOST/NAME, or @FILE whose first line says so
    #[arg(long, value_name = "URL")]
    pub(crate) leases: String,

    /// Remove this one, by its number in the list
    #[arg(long, value_name = "NUMBER")]
    pub(crate) forget: Option<String>,

    /// Print JSON objects, one a line
    #[arg(long)]
    pub(crate) json: bool,
}
