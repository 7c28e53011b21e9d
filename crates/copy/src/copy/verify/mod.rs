// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy verify`: compares a tree with the hashes that copies into it have recorded.

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
    let known_hashes = KnownHashes::find(dir)?;
    let report = Mutex::new(VerifyReport::new(json, known_hashes.bytes()));
    let files = Files::open(dir, &known_hashes).map_err(Refusal::usage)?;
    ReaderPool::new(files, &report).run();
    let report = report.into_inner();
    match report.print_totals()? {
        0 => Ok(()),
        1 => bail!(
            "{}: 1 file differs, is missing, unfinished or cannot be read",
            dir.display()
        ),
        bad => bail!(
            "{}: {bad} files differ, are missing, unfinished or cannot be read",
            dir.display()
        ),
    }
}
