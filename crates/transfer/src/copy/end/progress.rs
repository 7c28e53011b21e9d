// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far an end is, told to the driver twice a second.

use super::{Reporter, gauges::Gauges};
use crate::{
    copy::threads,
    protocol::report::{Progress, Report},
};
use anyhow::Result;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

const INTERVAL: Duration = Duration::from_millis(500);

/// The numbers, which any thread may add to.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    numbers: Arc<Mutex<Progress>>,
    pub(super) gauges: Gauges,
}

impl Tally {
    pub(super) fn add(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.numbers.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn now(&self) -> Progress {
        let numbers = *self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        Progress {
            measured: self.gauges.read(),
            ..numbers
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
