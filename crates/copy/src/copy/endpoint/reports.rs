// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports to the coordinator: progress twice a second, problems and results.

use super::{access_scope::AccessScope, metrics::EndpointMetrics};
use crate::protocol::{
    control::{Begin, Rendezvous},
    message,
    report::{Progress, Report},
};
use anyhow::{Context as _, Result};
use longhaul_command::threads;
use parking_lot::Mutex;
use serde::Serialize;
use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

/// Sender of reports, for any thread.
#[derive(Clone)]
pub(super) struct Reporter(pub(super) Arc<Mutex<dyn Write + Send>>);

impl Reporter {
    pub(super) fn send(&self, report: &Report) {
        self.write(report);
    }

    /// Reports an entry that could not be copied, or not wholly.
    pub(super) fn send_problem(&self, text: String) {
        self.send(&Report::Problem(text));
    }

    /// Writes a report, or the greeting before all reports.
    pub(super) fn write(&self, report: &impl Serialize) {
        let mut to = self.0.lock();
        let written = message::write(&mut *to, report).and_then(|()| Ok(to.flush()?));
        if written.is_err() {
            // The coordinator is gone.
            std::process::exit(1);
        }
    }
}

const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// Progress counters and metrics, shared by all threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Counters {
    progress: Arc<Mutex<Progress>>,
    pub(super) metrics: EndpointMetrics,
}

impl Counters {
    pub(super) fn update(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress.lock());
    }

    pub(super) fn snapshot(&self) -> Progress {
        Progress {
            measured: self.metrics.read(),
            ..*self.progress.lock()
        }
    }

    /// Starts a thread that reports progress, until all other owners of the counters are gone.
    pub(super) fn start_reporting(&self, reporter: Reporter) -> Result<()> {
        let progress = Arc::downgrade(&self.progress);
        let metrics = self.metrics.clone();
        threads::spawn(move || {
            while let Some(progress) = progress.upgrade() {
                let counters = Self {
                    progress,
                    metrics: metrics.clone(),
                };
                reporter.send(&Report::Progress(counters.snapshot()));
                drop(counters);
                std::thread::sleep(REPORT_INTERVAL);
            }
        })?;
        Ok(())
    }
}

/// Reports that this endpoint is ready, if the coordinator asked for it, and reads how to reach the peer.
pub(super) fn report_ready(
    begin: &mut Begin,
    scope: &AccessScope,
    reporter: &Reporter,
) -> Result<()> {
    if begin.rendezvous == Rendezvous::Wait {
        reporter.send(&Report::Ready);
        let rendezvous: Option<Rendezvous> = message::read(&mut io::stdin().lock())?;
        begin.rendezvous = rendezvous.context("the coordinator has exited")?;
    }
    scope.override_listen_address(&mut begin.rendezvous);
    Ok(())
}

/// Waits for the end of standard input, and exits: the process that started this one is gone.
pub(crate) fn exit_at_stdin_eof() {
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    std::process::exit(1);
}
