// SPDX-License-Identifier: MIT OR Apache-2.0
//! What both ends of a copy say while it goes on, and what is shown of it.

use super::{
    display::Display,
    plan::Plan,
    record::{Brought, Record},
    standing::Standing,
};
use crate::{
    copy::config::Config,
    protocol::{
        control::Role,
        report::{Report, StreamStats},
    },
};
use anyhow::Result;
use std::time::Instant;

/// What is known of a copy over all its conversations.
pub(crate) struct Hearing {
    standing: Standing,
    display: Display,
    /// What the streams of the last conversation carried.
    streams: Vec<StreamStats>,
    /// With a dry run, what was said so far.
    plan: Option<Plan>,
}

impl Hearing {
    pub(crate) fn new(config: &Config, began: Instant) -> Self {
        Self {
            standing: Standing::new(began),
            display: Display::of(config, began),
            streams: Vec::new(),
            plan: config.options.dry_run.then(Plan::default),
        }
    }

    /// Shows how it stands, if it is time to.
    pub(crate) fn show(&mut self, record: impl FnOnce() -> Record, now: Instant) {
        self.display.show(record, now);
    }

    /// Movers brought something before the first conversation.
    pub(crate) fn brought(&mut self, brought: Brought, record: &Record) {
        self.standing.brought(brought, record);
    }

    /// All is over, and nothing more is shown.
    pub(crate) fn conclude(&mut self) -> Record {
        self.display.clear();
        let streams = std::mem::take(&mut self.streams);
        let record = self.standing.over(Instant::now(), streams);
        match &self.plan {
            Some(plan) => record.planned(plan.clone()),
            None => record,
        }
    }
}

/// Who hears what both ends of a conversation say.
pub(crate) trait Listener {
    /// A report that neither ends the conversation nor breaks it.
    fn hear(&mut self, role: Role, report: Report) -> Result<()>;

    /// Time goes by. Why the conversation is to end, if it is.
    fn look(&mut self) -> Result<Option<String>> {
        Ok(None)
    }

    /// What this conversation brought that those before it did not, in bytes and entries.
    fn gained(&self) -> u64;
}

/// Who hears of one conversation after the other.
pub(crate) trait Narrator: Listener {
    /// Says something beside what is shown.
    fn note(&self, said: &str);

    /// Another conversation begins.
    fn again(&mut self);
}

impl Listener for Hearing {
    fn hear(&mut self, role: Role, report: Report) -> Result<()> {
        match report {
            Report::Progress(progress) | Report::Finished(progress) => {
                self.standing.hear(role, progress, Instant::now());
            }
            Report::Problem(problem) => self.display.note(&problem),
            Report::Planned(planned) => {
                self.display.plan(&planned);
                self.plan.get_or_insert_default().add(&planned);
            }
            Report::Streams(figures) => self.streams = figures,
            _ => {}
        }
        Ok(())
    }

    fn look(&mut self) -> Result<Option<String>> {
        let now = Instant::now();
        self.display.show(|| self.standing.now(now), now);
        Ok(None)
    }

    fn gained(&self) -> u64 {
        self.standing.gained()
    }
}

impl Narrator for Hearing {
    fn note(&self, said: &str) {
        self.display.note(said);
    }

    fn again(&mut self) {
        self.standing.again();
        self.plan = self.plan.as_ref().map(|_| Plan::default());
    }
}
