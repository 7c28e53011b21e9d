// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probe for a shared file system: one target creates a file in its directory, and targets on other hosts
//! look for it.

use super::{reach::Reach, reports::Reporter};
use crate::protocol::{
    message,
    options::Options,
    order::{Begin, Meeting},
    report::{Progress, Report},
};
use anyhow::Result;
use longhaul_store::{part::OWN_PREFIX, path::RelPath, root::Root};
use rustix::fs::{Mode, OFlags};
use std::io;

/// Creates the probe file, and removes it when the coordinator sends anything or ends.
pub(super) fn make(
    number: u128,
    begin: &Begin,
    reach: &Reach,
    reporter: &Reporter,
) -> Result<Progress> {
    reach.refuse_within(path(begin), begin)?;
    let (root, name) = (root(begin, reach, &begin.options)?, name(number)?);
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    root.open_with(&name, flags, Mode::RUSR | Mode::WUSR)?;
    reporter.say(&Report::Marked(true));
    // Any message or the end of the input: nobody needs the file any more.
    let _enough: Result<Option<Meeting>> = message::read(&mut io::stdin().lock());
    root.remove(&name)?;
    Ok(Progress::default())
}

pub(super) fn seek(
    number: u128,
    begin: &Begin,
    reach: &Reach,
    reporter: &Reporter,
) -> Result<Progress> {
    // Nothing is created here: without the directory, the file is not found.
    let options = Options {
        into_directory: false,
        dry_run: true,
        origin: [0; 32],
        ..begin.options.clone()
    };
    let root = root(begin, reach, &options);
    let found = root.is_ok_and(|root| name(number).is_ok_and(|name| root.stat(&name).is_ok()));
    reporter.say(&Report::Marked(found));
    Ok(Progress::default())
}

fn root(begin: &Begin, reach: &Reach, options: &Options) -> Result<Root> {
    Ok(reach.target(path(begin), options)?.0)
}

fn path(begin: &Begin) -> &[u8] {
    begin.paths.first().map_or(b".", Vec::as_slice)
}

fn name(number: u128) -> Result<RelPath> {
    let name = format!("{OWN_PREFIX}{number:032x}.mark");
    Ok(RelPath::parse(name.as_bytes())?)
}
