// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an end tells its driver, how far it is twice a second, and what it waits for from it.

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

/// Where reports go; any thread may.
#[derive(Clone)]
pub(super) struct Reporter(pub(super) Arc<Mutex<dyn Write + Send>>);

impl Reporter {
    pub(super) fn say(&self, report: &Report) {
        self.write(report);
    }

    /// Something that could not be copied, or not wholly.
    pub(super) fn problem(&self, said: String) {
        self.say(&Report::Problem(said));
    }

    /// A report, or the greeting before all of them.
    pub(super) fn write(&self, what: &impl Serialize) {
        let mut to = self.0.lock();
        let said = message::write(&mut *to, what).and_then(|()| Ok(to.flush()?));
        if said.is_err() {
            // Nobody is left to hear it.
            std::process::exit(1);
        }
    }
}

const INTERVAL: Duration = Duration::from_millis(500);

/// The numbers, which any thread may add to.
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

    /// Tells the driver from time to time, until nobody else has the numbers.
    pub(super) fn tell(&self, reporter: Reporter) -> Result<()> {
        let numbers = Arc::downgrade(&self.numbers);
        let gauges = self.gauges.clone();
        threads::begin(move || {
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

/// Says that this end has what it needs, if that is asked, and hears where the other one is.
pub(super) fn get_ready(begin: &mut Begin, reach: &Reach, reporter: &Reporter) -> Result<()> {
    if begin.meeting == Meeting::Later {
        reporter.say(&Report::Ready);
        let told: Option<Meeting> = message::read(&mut io::stdin().lock())?;
        begin.meeting = told.context("the driver went away")?;
    }
    reach.confine(&mut begin.meeting);
    Ok(())
}

/// Whoever started this process says nothing more; its end is.
pub(crate) fn end_with_standard_input() {
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    std::process::exit(1);
}
