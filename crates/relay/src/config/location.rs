// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locations in the configuration file for messages. A message names its subject, a key or a value;
//! the caller supplies the table.

use longhaul_command::exit::Refusal;
use std::fmt;
use toml::de::{DeTable, DeValue};

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

/// A warning, and the table that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) table: Table,
    pub(crate) text: String,
}

impl Finding {
    pub(crate) fn new(table: Table, text: impl Into<String>) -> Self {
        Self {
            table,
            text: text.into(),
        }
    }

    /// Finding whose text begins with the table's name.
    pub(crate) fn named(table: Table, text: impl fmt::Display) -> Self {
        let text = format!("{table}: {text}");
        Self { table, text }
    }
}

/// Extension of results that adds the table to an error.
pub(crate) trait InTable {
    fn in_table(self, table: Table) -> Self;
}

impl<T> InTable for anyhow::Result<T> {
    fn in_table(self, table: Table) -> Self {
        self.map_err(|error| error.context(table))
    }
}

/// Prefixes the error with its location, if it has one, and removes the table from its context.
pub(crate) fn locate(
    error: anyhow::Error,
    prefix: impl FnOnce(&Table, &str) -> String,
) -> anyhow::Error {
    let Some(table) = error.downcast_ref::<Table>().cloned() else {
        return error;
    };
    let refusal = match error.downcast::<Refusal>() {
        Ok(refusal) => refusal,
        Err(error) => return error,
    };
    let prefix = prefix(&table, &refusal.to_string());
    match refusal.with_prefix(&prefix) {
        Refusal::Usage(text) | Refusal::Option(_, text) if !prefix.is_empty() => {
            Refusal::option("config", text)
        }
        refusal => refusal.into(),
    }
}

/// Byte offset of the subject of `message` in `text`: the value or key that the message names, else
/// the table.
pub(crate) fn offset(text: &str, table: &Table, message: &str) -> Option<usize> {
    if message.starts_with("--") {
        return None;
    }
    let document = DeTable::parse(text).ok()?;
    let (start, found) = find(document.get_ref(), table)?;
    let mut entries = Vec::new();
    collect(found, &mut entries);
    let message = without_owner(message);
    // A path is never a key's name. Most messages name a key first. Of several values, the longest
    // is the most specific.
    let path =
        |e: &&Entry<'_>| position_in(e, message).filter(|_| !e.is_key && e.text.contains('/'));
    let key = |e: &&Entry<'_>| position_in(e, message).filter(|_| e.is_key);
    let value = entries
        .iter()
        .filter(|e| !e.is_key && position_in(e, message).is_some());
    let entry = first_mentioned(&entries, path)
        .or_else(|| first_mentioned(&entries, key))
        .or_else(|| value.max_by_key(|e| e.text.len()));
    Some(entry.map_or(start, |entry| entry.at))
}

/// Entry that the message names first.
fn first_mentioned<'a, 'b>(
    entries: &'b [Entry<'a>],
    at: impl Fn(&&'b Entry<'a>) -> Option<usize>,
) -> Option<&'b Entry<'a>> {
    let named = entries.iter().filter(|entry| at(entry).is_some());
    named.min_by_key(|entry| at(entry))
}

fn is_word_boundary(c: char) -> bool {
    !c.is_alphanumeric() && c != '_'
}

/// Position at which the message contains the entry's text as a whole word.
fn position_in(entry: &Entry<'_>, message: &str) -> Option<usize> {
    let ends = |c: Option<char>| c.is_none_or(is_word_boundary);
    let is_whole_word = |at: &usize| {
        let (before, rest) = message.split_at(*at);
        ends(before.chars().next_back()) && ends(rest[entry.text.len()..].chars().next())
    };
    let mut mentions = message.match_indices(entry.text).map(|(at, _)| at);
    mentions
        .find(is_whole_word)
        .filter(|_| !entry.text.is_empty())
}

/// Strips the prefix `listener NAME: `, whose name may equal a key.
fn without_owner(message: &str) -> &str {
    let owner_words = ["listener ", "peer ", "profile ", "route "];
    match message.split_once(": ") {
        Some((owner, rest)) if owner_words.iter().any(|word| owner.starts_with(word)) => rest,
        _ => message,
    }
}

/// Finds the table and its byte offset.
fn find<'a>(document: &'a DeTable<'a>, table: &Table) -> Option<(usize, &'a DeTable<'a>)> {
    let value = match table {
        Table::Listener(n) => document.get("listener")?.get_ref().get(*n)?,
        Table::Route(n) => document.get("route")?.get_ref().get(*n)?,
        Table::Peer(name) => document.get("peer")?.get_ref().get(name.as_str())?,
        Table::Profile(name) => document.get("profile")?.get_ref().get(name.as_str())?,
        Table::Limits => document.get("limits")?,
        Table::Counters => document.get("counters")?,
        Table::Admin => document.get("admin")?,
    };
    Some((value.span().start, value.get_ref().as_table()?))
}

/// A key, or a string value.
struct Entry<'a> {
    at: usize,
    text: &'a str,
    is_key: bool,
}

fn collect<'a>(table: &'a DeTable<'a>, entries: &mut Vec<Entry<'a>>) {
    for (key, value) in table {
        entries.push(Entry {
            at: key.span().start,
            text: key.get_ref().as_ref(),
            is_key: true,
        });
        collect_values(value.span().start, value.get_ref(), entries);
    }
}

fn collect_values<'a>(at: usize, value: &'a DeValue<'a>, entries: &mut Vec<Entry<'a>>) {
    match value {
        DeValue::String(text) => entries.push(Entry {
            at,
            text: text.as_ref(),
            is_key: false,
        }),
        DeValue::Array(values) => {
            for value in values {
                collect_values(value.span().start, value.get_ref(), entries);
            }
        }
        DeValue::Table(table) => collect(table, entries),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[[listener]]\nkind = 'http'\naddress = '10.0.0.1:1'\n\n[[listener]]\n\
                        kind = 'forward'\nprofile = 'long'\n[listener.tls]\nca = '/etc/certificate'\n\
                        certificate = '/etc/x'\n[[route]]\nvia = ['a',\n 'tokyo']\n[profile.keepalive]\n\
                        mss = 4\nkeepalive = '1ms'\n";

    fn line(table: &Table, message: &str) -> Option<usize> {
        let at = offset(TEXT, table, message)?;
        Some(TEXT[..at].matches('\n').count() + 1)
    }

    #[test]
    fn finds_key_or_value_that_message_names() {
        use Table as T;
        let second = T::Listener(1);
        for (table, message, want) in [
            (&second, "listener x: no profile is called long", 7),
            (
                &second,
                "listener x: /etc/certificate: no certificate in it",
                9,
            ),
            (&second, "listener x: /etc/x: no certificate in it", 10),
            (&T::Listener(0), "http 10.0.0.1:1 is not on loopback", 3),
            (&T::Route(0), "route 1: no peer is called tokyo", 13),
            (
                &T::Profile("keepalive".into()),
                "profile keepalive: mss 4: expected 88",
                15,
            ),
            (
                &T::Profile("keepalive".into()),
                "profile keepalive: keepalive 1ms: expected 1s",
                16,
            ),
        ] {
            assert_eq!(line(table, message), Some(want), "{message}");
        }
    }

    #[test]
    fn locates_missing_key_at_its_table() {
        let message = "listener x: forward needs a destination";
        assert_eq!(line(&Table::Listener(1), message), Some(6));
        assert_eq!(line(&Table::Listener(2), "of a flag"), None);
        assert_eq!(line(&Table::Limits, "of a flag"), None);
    }
}
