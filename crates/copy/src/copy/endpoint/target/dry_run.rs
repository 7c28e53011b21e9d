// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dry run: reports what a copy would do, and changes nothing.

use super::{large_file::size, state::Target};
use crate::protocol::{
    message::Outcome,
    report::{Action, PlannedAction, Report},
};
use longhaul_store::{
    entry::Entry,
    path::RelPath,
    tree::{
        delete::list_removable,
        filter::Filter,
        writer::{Existing, WriteOutcome, inspect},
    },
};

impl Target {
    /// Reports that a differing entry would be created or changed; returns its outcome.
    pub(super) fn plan_entry(&self, entry: &Entry, written: &WriteOutcome) -> Outcome {
        let action = match inspect(&self.root, &entry.path) {
            Ok(Existing::Missing) | Err(_) => Action::Create,
            Ok(_) => Action::Change,
        };
        let bytes = match written {
            WriteOutcome::Transfer => size(entry),
            _ => 0,
        };
        self.report_planned(action, &entry.path, bytes);
        Outcome::Copied
    }

    /// Reports that an extra entry would be removed; returns the number of entries.
    pub(super) fn plan_removal(&self, filter: &Filter, path: &RelPath) -> u64 {
        let mut count = 0;
        let failures = list_removable(&self.root, filter, path, |path| {
            count += 1;
            self.report_planned(Action::Remove, path, 0);
        });
        failures
            .iter()
            .for_each(|failure| self.reporter.send_problem(failure.to_string()));
        count
    }

    fn report_planned(&self, action: Action, path: &RelPath, bytes: u64) {
        self.reporter.send(&Report::Planned(PlannedAction {
            action,
            path: path.as_bytes().to_vec(),
            bytes,
        }));
    }
}
