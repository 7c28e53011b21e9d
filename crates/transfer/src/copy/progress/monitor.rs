// SPDX-License-Identifier: MIT OR Apache-2.0
//! Monitor of a copy: receives the reports of both endpoints, and displays the progress.

use super::{copy_progress::CopyProgress, display::Display, plan::Plan, record::Record};
use crate::{
    copy::config::Config,
    protocol::{
        control::Role,
        report::{Report, StreamStats},
    },
};
use anyhow::Result;
use std::time::Instant;

/// Progress and display of a copy over all its sessions.
pub(crate) struct CopyMonitor {
    progress: CopyProgress,
    display: Display,
    /// Statistics of the streams of the last session.
    streams: Vec<StreamStats>,
    /// Actions reported so far, in a dry run.
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

    /// Displays the progress if an update is due.
    pub(crate) fn show(&mut self, record: impl FnOnce() -> Record, now: Instant) {
        self.display.show(record, now);
    }

    /// Adds the data that workers copied before the first session.
    #[cfg(feature = "leases")]
    pub(crate) fn add_workers(&mut self, totals: super::record::WorkerTotals, record: &Record) {
        self.progress.add_workers(totals, record);
    }

    /// Ends the display, and returns the final record.
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

/// Receiver of the reports of both endpoints of a session.
pub(crate) trait ReportSink {
    /// Receives a report that does not end the session.
    fn receive(&mut self, role: Role, report: Report) -> Result<()>;

    /// Called at regular intervals. Returns the reason if the session must end.
    fn poll(&mut self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Returns the bytes and entries that this session added to those of earlier sessions.
    fn gained(&self) -> u64;
}

/// Receiver of the reports of successive sessions.
pub(crate) trait SessionSink: ReportSink {
    /// Prints a line beside the progress display.
    fn print_note(&self, text: &str);

    /// Prepares for the next session.
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
            Report::Streams(stats) => self.streams = stats,
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
    fn print_note(&self, text: &str) {
        self.display.print_note(text);
    }

    fn start_session(&mut self) {
        self.progress.start_session();
        self.plan = self.plan.as_ref().map(|_| Plan::default());
    }
}
