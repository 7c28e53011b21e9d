// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locations in the configuration file. The function that finds an error or a warning names the part of
//! the table; its caller names the table.

use anyhow::Context as _;
use longhaul_command::exit::Refusal;
use std::{borrow::Cow, fmt};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// A table of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Table {
    /// Listener by index from 0; those from flags follow those of the file.
    Listener(usize),
    Peer(String),
    /// Route by index, as listeners.
    Route(usize),
    Profile(String),
    Limits,
    Counters,
    Admin,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listener(n) => write!(f, "listener {}", n + 1),
            Self::Peer(name) => write!(f, "peer {name}"),
            Self::Route(n) => write!(f, "route {}", n + 1),
            Self::Profile(name) => write!(f, "profile {name}"),
            Self::Limits => f.write_str("limits"),
            Self::Counters => f.write_str("counters"),
            Self::Admin => f.write_str("admin"),
        }
    }
}

/// Part of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// A key.
    Key(&'static str),
    /// A value, by the path to it: keys and indices from 0 with dots between them, such as `via.1`.
    Value(Cow<'static, str>),
}

impl Part {
    pub(crate) fn value(path: impl Into<Cow<'static, str>>) -> Self {
        Self::Value(path.into())
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key(key) => key,
            Self::Value(path) => path,
        })
    }
}

impl From<&'static str> for Part {
    fn from(key: &'static str) -> Self {
        Self::Key(key)
    }
}

/// Returns the refusal of a part of a table. The caller adds the table as context.
pub(crate) fn refused(part: impl Into<Part>, problem: impl fmt::Display) -> anyhow::Error {
    Refusal::usage(problem).context(part.into())
}

/// Adds the table to an error: as context, and its name to the text.
pub(crate) fn in_table<T>(checked: anyhow::Result<T>, table: Table) -> anyhow::Result<T> {
    checked
        .map_err(|error| Refusal::with_prefix(error, &format!("{table}: ")))
        .context(table)
}

/// A warning, and what it is about: a part of a table, or all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) table: Table,
    pub(crate) part: Option<Part>,
    pub(crate) text: String,
}

impl Finding {
    pub(crate) fn new(table: Table, part: Option<Part>, text: String) -> Self {
        Self { table, part, text }
    }

    /// Finding whose text begins with the table's name.
    pub(crate) fn named(table: Table, part: Option<Part>, text: impl fmt::Display) -> Self {
        let text = format!("{table}: {text}");
        Self { table, part, text }
    }
}

/// Byte offset in `text` of a part of a table. The offset of a missing part is that of the table.
pub(crate) fn offset(text: &str, table: &Table, part: Option<&Part>) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let table = find(document.get_ref(), table)?;
    let span = match part {
        Some(Part::Key(key)) => {
            let key = table.get_ref().as_table()?.get_key_value(*key);
            key.map(|(key, _)| key.span())
        }
        Some(Part::Value(path)) => {
            let value = path.split('.').try_fold(table, step);
            value.map(Spanned::span)
        }
        None => None,
    };
    Some(span.unwrap_or(table.span()).start)
}

fn step<'a, 'b>(value: &'a Spanned<DeValue<'b>>, step: &str) -> Option<&'a Spanned<DeValue<'b>>> {
    match step.parse::<usize>() {
        Ok(index) => value.get_ref().get(index),
        Err(_) => value.get_ref().get(step),
    }
}

fn find<'a, 'b>(document: &'a DeTable<'b>, table: &Table) -> Option<&'a Spanned<DeValue<'b>>> {
    let of = |kind: &str| document.get(kind).map(Spanned::get_ref);
    match table {
        Table::Listener(n) => of("listener")?.get(*n),
        Table::Route(n) => of("route")?.get(*n),
        Table::Peer(name) => of("peer")?.get(name.as_str()),
        Table::Profile(name) => of("profile")?.get(name.as_str()),
        Table::Limits => document.get("limits"),
        Table::Counters => document.get("counters"),
        Table::Admin => document.get("admin"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[[listener]]\nkind = 'http'\naddress = '10.0.0.1:1'\n\n[[listener]]\n\
                        kind = 'forward'\nprofile = 'long'\n[listener.tls]\nca = '/etc/ca'\n\
                        [[route]]\nvia = ['a',\n 'tokyo']\n[profile.keepalive]\nmss = 4\n";

    /// Text from the part's location to the end of its line.
    fn text_at(table: &Table, part: &Part) -> Option<&'static str> {
        let at = offset(TEXT, table, Some(part))?;
        TEXT[at..].lines().next()
    }

    #[test]
    fn finds_keys_and_values() {
        let (second, keepalive) = (Table::Listener(1), Table::Profile("keepalive".into()));
        for (table, part, text) in [
            (&second, Part::Key("profile"), "profile = 'long'"),
            (&second, Part::value("profile"), "'long'"),
            (&second, Part::value("tls.ca"), "'/etc/ca'"),
            (&Table::Listener(0), Part::value("address"), "'10.0.0.1:1'"),
            (&Table::Route(0), Part::value("via.1"), "'tokyo']"),
            (&keepalive, Part::Key("mss"), "mss = 4"),
        ] {
            assert_eq!(text_at(table, &part), Some(text), "{table} {part}");
        }
    }

    #[test]
    fn missing_part_is_at_its_table() {
        for part in [Part::Key("users"), Part::value("tls.key")] {
            assert_eq!(text_at(&Table::Listener(1), &part), Some("[[listener]]"));
            assert_eq!(text_at(&Table::Listener(2), &part), None);
            assert_eq!(text_at(&Table::Limits, &part), None);
        }
        assert_eq!(offset(TEXT, &Table::Listener(0), None), Some(0));
    }
}
