// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of a link's settings at fixed times after the start, such as `at 30s: delay 80ms`.

use super::setting::{Setting, SettingError};
use longhaul_units::Time;
use std::collections::VecDeque;

/// Changes of settings, in order of time. Times count from the start of the [`Line`](crate::Line).
#[derive(Debug, Clone, Default)]
pub struct Schedule(VecDeque<(Time, Setting)>);

/// Error in the text of a change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The text does not have the form `TIME: KEY VALUE`.
    #[error("{0:?} is not TIME: KEY VALUE, as in 30s: delay 80ms")]
    Form(String),
    /// The time is not valid.
    #[error("{0}")]
    Time(#[from] longhaul_units::ParseError),
    /// The setting is not valid.
    #[error("{0}")]
    Setting(#[from] SettingError),
}

impl Schedule {
    /// Adds a change at time `at` after the start. Changes at the same time keep the order in which they were added.
    pub fn add(&mut self, at: Time, setting: Setting) {
        let index = self.0.partition_point(|(time, _)| *time <= at);
        self.0.insert(index, (at, setting));
    }

    /// Adds a change in text form, such as `30s: delay 80ms`; a leading `at` is allowed.
    ///
    /// # Errors
    ///
    /// The text has another form, or its time or its setting is not valid.
    pub fn add_text(&mut self, text: &str) -> Result<(), ScheduleError> {
        let (at, key, value) = Self::split(text)?;
        self.add(at, Setting::parse(key, value)?);
        Ok(())
    }

    /// Splits the text of a change into time, key and value. Does not check key and value.
    ///
    /// # Errors
    ///
    /// The text has another form, or its time is not valid.
    pub fn split(text: &str) -> Result<(Time, &str, &str), ScheduleError> {
        let wrong_form = || ScheduleError::Form(text.to_owned());
        let text_without_at = text.trim().strip_prefix("at ").unwrap_or(text);
        let (time, change) = text_without_at.split_once(':').ok_or_else(wrong_form)?;
        let (key, value) = change
            .trim()
            .split_once([' ', '='])
            .ok_or_else(wrong_form)?;
        Ok((time.trim().parse()?, key, value.trim()))
    }

    /// Iterates over the changes and their times, in order of time.
    pub fn iter(&self) -> impl Iterator<Item = &(Time, Setting)> {
        self.0.iter()
    }

    /// This schedule with absolute times, for a line that begins at `start`.
    pub(crate) fn starting_at(mut self, start: Time) -> Self {
        self.0.iter_mut().for_each(|(at, _)| *at += start);
        self
    }

    /// Time of the next change; `None` if none is left.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.0.front().map(|(at, _)| *at)
    }

    /// Takes the next change if its time is at or before `now`.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Setting> {
        self.next_deadline().filter(|at| *at <= now)?;
        self.0.pop_front().map(|(_, setting)| setting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_by_time_and_ties_by_addition() {
        let mut schedule = Schedule::default();
        for line in ["30s: delay 80ms", "at 10s: rate 1gbit", "30s: delay 38ms"] {
            schedule.add_text(line).unwrap();
        }
        let times: Vec<u64> = schedule
            .iter()
            .map(|(at, _)| at.as_nanos() / 1_000_000_000)
            .collect();
        assert_eq!(times, [10, 30, 30]);
        let last = schedule.iter().last().unwrap();
        assert!(matches!(last.1, Setting::Delay(delay) if delay == Time::from_millis(38)));
    }

    #[test]
    fn rejects_invalid_changes() {
        for bad in [
            "delay 80ms",
            "30s delay 80ms",
            "soon: delay 80ms",
            "30s: latency 1ms",
            "1s: x",
        ] {
            assert!(Schedule::default().add_text(bad).is_err(), "{bad}");
        }
    }
}
