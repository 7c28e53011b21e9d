// SPDX-License-Identifier: MIT OR Apache-2.0
//! A dry run: what would be done is said, and nothing is.

use super::{Target, special};
use crate::{
    copy::{
        end::{filter, reach::Reach},
        location::{self, Machine},
    },
    protocol::{
        message::Outcome,
        options::Options,
        order::Begin,
        report::{Action, Planned, Report},
    },
};
use anyhow::Result;
use longhaul_store::{
    delete::list_all,
    entry::{Entry, Kind},
    filter::Filter,
    path::RelPath,
    place::{Placed, There, look},
    root::Root,
};

/// Where all happens, what the copied thing is called there, and, with a dry run, the directory there that would have been
/// made for it.
pub(super) fn target(
    reach: &Reach,
    path: &[u8],
    begin: &Begin,
) -> Result<(Root, Option<RelPath>, Option<RelPath>)> {
    let target = refuse_within(reach, path, begin)?;
    special::refuse(reach, path, begin)?;
    let found = find(reach, path, &begin.options)?;
    if let Some(target) = &target {
        let (_, renamed, imagined) = &found;
        // What would be made there is not there yet.
        if imagined.is_none() {
            target.refuse_onto(&begin.sources, renamed.is_some(), begin.options.delete)?;
        }
    }
    Ok(found)
}

/// Refuses a target in what is copied, before anything is made; where it is, if that is known.
pub(crate) fn refuse_within(
    reach: &Reach,
    path: &[u8],
    begin: &Begin,
) -> Result<Option<location::Target>> {
    let Some((real, machine)) = reach.real(path).zip(Machine::read()) else {
        return Ok(None);
    };
    let target = location::Target::new(machine, real, path);
    let filter = filter(&begin.options)?.with_tops(begin.sources.names());
    target.refuse_within(&begin.sources, &filter, begin.options.one_file_system)?;
    Ok(Some(target))
}

fn find(
    reach: &Reach,
    path: &[u8],
    options: &Options,
) -> Result<(Root, Option<RelPath>, Option<RelPath>)> {
    if !options.dry_run || !options.into_directory {
        let (root, renamed) = reach.target(path, options)?;
        return Ok((root, renamed, None));
    }
    // Nothing is made for a thing that gets a name.
    let looking = Options {
        into_directory: false,
        ..options.clone()
    };
    let (root, imagined) = reach.target(path, &looking)?;
    Ok((root, None, imagined))
}

impl Target {
    /// What becomes of an entry that is not the same: it would be made, or changed.
    pub(super) fn plan(&self, entry: &Entry, placed: &Placed) -> Outcome {
        let action = match look(&self.root, &entry.path) {
            Ok(There::Nothing) | Err(_) => Action::Make,
            Ok(_) => Action::Change,
        };
        let bytes = match (placed, &entry.kind) {
            (Placed::Wanted, Kind::File { version, .. }) => version.size,
            _ => 0,
        };
        self.planned(action, &entry.path, bytes);
        Outcome::Made
    }

    /// What the source does not have would be removed; how much.
    pub(super) fn plan_removal(&self, filter: &Filter, path: &RelPath) -> u64 {
        let mut count = 0;
        let failures = list_all(&self.root, filter, path, |path| {
            count += 1;
            self.planned(Action::Remove, path, 0);
        });
        failures
            .iter()
            .for_each(|failure| self.problem(failure.to_string()));
        count
    }

    fn planned(&self, action: Action, path: &RelPath, bytes: u64) {
        self.reporter.say(&Report::Planned(Planned {
            action,
            path: path.as_bytes().to_vec(),
            bytes,
        }));
    }
}
