// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far an end is, told to the driver twice a second.

use super::Reporter;
use crate::copy::order::{Progress, Report};
use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

const INTERVAL: Duration = Duration::from_millis(500);

/// The numbers, which any thread may add to.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally(Arc<Mutex<Progress>>);

impl Tally {
    pub(super) fn add(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn now(&self) -> Progress {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the driver from time to time, until the numbers are gone.
    pub(super) fn tell(&self, reporter: Reporter) {
        let numbers = Arc::downgrade(&self.0);
        std::thread::spawn(move || {
            while let Some(progress) = read(&numbers) {
                reporter.say(&Report::Progress(progress));
                std::thread::sleep(INTERVAL);
            }
        });
    }
}

fn read(numbers: &Weak<Mutex<Progress>>) -> Option<Progress> {
    let numbers = numbers.upgrade()?;
    let now = *numbers.lock().unwrap_or_else(PoisonError::into_inner);
    Some(now)
}
