// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of a target, and completion of its entries.

use super::state::Shared;
use crate::{
    copy::end::{
        meeting::StreamOpener,
        reports::{Counters, Reporter},
    },
    protocol::{
        control::Task,
        message::{Outcome, TargetMsg},
        options::Options,
    },
    transport::outbox::Outbox,
};
use longhaul_store::{path::RelPath, root::Root, tree::preserve::Preserve};
use std::sync::Arc;

/// State of a target, shared by all its threads.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) root: Arc<Root>,
    /// Name of the first path component here, if it differs from the source's.
    pub(super) renamed: Option<RelPath>,
    /// Directory that a dry run would have made, and that contains all entries.
    pub(super) imagined: Option<RelPath>,
    pub(super) options: Arc<Options>,
    /// Metadata that is copied, by the options.
    pub(super) preserve: Arc<Preserve>,
    pub(super) task: Task,
    pub(super) shared: Arc<Shared>,
    pub(super) answers: Outbox<TargetMsg>,
    pub(super) tally: Counters,
    pub(super) reporter: Reporter,
    pub(super) opener: Arc<StreamOpener>,
}

impl Target {
    /// Completes an entry: counts and reports its outcome.
    pub(super) fn settle(&self, number: u64, path: &RelPath, outcome: Outcome) {
        self.tally.update(|now| now.count(&outcome));
        match &outcome {
            Outcome::MadeWithout(what) => {
                let what = what.join(", ");
                self.reporter
                    .send_problem(format!("{path}: copied, but for {what}"));
            }
            Outcome::Failed(why) => self.reporter.send_problem(why.clone()),
            _ => {}
        }
        // Before the entry counts as completed: the message that ends the session must come after it.
        self.answers.put(TargetMsg::EntryDone { number, outcome });
        self.shared.update_if(
            |state| {
                state.unsettled -= 1;
                state.attributes.remove(number);
            },
            |state| state.unsettled <= state.links || state.wants_a_commit(),
        );
    }

    /// Counts and reports an error that belongs to no file.
    pub(super) fn fail(&self, why: String) {
        self.tally.update(|now| now.failed += 1);
        self.reporter.send_problem(why);
    }
}
