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
use longhaul_scheduling::Verdict;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

/// Progress and display of a copy over all its sessions.
pub(crate) struct CopyMonitor {
    progress: CopyProgress,
    display: Display,
    /// Statistics of the streams of the last session.
    streams: Vec<StreamStats>,
    /// Actions reported so far, in a dry run.
    plan: Option<Plan>,
    /// Whether the data goes through ssh.
    through_ssh: Arc<AtomicBool>,
}

impl CopyMonitor {
    pub(crate) fn new(config: &Config, through_ssh: Arc<AtomicBool>, started_at: Instant) -> Self {
        Self {
            progress: CopyProgress::new(started_at),
            display: Display::new(config, started_at),
            streams: Vec::new(),
            plan: config.options.dry_run.then(Plan::default),
            through_ssh,
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
        let record = name_ssh(record, &self.through_ssh);
        match &self.plan {
            Some(plan) => record.with_plan(plan.clone()),
            None => record,
        }
    }
}

/// Names ssh as the bottleneck, if it carries the data.
fn name_ssh(mut record: Record, through_ssh: &AtomicBool) -> Record {
    if through_ssh.load(Relaxed) {
        record.limited_by = record.limited_by.map(Verdict::through_ssh);
    }
    record
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
            Report::PlanRefused(why) => self.plan.get_or_insert_default().refused = Some(why),
            Report::Streams(stats) => self.streams = stats,
            _ => {}
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<String>> {
        let now = Instant::now();
        let record = || name_ssh(self.progress.snapshot(now), &self.through_ssh);
        self.display.show(record, now);
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
