// SPDX-License-Identifier: MIT OR Apache-2.0
//! What both ends of a copy say while it goes on, and what is shown of it.

use super::{
    copy_progress::CopyProgress,
    display::Display,
    plan::Plan,
    record::{MoverTotals, Record},
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
pub(crate) struct CopyMonitor {
    progress: CopyProgress,
    display: Display,
    /// What the streams of the last conversation carried.
    streams: Vec<StreamStats>,
    /// With a dry run, what was said so far.
    plan: Option<Plan>,
}

impl CopyMonitor {
    pub(crate) fn new(config: &Config, started_at: Instant) -> Self {
        Self {
            progress: CopyProgress::new(started_at),
            display: Display::new(config, started_at),
            streams: Vec::new(),
            plan: config.options.dry_run.then(Plan::default),
        }
    }

    /// Shows how it stands, if it is time to.
    pub(crate) fn show(&mut self, record: impl FnOnce() -> Record, now: Instant) {
        self.display.show(record, now);
    }

    /// Movers brought something before the first conversation.
    pub(crate) fn add_movers(&mut self, brought: MoverTotals, record: &Record) {
        self.progress.add_movers(brought, record);
    }

    /// All is over, and nothing more is shown.
    pub(crate) fn finish(&mut self) -> Record {
        self.display.clear();
        let streams = std::mem::take(&mut self.streams);
        let record = self.progress.finish(Instant::now(), streams);
        match &self.plan {
            Some(plan) => record.with_plan(plan.clone()),
            None => record,
        }
    }
}

/// Who hears what both ends of a conversation say.
pub(crate) trait ReportSink {
    /// A report that neither ends the conversation nor breaks it.
    fn receive(&mut self, role: Role, report: Report) -> Result<()>;

    /// Time goes by. Why the conversation is to end, if it is.
    fn poll(&mut self) -> Result<Option<String>> {
        Ok(None)
    }

    /// What this conversation brought that those before it did not, in bytes and entries.
    fn gained(&self) -> u64;
}

/// Who hears of one conversation after the other.
pub(crate) trait SessionSink: ReportSink {
    /// Says something beside what is shown.
    fn print_note(&self, said: &str);

    /// Another conversation begins.
    fn start_session(&mut self);
}

impl ReportSink for CopyMonitor {
    fn receive(&mut self, role: Role, report: Report) -> Result<()> {
        match report {
            Report::Progress(progress) | Report::Finished(progress) => {
                self.progress.receive(role, progress, Instant::now());
            }
            Report::Problem(problem) => self.display.print_note(&problem),
            Report::Planned(planned) => {
                self.display.print_planned(&planned);
                self.plan.get_or_insert_default().add(&planned);
            }
            Report::Streams(figures) => self.streams = figures,
            _ => {}
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<String>> {
        let now = Instant::now();
        self.display.show(|| self.progress.snapshot(now), now);
        Ok(None)
    }

    fn gained(&self) -> u64 {
        self.progress.gained()
    }
}

impl SessionSink for CopyMonitor {
    fn print_note(&self, said: &str) {
        self.display.print_note(said);
    }

    fn start_session(&mut self) {
        self.progress.start_session();
        self.plan = self.plan.as_ref().map(|_| Plan::default());
    }
}
