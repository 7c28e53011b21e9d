// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all threads of a target have, and how an entry is done with.

use super::state::Shared;
use crate::{
    copy::end::{
        meeting::Opener,
        reports::{Reporter, Tally},
    },
    protocol::{
        message::{Answer, Outcome},
        options::Options,
        order::Task,
    },
    transport::outbox::Outbox,
};
use longhaul_store::{path::RelPath, root::Root, tree::preserve::Preserve};
use std::sync::Arc;

/// What all threads of a target have.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) root: Arc<Root>,
    /// What the first component of every path is called here, if not as at the source.
    pub(super) renamed: Option<RelPath>,
    /// With a dry run: a directory that would have been made, and everything in it.
    pub(super) imagined: Option<RelPath>,
    pub(super) options: Arc<Options>,
    /// What it takes over, by the options.
    pub(super) preserve: Arc<Preserve>,
    pub(super) task: Task,
    pub(super) shared: Arc<Shared>,
    pub(super) answers: Outbox<Answer>,
    pub(super) tally: Tally,
    pub(super) reporter: Reporter,
    pub(super) opener: Arc<Opener>,
}

impl Target {
    /// An entry is done with.
    pub(super) fn settle(&self, number: u64, path: &RelPath, outcome: Outcome) {
        self.tally.add(|now| now.count(&outcome));
        match &outcome {
            Outcome::MadeWithout(what) => {
                let what = what.join(", ");
                self.reporter
                    .problem(format!("{path}: copied, but for {what}"));
            }
            Outcome::Failed(why) => self.reporter.problem(why.clone()),
            _ => {}
        }
        // Before the last one counts as settled: what ends the conversation comes behind it.
        self.answers.put(Answer::Settled { number, outcome });
        self.shared.change_if(
            |state| {
                state.unsettled -= 1;
                state.attributes.remove(number);
            },
            |state| state.unsettled <= state.links || state.wants_a_commit(),
        );
    }

    /// Something that belongs to no file.
    pub(super) fn fail(&self, why: String) {
        self.tally.add(|now| now.failed += 1);
        self.reporter.problem(why);
    }
}
