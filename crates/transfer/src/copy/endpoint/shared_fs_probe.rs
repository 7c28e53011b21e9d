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
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Creates the probe file, and removes it when the coordinator sends anything or ends. After
/// [`Rendezvous::refused`] it also removes the directories that it created.
pub(super) fn create_probe_file(
    number: u128,
    begin: &Begin,
    scope: &AccessScope,
    reporter: &Reporter,
) -> Result<Progress> {
    scope.refuse_inside_source(target_path(begin), begin)?;
    let missing = missing_directories(begin, scope);
    let (root, name) = (
        open_target(begin, scope, &begin.options)?,
        probe_file_name(number)?,
    );
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    root.open_with(&name, flags, Mode::RUSR | Mode::WUSR)?;
    reporter.send(&Report::ProbeVisible(true));
    // After any message, or at the end of the input, the file is not needed any more.
    let answer: Option<Rendezvous> = message::read(&mut io::stdin().lock()).unwrap_or_default();
    root.remove(&name)?;
    if answer == Some(Rendezvous::refused()) {
        remove_empty(&missing);
    }
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

/// Returns the directories of the target's path that do not exist, the deepest first. None at a site: there, a symbolic
/// link might take the place of a directory meanwhile.
fn missing_directories(begin: &Begin, scope: &AccessScope) -> Vec<PathBuf> {
    let path = match scope {
        AccessScope::Unrestricted => scope.local_path(target_path(begin)),
        AccessScope::Export(_) => None,
    };
    let path = path.unwrap_or_default();
    let ancestors = path.ancestors().filter(|path| !path.as_os_str().is_empty());
    let missing = ancestors.take_while(|path| path.symlink_metadata().is_err());
    missing.map(Path::to_owned).collect()
}

/// Removes directories, up to the first that is not empty or that cannot be removed.
fn remove_empty(directories: &[PathBuf]) {
    let _all_removed = directories.iter().all(|dir| fs::remove_dir(dir).is_ok());
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
