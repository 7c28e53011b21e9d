// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of one direction of a link from their texts: those at its start, and those of later changes.

use crate::{LinkConfig, Schedule, Setting, setting::ReadFile, warnings::warnings};
use std::{collections::BTreeSet, iter};

/// Settings of one direction of a link, with their changes.
#[derive(Debug, Clone, Default)]
pub struct ScheduledConfig {
    /// Settings at the start.
    pub initial: LinkConfig,
    /// Later changes.
    pub schedule: Schedule,
}

/// An option of `longhaul link` that is refused.
#[derive(Debug)]
pub struct OptionError {
    /// Name of the option, without dashes.
    pub option: String,
    /// The reason.
    pub problem: String,
}

impl ScheduledConfig {
    /// Returns the settings from left to right and from right to left that these options mean. An option is a setting
    /// of both directions or `at` with a change. `forward` or `backward` with such an option as KEY=VALUE override it.
    ///
    /// # Errors
    /// The first option whose value is not valid.
    pub fn of_options(
        options: &[(&str, &str)],
        mtu: u32,
        read: ReadFile<'_>,
    ) -> Result<[Self; 2], OptionError> {
        let mut both = Self::default();
        both.initial.mtu = mtu;
        let (own, common): (Vec<_>, Vec<_>) = options
            .iter()
            .partition(|(option, _)| ["forward", "backward"].contains(option));
        for (option, value) in common {
            let set = both.set(option, value, read);
            set.map_err(|problem| OptionError::new(option, problem))?;
        }
        let direction = |name: &str| {
            let own = own.iter().filter(|(option, _)| *option == name);
            let own: Vec<&str> = own.map(|(_, text)| *text).collect();
            let overridden = both.with_overrides(&own, read);
            overridden.map_err(|problem| OptionError::new(name, problem))
        };
        Ok([direction("forward")?, direction("backward")?])
    }

    /// Changes a setting at the start. The key `at` adds a change such as `30s: delay 80ms` instead.
    ///
    /// # Errors
    /// The value is not valid for the key.
    pub fn set(&mut self, key: &str, value: &str, read: ReadFile<'_>) -> Result<(), String> {
        if key == "at" {
            let (at, key, value) = Schedule::split(value).map_err(|error| error.to_string())?;
            self.schedule.add(at, Setting::read(key, value, read)?);
        } else {
            self.initial.apply(Setting::read(key, value, read)?);
        }
        Ok(())
    }

    /// Returns it with these settings, each `KEY=VALUE`.
    ///
    /// # Errors
    /// A text has another form, names a key twice, or its value is not valid.
    pub fn with_overrides(
        &self,
        settings: &[impl AsRef<str>],
        read: ReadFile<'_>,
    ) -> Result<Self, String> {
        let (mut config, mut keys) = (self.clone(), BTreeSet::new());
        for text in settings.iter().map(AsRef::as_ref) {
            let invalid = || format!("{text:?} is not KEY=VALUE, as in loss=0.1%");
            let (key, value) = text.split_once('=').ok_or_else(invalid)?;
            let key = key.trim();
            if key != "at" && !keys.insert(key.replace('_', "-")) {
                return Err(format!("{text:?}: {key} is given twice"));
            }
            config.set(key, value, read)?;
        }
        Ok(config)
    }

    /// Returns the settings at the start and after each change.
    pub fn configs(&self) -> impl Iterator<Item = LinkConfig> {
        let mut config = self.initial.clone();
        let changes = self.schedule.iter().map(move |(_, setting)| {
            config.apply(setting.clone());
            config.clone()
        });
        iter::once(self.initial.clone()).chain(changes)
    }

    /// Returns warnings of its settings at any time, each once.
    #[must_use]
    pub fn warnings(&self) -> BTreeSet<String> {
        self.configs()
            .flat_map(|config| warnings(&config))
            .collect()
    }
}

impl OptionError {
    fn new(option: &str, problem: String) -> Self {
        let option = option.to_owned();
        Self { option, problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Time;

    fn configs(options: &[(&str, &str)]) -> Result<[ScheduledConfig; 2], OptionError> {
        let read = |name: &str| Err(format!("no file {name}"));
        ScheduledConfig::of_options(options, 1_500, &read)
    }

    #[test]
    fn overrides_apply_to_one_direction_in_any_order() {
        let [forward, backward] = configs(&[
            ("backward", "delay=30ms"),
            ("delay", "20ms"),
            ("at", "1s: delay 5ms"),
            ("backward", "at=2s: delay 6ms"),
        ])
        .unwrap();
        let delays = [&forward, &backward].map(|config| config.initial.delay);
        assert_eq!(delays, [20, 30].map(Time::from_millis));
        assert_eq!(
            (forward.configs().count(), backward.configs().count()),
            (2, 3)
        );
    }

    #[test]
    fn error_names_the_option() {
        for (option, value, problem) in [
            ("rate", "1 stone", "1 stone"),
            ("trace", "t", "trace t: no file t"),
            ("jitter", "table:t", "no file t"),
            ("forward", "loss", "KEY=VALUE"),
            ("backward", "lose=1%", "unknown setting"),
            ("at", "soon: delay 1ms", "soon"),
        ] {
            let error = configs(&[("delay", "1ms"), (option, value)]).unwrap_err();
            assert_eq!(error.option, option);
            assert!(error.problem.contains(problem), "{error:?}");
        }
    }
}
