// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy verify`: a tree against the hashes that copies into it have kept.

mod files;
mod findings;
mod kept;
mod readers;

use anyhow::{Result, bail};
use files::Files;
use findings::Findings;
use kept::Kept;
use longhaul_command::exit::Refusal;
use parking_lot::Mutex;
use readers::Readers;
use std::path::Path;

pub(super) fn run(dir: &Path, json: bool) -> Result<()> {
    let kept = Kept::of(dir)?;
    let findings = Mutex::new(Findings::new(json, kept.bytes()));
    let files = Files::open(dir, &kept).map_err(Refusal::usage)?;
    Readers::new(files, &findings).work();
    let findings = findings.into_inner();
    match findings.conclude()? {
        0 => Ok(()),
        1 => bail!("{}: 1 file is not as it was copied", dir.display()),
        bad => bail!("{}: {bad} files are not as they were copied", dir.display()),
    }
}
