// SPDX-License-Identifier: MIT OR Apache-2.0
//! Context of a target: the state that its threads share, and the completion of entries.

use super::state::Shared;
use crate::{
    connection::SendQueue,
    copy::endpoint::{
        rendezvous::StreamOpener,
        reports::{Counters, Reporter},
    },
    protocol::{
        control::Task,
        message::{Outcome, TargetMsg},
        options::Options,
    },
};
use longhaul_store::{path::RelPath, root::Root, tree::preserve::Preserve};
use std::sync::Arc;

/// Context of a target, shared by all its threads.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) root: Arc<Root>,
    /// Name of the first path component here, if it differs from the source's.
    pub(super) top_name: Option<RelPath>,
    /// Directory that a dry run would have made, and that contains all entries.
    pub(super) planned_directory: Option<RelPath>,
    pub(super) options: Arc<Options>,
    /// Metadata that is copied, by the options.
    pub(super) preserve: Arc<Preserve>,
    pub(super) task: Task,
    pub(super) shared: Arc<Shared>,
    pub(super) to_source: SendQueue<TargetMsg>,
    pub(super) counters: Counters,
    pub(super) reporter: Reporter,
    pub(super) opener: Arc<StreamOpener>,
}

impl Target {
    /// Completes an entry: counts and reports its outcome.
    pub(super) fn complete(&self, number: u64, path: &RelPath, outcome: Outcome) {
        self.counters.update(|progress| progress.count(&outcome));
        match &outcome {
            Outcome::CopiedWithout(what) => {
                let what = what.join(", ");
                self.reporter
                    .send_problem(format!("{path}: copied without {what}"));
            }
            Outcome::Failed(why) => self.reporter.send_problem(why.clone()),
            _ => {}
        }
        // Before the entry counts as completed: the message that ends the session must come after it.
        self.to_source
            .push(TargetMsg::EntryDone { number, outcome });
        self.shared.update_if(
            |state| {
                state.in_flight -= 1;
                state.xattr_budget.remove(number);
            },
            |state| state.in_flight <= state.links || state.needs_commit(),
        );
    }

    /// Counts and reports an error that belongs to no file.
    pub(super) fn report_failure(&self, why: String) {
        self.counters.update(|progress| progress.failed += 1);
        self.reporter.send_problem(why);
    }
}
