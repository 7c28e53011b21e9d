// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy verify`: a tree against the hashes that copies into it have kept.

mod known_hashes;
mod reader_pool;
mod scan;
mod verify_report;

use anyhow::{Result, bail};
use known_hashes::KnownHashes;
use longhaul_command::exit::Refusal;
use parking_lot::Mutex;
use reader_pool::ReaderPool;
use scan::Files;
use std::path::Path;
use verify_report::VerifyReport;

pub(super) fn run(dir: &Path, json: bool) -> Result<()> {
    let kept = KnownHashes::find(dir)?;
    let findings = Mutex::new(VerifyReport::new(json, kept.bytes()));
    let files = Files::open(dir, &kept).map_err(Refusal::usage)?;
    ReaderPool::new(files, &findings).run();
    let findings = findings.into_inner();
    match findings.print_totals()? {
        0 => Ok(()),
        1 => bail!("{}: 1 file is not as it was copied", dir.display()),
        bad => bail!("{}: {bad} files are not as they were copied", dir.display()),
    }
}
