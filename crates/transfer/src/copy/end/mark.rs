// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the targets on several hosts see the same directory: one makes a file there, and the others look for it.

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

/// Makes the mark, and takes it away when whoever wanted it is gone.
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
    // Whatever is said, or nothing: then nobody needs it any more.
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
    // Nothing is made here: where there is no such directory, the mark is not.
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
