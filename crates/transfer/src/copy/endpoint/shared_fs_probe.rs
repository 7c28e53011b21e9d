// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probe for a shared file system: one target creates a file in its directory, and targets on other hosts
//! look for it.

use super::{access_scope::AccessScope, reports::Reporter};
use crate::protocol::{
    control::{Begin, Rendezvous},
    message,
    options::Options,
    report::{Progress, Report},
};
use anyhow::Result;
use longhaul_store::{part::INTERNAL_PREFIX, path::RelPath, root::Root};
use rustix::fs::{Mode, OFlags};
use std::io;

/// Creates the probe file, and removes it when the coordinator sends anything or ends.
pub(super) fn create_probe_file(
    number: u128,
    begin: &Begin,
    scope: &AccessScope,
    reporter: &Reporter,
) -> Result<Progress> {
    scope.refuse_inside_source(target_path(begin), begin)?;
    let (root, name) = (
        open_target(begin, scope, &begin.options)?,
        probe_file_name(number)?,
    );
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    root.open_with(&name, flags, Mode::RUSR | Mode::WUSR)?;
    reporter.send(&Report::ProbeVisible(true));
    // After any message, or at the end of the input, the file is not needed any more.
    let _released: Result<Option<Rendezvous>> = message::read(&mut io::stdin().lock());
    root.remove(&name)?;
    Ok(Progress::default())
}

pub(super) fn find_probe_file(
    number: u128,
    begin: &Begin,
    scope: &AccessScope,
    reporter: &Reporter,
) -> Result<Progress> {
    // Nothing is created here: if the directory does not exist, neither does the file.
    let options = Options {
        into_directory: false,
        dry_run: true,
        origin: [0; 32],
        ..begin.options.clone()
    };
    let root = open_target(begin, scope, &options);
    let found =
        root.is_ok_and(|root| probe_file_name(number).is_ok_and(|name| root.stat(&name).is_ok()));
    reporter.send(&Report::ProbeVisible(found));
    Ok(Progress::default())
}

fn open_target(begin: &Begin, scope: &AccessScope, options: &Options) -> Result<Root> {
    Ok(scope.open_target(target_path(begin), options)?.0)
}

fn target_path(begin: &Begin) -> &[u8] {
    begin.paths.first().map_or(b".", Vec::as_slice)
}

fn probe_file_name(number: u128) -> Result<RelPath> {
    let name = format!("{INTERNAL_PREFIX}{number:032x}.mark");
    Ok(RelPath::parse(name.as_bytes())?)
}
