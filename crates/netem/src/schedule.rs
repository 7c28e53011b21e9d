// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes at fixed times after the start, such as `at 30s: delay 80ms`.

use super::setting::{Setting, SettingError};
use longhaul_units::Time;
use std::collections::VecDeque;

/// Settings and when they come, in order of time.
#[derive(Debug, Clone, Default)]
pub struct Schedule(VecDeque<(Time, Setting)>);

/// Why a schedule's line was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Not of the form `TIME: KEY VALUE`.
    #[error("{0:?} is not TIME: KEY VALUE, as in 30s: delay 80ms")]
    Form(String),
    /// The time is none.
    #[error("{0}")]
    Time(#[from] longhaul_units::ParseError),
    /// The setting is none.
    #[error("{0}")]
    Setting(#[from] SettingError),
}

impl Schedule {
    /// Adds a change `at` so long after the start; of two at the same time the first added goes
    /// first.
    pub fn add(&mut self, at: Time, setting: Setting) {
        let place = self.0.partition_point(|(time, _)| *time <= at);
        self.0.insert(place, (at, setting));
    }

    /// Adds what `30s: delay 80ms` says; a leading `at` is allowed.
    pub fn add_text(&mut self, text: &str) -> Result<(), ScheduleError> {
        let (at, key, value) = Self::split(text)?;
        self.add(at, Setting::parse(key, value)?);
        Ok(())
    }

    /// The time, key and value of such a text, whatever they are.
    pub fn split(text: &str) -> Result<(Time, &str, &str), ScheduleError> {
        let form = || ScheduleError::Form(text.to_owned());
        let bare = text.trim().strip_prefix("at ").unwrap_or(text);
        let (time, change) = bare.split_once(':').ok_or_else(form)?;
        let (key, value) = change.trim().split_once([' ', '=']).ok_or_else(form)?;
        Ok((time.trim().parse()?, key, value.trim()))
    }

    /// All changes, in order.
    pub fn iter(&self) -> impl Iterator<Item = &(Time, Setting)> {
        self.0.iter()
    }

    /// The same changes, as points in time.
    pub(crate) fn starting_at(mut self, start: Time) -> Self {
        self.0.iter_mut().for_each(|(at, _)| *at += start);
        self
    }

    /// When the next change comes.
    pub(crate) fn next(&self) -> Option<Time> {
        self.0.front().map(|(at, _)| *at)
    }

    /// Takes the next change if its time has come.
    pub(crate) fn take(&mut self, now: Time) -> Option<Setting> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop_front().map(|(_, setting)| setting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_by_time_and_keeps_the_order_of_equals() {
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
    fn refuses_what_is_no_change() {
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
