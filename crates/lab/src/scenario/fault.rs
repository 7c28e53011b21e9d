// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of a scenario with the path to the value: the keys from the top of the file down to it.
//! The function that finds an error knows only the last key; each caller adds its own.
//! [`crate::source::inherit`] turns the path into file, line and column.

use std::{
    collections::HashSet,
    fmt::{self, Display},
};
use toml::{
    Spanned, Table, Value,
    de::{DeTable, DeValue},
};

/// Problem of one value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Path to the value, last key first.
    way: Vec<Step>,
    problem: String,
}

/// Segment of a path: a key of a table, or an index from 0 in an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Number(usize),
}

impl From<&str> for Step {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<&String> for Step {
    fn from(key: &String) -> Self {
        Self::Key(key.clone())
    }
}

impl From<usize> for Step {
    fn from(number: usize) -> Self {
        Self::Number(number)
    }
}

/// Lists the known names for a message about an unknown one.
pub(crate) fn there_are(names: &[&str]) -> String {
    match names.is_empty() {
        true => "there are none".to_owned(),
        false => format!("there are: {}", names.join(", ")),
    }
}

/// Result of a check.
pub(crate) type Checked = Result<(), Fault>;

impl From<String> for Fault {
    fn from(problem: String) -> Self {
        let way = Vec::new();
        Self { way, problem }
    }
}

impl From<&str> for Fault {
    fn from(problem: &str) -> Self {
        problem.to_owned().into()
    }
}

/// Prints the problem without its path.
impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl Fault {
    /// Adds the name of the owner before the problem.
    pub(crate) fn of(mut self, owner: impl Display) -> Self {
        self.problem = format!("{owner}: {}", self.problem);
        self
    }

    /// Adds the name of the cell, unless it is the only one.
    pub(crate) fn of_cell(self, name: &str) -> Self {
        match name {
            "" => self,
            name => self.of(format!("in the cell {name:?}")),
        }
    }

    /// Error of a command about its options. The path leads to the option whose text the message
    /// quotes, or else to the first option that it names.
    pub(crate) fn of_option(options: &Table, problem: String) -> Self {
        let quoted = |value: &Value| {
            let text = value.as_str();
            text.is_some_and(|text| problem.contains(&format!("{text:?}")))
        };
        let said = options.iter().find(|(_, value)| match value {
            Value::Array(all) => all.iter().any(quoted),
            one => quoted(one),
        });
        let plain = |word: &str| word.trim_start_matches('-').replace('-', "_");
        let named = |word: &str| options.keys().find(|key| plain(key) == plain(word));
        let apart = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        let said = said.map(|(key, _)| key);
        let key = said.or_else(|| problem.split(apart).find_map(named));
        let key = key.map(Step::from);
        let way = key.into_iter().collect();
        Self { way, problem }
    }

    /// Byte offset of the value. For a missing value, that of the innermost table that exists.
    pub(crate) fn place(&self, top: &Spanned<DeTable<'_>>) -> usize {
        let mut place = top.span().start;
        let mut steps = self.way.iter().rev();
        let Some(Step::Key(first)) = steps.next() else {
            return place;
        };
        let mut found = top.get_ref().get(first.as_str());
        while let Some(value) = found {
            place = value.span().start;
            found = steps.next().and_then(|step| step.of(value.get_ref()));
        }
        place
    }
}

impl Step {
    fn of<'v, 't>(&self, value: &'v DeValue<'t>) -> Option<&'v Spanned<DeValue<'t>>> {
        match self {
            Self::Key(key) => value.as_table()?.get(key.as_str()),
            Self::Number(number) => value.as_array()?.get(*number),
        }
    }
}

/// Adds a path segment to the error of a check.
pub(crate) fn at<T>(
    step: impl Into<Step>,
    checked: Result<T, impl Into<Fault>>,
) -> Result<T, Fault> {
    checked.map_err(|fault| {
        let mut fault = fault.into();
        fault.way.push(step.into());
        fault
    })
}

/// Checks each element, and adds its index to the error.
pub(crate) fn each<T>(
    all: impl IntoIterator<Item = T>,
    mut check: impl FnMut(T) -> Checked,
) -> Checked {
    let mut all = all.into_iter().enumerate();
    all.try_for_each(|(number, one)| at(number, check(one)))
}

/// Returns an error unless `good`.
pub(crate) fn ensure<P: Into<Fault>>(good: bool, problem: impl FnOnce() -> P) -> Checked {
    if good { Ok(()) } else { Err(problem().into()) }
}

pub(crate) fn within(what: &str, value: u32, least: u32, most: u32) -> Checked {
    let good = (least..=most).contains(&value);
    ensure(good, || {
        format!("{what} is {value}, but must be {least} to {most}")
    })
}

pub(crate) fn distinct<'a>(place: &str, names: impl Iterator<Item = &'a String>) -> Checked {
    let mut seen = HashSet::new();
    each(names, |name| {
        let new = ensure(seen.insert(name), || {
            format!("two {place} are called {name:?}")
        });
        at("name", new)
    })
}

/// Checks a name: it becomes the name of an interface, a namespace or a file.
pub(crate) fn valid_name(what: &str, name: &str, longest: usize) -> Checked {
    let clean = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let good =
        (1..=longest).contains(&name.len()) && name.chars().all(clean) && !name.starts_with('-');
    ensure(good, || {
        format!("{what} {name:?}: a name is 1 to {longest} letters, digits, '-' and '_'")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a = 1\n[b]\nc = [1, { d = 2 }]\n[[e]]\nf = 3\n[[e]]\ng = 4\n";

    /// Returns the rest of the line at the error's position.
    fn found(way: &[Step]) -> &'static str {
        let checked: Checked = Err("x".into());
        let steps = way.iter().rev().cloned();
        let fault = steps.fold(checked, |checked, step| at(step, checked));
        let top = DeTable::parse(TEXT).unwrap();
        TEXT[fault.unwrap_err().place(&top)..]
            .lines()
            .next()
            .unwrap()
    }

    #[test]
    fn lists_the_known_names() {
        assert_eq!(there_are(&["a", "b"]), "there are: a, b");
        assert_eq!(there_are(&[]), "there are none");
    }

    #[test]
    fn path_leads_to_the_value() {
        assert_eq!(found(&["a".into()]), "1");
        assert_eq!(found(&["b".into(), "c".into(), 0.into()]), "1, { d = 2 }]");
        let d = ["b".into(), "c".into(), 1.into(), "d".into()];
        assert_eq!(found(&d), "2 }]");
        assert_eq!(found(&["e".into(), 1.into(), "g".into()]), "4");
    }

    #[test]
    fn missing_value_is_reported_at_the_enclosing_table() {
        assert_eq!(found(&["b".into(), "x".into()]), "[b]");
        assert_eq!(found(&["e".into(), 1.into(), "f".into()]), "[[e]]");
        assert_eq!(found(&["a".into(), "x".into()]), "1");
        assert_eq!(found(&["x".into(), "y".into()]), "a = 1");
        assert_eq!(found(&[]), "a = 1");
    }

    #[test]
    fn finds_the_option_in_a_commands_message() {
        let options = toml::from_str("queue = 1\nqueue_rule = 2").unwrap();
        let way = |problem: &str| Fault::of_option(&options, problem.to_owned()).way;
        assert_eq!(way("no '--queue-rule <RULE>'"), ["queue_rule".into()]);
        assert_eq!(way("link \"a\": queue 1: too short"), ["queue".into()]);
        assert_eq!(way("too slow"), []);
        let options = toml::from_str("delay = '1ms'\nat = ['3s delay x']").unwrap();
        let quoted = "\"3s delay x\" is not TIME: KEY VALUE".to_owned();
        assert_eq!(Fault::of_option(&options, quoted).way, ["at".into()]);
    }
}
