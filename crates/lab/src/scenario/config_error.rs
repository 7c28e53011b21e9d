// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of a scenario, each with the path to the wrong value: the keys from the top of the file
//! down to it. The function that finds an error knows only the last key; each caller adds its own.
//! [`crate::experiment::file`] turns the path into file, line and column.

use crate::command_check::Refused;
use std::{
    collections::HashSet,
    fmt::{self, Display},
};
use toml::{
    Spanned, Table,
    de::{DeTable, DeValue},
};

/// Error about one value of a scenario.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConfigError {
    /// Path to the value, last key first.
    path: Vec<KeyOrIndex>,
    problem: String,
}

/// Step of a path: a key of a table, or an index from 0 in an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyOrIndex {
    Key(String),
    Index(usize),
}

impl From<&str> for KeyOrIndex {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<&String> for KeyOrIndex {
    fn from(key: &String) -> Self {
        Self::Key(key.clone())
    }
}

impl From<usize> for KeyOrIndex {
    fn from(number: usize) -> Self {
        Self::Index(number)
    }
}

/// Lists the known names, for a message that refuses an unknown one.
pub(crate) fn list_names(names: &[&str]) -> String {
    if names.is_empty() {
        "there are none".to_owned()
    } else {
        format!("there are: {}", names.join(", "))
    }
}

/// Result of a check.
pub(crate) type CheckResult = Result<(), ConfigError>;

impl From<String> for ConfigError {
    fn from(problem: String) -> Self {
        let path = Vec::new();
        Self { path, problem }
    }
}

impl From<&str> for ConfigError {
    fn from(problem: &str) -> Self {
        problem.to_owned().into()
    }
}

/// Prints the problem without its path.
impl Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl ConfigError {
    /// Puts the part of the scenario that has the problem before it, such as `link "wan"`.
    pub(crate) fn with_owner(mut self, owner: impl Display) -> Self {
        self.problem = format!("{owner}: {}", self.problem);
        self
    }

    /// Adds the name of the cell. The only cell of a scenario has no name, and none is added.
    pub(crate) fn in_cell(self, name: &str) -> Self {
        match name {
            "" => self,
            name => self.with_owner(format!("in the cell {name:?}")),
        }
    }

    /// Refusal of a command with these options. The path leads to the option, written with dashes or underscores.
    pub(crate) fn of_option(options: &Table, refused: Refused) -> Self {
        let is_option = |key: &&String| Some(key.replace('_', "-")) == refused.option;
        let key = options.keys().find(is_option).map(KeyOrIndex::from);
        Self {
            path: key.into_iter().collect(),
            problem: refused.problem,
        }
    }

    /// Byte offset of the value. For a missing value, that of the innermost table that exists.
    pub(crate) fn offset(&self, top: &Spanned<DeTable<'_>>) -> usize {
        let mut offset = top.span().start;
        let mut steps = self.path.iter().rev();
        let Some(KeyOrIndex::Key(first)) = steps.next() else {
            return offset;
        };
        let mut found = top.get_ref().get(first.as_str());
        while let Some(value) = found {
            offset = value.span().start;
            found = steps.next().and_then(|step| step.value_in(value.get_ref()));
        }
        offset
    }
}

impl KeyOrIndex {
    fn value_in<'v, 't>(&self, value: &'v DeValue<'t>) -> Option<&'v Spanned<DeValue<'t>>> {
        match self {
            Self::Key(key) => value.as_table()?.get(key.as_str()),
            Self::Index(number) => value.as_array()?.get(*number),
        }
    }
}

/// Adds a key or an index to the path of a check's error.
pub(crate) fn locate_error<T>(
    step: impl Into<KeyOrIndex>,
    checked: Result<T, impl Into<ConfigError>>,
) -> Result<T, ConfigError> {
    checked.map_err(|error| {
        let mut error = error.into();
        error.path.push(step.into());
        error
    })
}

/// Checks each element, and adds its index to the error.
pub(crate) fn check_each<T>(
    all: impl IntoIterator<Item = T>,
    mut check: impl FnMut(T) -> CheckResult,
) -> CheckResult {
    let mut all = all.into_iter().enumerate();
    all.try_for_each(|(number, one)| locate_error(number, check(one)))
}

/// Returns an error with `problem` if the condition is false.
pub(crate) fn ensure<P: Into<ConfigError>>(
    condition: bool,
    problem: impl FnOnce() -> P,
) -> CheckResult {
    if condition {
        Ok(())
    } else {
        Err(problem().into())
    }
}

/// Checks that a number is at least `min` and at most `max`.
pub(crate) fn check_range(what: &str, value: u32, min: u32, max: u32) -> CheckResult {
    let good = (min..=max).contains(&value);
    ensure(good, || {
        format!("{what} is {value}, but must be {min} to {max}")
    })
}

/// Checks that no two elements of an array have the same name.
pub(crate) fn check_distinct<'a>(
    plural: &str,
    names: impl Iterator<Item = &'a String>,
) -> CheckResult {
    let mut seen = HashSet::new();
    check_each(names, |name| {
        let new = ensure(seen.insert(name), || {
            format!("two {plural} are called {name:?}")
        });
        locate_error("name", new)
    })
}

/// Checks the characters and the length of a name. It becomes the name of an interface, a network namespace or a file.
pub(crate) fn check_name(what: &str, name: &str, length_max: usize) -> CheckResult {
    let clean = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let good =
        (1..=length_max).contains(&name.len()) && name.chars().all(clean) && !name.starts_with('-');
    ensure(good, || {
        format!("{what} {name:?}: a name is 1 to {length_max} letters, digits, '-' and '_'")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a = 1\n[b]\nc = [1, { d = 2 }]\n[[e]]\nf = 3\n[[e]]\ng = 4\n";

    /// Returns the rest of the line to which the error's path leads.
    fn text_at(path: &[KeyOrIndex]) -> &'static str {
        let checked: CheckResult = Err("x".into());
        let steps = path.iter().rev().cloned();
        let error = steps.fold(checked, |checked, step| locate_error(step, checked));
        let top = DeTable::parse(TEXT).unwrap();
        TEXT[error.unwrap_err().offset(&top)..]
            .lines()
            .next()
            .unwrap()
    }

    #[test]
    fn lists_the_known_names() {
        assert_eq!(list_names(&["a", "b"]), "there are: a, b");
        assert_eq!(list_names(&[]), "there are none");
    }

    #[test]
    fn path_leads_to_the_value() {
        assert_eq!(text_at(&["a".into()]), "1");
        assert_eq!(
            text_at(&["b".into(), "c".into(), 0.into()]),
            "1, { d = 2 }]"
        );
        let d = ["b".into(), "c".into(), 1.into(), "d".into()];
        assert_eq!(text_at(&d), "2 }]");
        assert_eq!(text_at(&["e".into(), 1.into(), "g".into()]), "4");
    }

    #[test]
    fn missing_value_is_reported_at_the_enclosing_table() {
        assert_eq!(text_at(&["b".into(), "x".into()]), "[b]");
        assert_eq!(text_at(&["e".into(), 1.into(), "f".into()]), "[[e]]");
        assert_eq!(text_at(&["a".into(), "x".into()]), "1");
        assert_eq!(text_at(&["x".into(), "y".into()]), "a = 1");
        assert_eq!(text_at(&[]), "a = 1");
    }

    #[test]
    fn refusal_leads_to_its_option() {
        let options = toml::from_str("queue = 1\nqueue_rule = 2").unwrap();
        let path = |option: &str| {
            let (option, problem) = (Some(option.to_owned()), "queue".to_owned());
            ConfigError::of_option(&options, Refused { option, problem }).path
        };
        assert_eq!(path("queue-rule"), ["queue_rule".into()]);
        assert_eq!(path("delay"), []);
    }
}
