// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a scenario, and the way to it: the keys that lead from the top of the file to the value at
//! fault. Who finds it knows only the last of them; whoever it passes puts his own before. [`crate::source::inherit`] makes
//! file, line and column of it.

use std::{
    collections::HashSet,
    fmt::{self, Display},
};
use toml::{
    Spanned, Table, Value,
    de::{DeTable, DeValue},
};

/// A problem of one value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The last key first.
    way: Vec<Step>,
    problem: String,
}

/// One step of a way: a key of a table, or a number, from 0, in a list.
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

/// The names that there are, for who gave another.
pub(crate) fn there_are(names: &[&str]) -> String {
    match names.is_empty() {
        true => "there are none".to_owned(),
        false => format!("there are: {}", names.join(", ")),
    }
}

/// Whether something keeps what it must.
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

/// The problem alone.
impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl Fault {
    /// The same, with the name of what has it before the problem.
    pub(crate) fn of(mut self, owner: impl Display) -> Self {
        self.problem = format!("{owner}: {}", self.problem);
        self
    }

    /// The same, with the name of its cell, unless that is the only one.
    pub(crate) fn of_cell(self, name: &str) -> Self {
        match name {
            "" => self,
            name => self.of(format!("in the cell {name:?}")),
        }
    }

    /// A command's refusal of what `options` became: at the one whose text it quotes, or else at the first that it
    /// names.
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

    /// The byte where the value at fault begins; what is not there is missing in the table around it.
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

/// What was checked stands at `step`.
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

/// Checks everything in a list.
pub(crate) fn each<T>(
    all: impl IntoIterator<Item = T>,
    mut check: impl FnMut(T) -> Checked,
) -> Checked {
    let mut all = all.into_iter().enumerate();
    all.try_for_each(|(number, one)| at(number, check(one)))
}

/// A fault unless `good`.
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

/// Names become interface, namespace and file names.
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

    /// What stands where the fault is.
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
    fn names_are_listed_where_there_are_any() {
        assert_eq!(there_are(&["a", "b"]), "there are: a, b");
        assert_eq!(there_are(&[]), "there are none");
    }

    #[test]
    fn a_way_leads_to_the_value() {
        assert_eq!(found(&["a".into()]), "1");
        assert_eq!(found(&["b".into(), "c".into(), 0.into()]), "1, { d = 2 }]");
        let d = ["b".into(), "c".into(), 1.into(), "d".into()];
        assert_eq!(found(&d), "2 }]");
        assert_eq!(found(&["e".into(), 1.into(), "g".into()]), "4");
    }

    #[test]
    fn what_is_not_there_is_missing_in_what_is_around_it() {
        assert_eq!(found(&["b".into(), "x".into()]), "[b]");
        assert_eq!(found(&["e".into(), 1.into(), "f".into()]), "[[e]]");
        assert_eq!(found(&["a".into(), "x".into()]), "1");
        assert_eq!(found(&["x".into(), "y".into()]), "a = 1");
        assert_eq!(found(&[]), "a = 1");
    }

    #[test]
    fn a_command_names_its_option() {
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
