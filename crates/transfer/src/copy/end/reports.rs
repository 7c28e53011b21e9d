// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports to the coordinator: progress twice a second, problems and results.

use super::{gauges::Gauges, reach::Reach};
use crate::protocol::{
    message,
    order::{Begin, Meeting},
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
    pub(super) fn say(&self, report: &Report) {
        self.write(report);
    }

    /// Reports an entry that could not be copied, or not wholly.
    pub(super) fn problem(&self, said: String) {
        self.say(&Report::Problem(said));
    }

    /// Writes a report, or the greeting before all reports.
    pub(super) fn write(&self, what: &impl Serialize) {
        let mut to = self.0.lock();
        let said = message::write(&mut *to, what).and_then(|()| Ok(to.flush()?));
        if said.is_err() {
            // The coordinator is gone.
            std::process::exit(1);
        }
    }
}

const INTERVAL: Duration = Duration::from_millis(500);

/// Progress counters and metrics, shared by all threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    numbers: Arc<Mutex<Progress>>,
    pub(super) gauges: Gauges,
}

impl Tally {
    pub(super) fn add(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.numbers.lock());
    }

    pub(super) fn now(&self) -> Progress {
        Progress {
            measured: self.gauges.read().into(),
            ..*self.numbers.lock()
        }
    }

    /// Starts a thread that reports progress, until all other owners of the counters are gone.
    pub(super) fn tell(&self, reporter: Reporter) -> Result<()> {
        let numbers = Arc::downgrade(&self.numbers);
        let gauges = self.gauges.clone();
        threads::spawn(move || {
            while let Some(numbers) = numbers.upgrade() {
                let told = Self {
                    numbers,
                    gauges: gauges.clone(),
                };
                reporter.say(&Report::Progress(told.now()));
                drop(told);
                std::thread::sleep(INTERVAL);
            }
        })?;
        Ok(())
    }
}

/// Reports that this endpoint is ready, if the coordinator asked for it, and reads how to reach the peer.
pub(super) fn get_ready(begin: &mut Begin, reach: &Reach, reporter: &Reporter) -> Result<()> {
    if begin.meeting == Meeting::Later {
        reporter.say(&Report::Ready);
        let told: Option<Meeting> = message::read(&mut io::stdin().lock())?;
        begin.meeting = told.context("the driver went away")?;
    }
    reach.confine(&mut begin.meeting);
    Ok(())
}

/// Waits for the end of standard input, and exits: the process that started this one is gone.
pub(crate) fn end_with_standard_input() {
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    std::process::exit(1);
}
