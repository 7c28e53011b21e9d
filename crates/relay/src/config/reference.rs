// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reference configuration, which explains every key and shows the defaults. It is a valid file,
//! ready to install; the tests compare it with [`super::settings`].

/// Text of the reference configuration. Keys with a default are commented out.
pub(crate) const TEXT: &str = include_str!("relay.toml");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        authority,
        config::{Config, settings::Settings},
    };
    use std::collections::BTreeSet;

    /// Role of a key's line.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum KeyRole {
        Default,
        Example,
        Required,
    }

    #[derive(Debug)]
    struct Entry {
        key: String,
        value: String,
        role: KeyRole,
        explained: bool,
    }

    impl Entry {
        fn new(line: &str, explained: bool) -> Option<Self> {
            let (key, rest) = line.split_once(" = ")?;
            let (value, role) = match rest.rsplit_once(" # ") {
                Some((value, "required")) => (value, KeyRole::Required),
                Some((value, "example")) => (value, KeyRole::Example),
                Some((_, other)) => panic!("{line}: {other}?"),
                None => (rest, KeyRole::Default),
            };
            assert!(!value.contains('{'), "{line}: tables are shown as tables");
            Some(Self {
                key: key.to_owned(),
                value: value.trim().to_owned(),
                role,
                explained,
            })
        }

        fn line(&self) -> String {
            format!("{} = {}\n", self.key, self.value)
        }
    }

    /// Table of the file; `header` is empty for the keys before all tables.
    #[derive(Debug, Default)]
    struct Table {
        header: String,
        is_active: bool,
        entries: Vec<Entry>,
    }

    impl Table {
        /// Path of the table, such as `listener` or `peer.tokyo.tls`.
        fn path(&self) -> &str {
            self.header.trim_matches(['[', ']'])
        }

        /// Text of the table: its required keys, and one more line.
        fn text(&self, more: &str) -> String {
            let required = self.entries.iter();
            let required = required.filter(|e| e.role == KeyRole::Required);
            let lines: String = required.map(Entry::line).collect();
            format!("{}\n{lines}{more}\n", self.header)
        }
    }

    fn tables() -> Vec<Table> {
        let mut tables = vec![Table::default()];
        let mut explained = false;
        for line in TEXT.lines() {
            let comment = line.starts_with("# ") || line.starts_with("#:") || line == "#";
            let text = line.trim_start_matches('#');
            if text.starts_with('[') {
                tables.push(Table {
                    header: text.to_owned(),
                    is_active: !line.starts_with('#'),
                    entries: Vec::new(),
                });
            } else if !comment && !line.is_empty() {
                let entry = Entry::new(text, explained);
                let entry = entry.unwrap_or_else(|| panic!("neither key nor comment: {line}"));
                tables.last_mut().unwrap().entries.push(entry);
            }
            explained = comment;
        }
        tables
    }

    /// Valid file that contains table `chosen` with the line `more`.
    fn valid_file(tables: &[Table], chosen: usize, more: &str) -> String {
        let parent = |n: &usize| {
            let (table, parent) = (tables[chosen].path(), tables[*n].path());
            *n < chosen && !parent.is_empty() && table.starts_with(&format!("{parent}."))
        };
        let parent = (0..tables.len()).rfind(parent);
        let is_there = |n: usize| n == 0 || tables[n].is_active || n == chosen || Some(n) == parent;
        let text = |n: usize| tables[n].text(if n == chosen { more } else { "" });
        (0..tables.len())
            .filter(|n| is_there(*n))
            .map(text)
            .collect()
    }

    /// Keys that serde accepts at the place of an unknown one.
    fn known_keys(text: &str) -> BTreeSet<String> {
        let error = toml::from_str::<Settings>(text).unwrap_err();
        let message = error.message();
        let (_, expected) = message
            .split_once("unknown field `no_such_key`, expected")
            .unwrap_or_else(|| panic!("{message}"));
        let quoted = expected.split('`').skip(1).step_by(2);
        quoted.map(str::to_owned).collect()
    }

    /// Whether the file has `key` in a table of this path, as a line or as a subtable.
    fn has(tables: &[Table], path: &str, key: &str) -> bool {
        let whole = match path {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        };
        tables.iter().any(|table| {
            let below = table.path().strip_prefix(whole.as_str());
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                || table.path() == path && table.entries.iter().any(|entry| entry.key == key)
        })
    }

    /// Checks that each accepted key is in the file. Tables with the same keys are of one kind, and
    /// may share the keys: each kind of listener shows those that only it has.
    #[test]
    fn contains_every_key() {
        let tables = tables();
        let known = |n| known_keys(&valid_file(&tables, n, "no_such_key = 1"));
        let known: Vec<_> = (0..tables.len()).map(known).collect();
        for keys in &known {
            let kin = || (0..tables.len()).filter(|n| known[*n] == *keys);
            for key in keys {
                let shown = kin().any(|n| has(&tables, tables[n].path(), key));
                let paths: BTreeSet<_> = kin().map(|n| tables[n].path()).collect();
                assert!(shown, "{key} is missing from {paths:?}");
            }
        }
        let count: usize = known.iter().map(BTreeSet::len).sum();
        assert!(count > 60, "only {count} keys were compared");
    }

    fn checked(text: &str) -> Config {
        let settings = toml::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        Config::new(&settings).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    /// Checked configuration with certificates in `directory`.
    fn checked_with_certificates(text: &str, directory: &tempfile::TempDir) -> Config {
        let path = directory.path().to_str().unwrap();
        checked(&text.replace("/etc/longhaul", path))
    }

    #[test]
    fn shows_true_defaults() {
        let directory = tempfile::tempdir().unwrap();
        let names = ["here", "tokyo"].map(str::to_owned);
        authority::make(directory.path(), &names).unwrap();
        let tables = tables();
        for (n, table) in tables.iter().enumerate() {
            let before = checked_with_certificates(&valid_file(&tables, n, ""), &directory);
            let defaults = table.entries.iter();
            for entry in defaults.filter(|e| e.role == KeyRole::Default) {
                let after =
                    checked_with_certificates(&valid_file(&tables, n, &entry.line()), &directory);
                let same = format!("{before:#?}") == format!("{after:#?}");
                assert!(same, "{} {}", table.header, entry.line());
            }
        }
    }

    #[test]
    fn parses_every_example() {
        let tables = tables();
        for (n, table) in tables.iter().enumerate() {
            let examples = table.entries.iter();
            for entry in examples.filter(|e| e.role == KeyRole::Example) {
                let text = valid_file(&tables, n, &entry.line());
                let read = toml::from_str::<Settings>(&text);
                assert!(read.is_ok(), "{}: {read:?}", entry.line());
            }
        }
    }

    #[test]
    fn explains_every_key() {
        for table in tables() {
            for entry in &table.entries {
                let explained = entry.explained || entry.role == KeyRole::Required;
                assert!(explained, "{} {}", table.header, entry.key);
            }
        }
    }

    #[test]
    fn unchanged_file_serves_only_this_host() {
        let config = checked(TEXT);
        let [listener] = &config.listeners[..] else {
            panic!("{:?}", config.listeners);
        };
        assert!(listener.address.ip().is_loopback() && listener.allow_from.is_empty());
        assert!(config.peers.is_empty() && config.policy.rules.is_empty());
    }

    /// Rows of the manual's table below `title`: the code words in its first two columns.
    fn manual(title: &str) -> Vec<(String, String)> {
        let text = include_str!("../../../../docs/relay.md");
        let (_, below) = text
            .split_once(title)
            .unwrap_or_else(|| panic!("no {title}"));
        let rows = below.lines().skip_while(|line| !line.starts_with("| `"));
        let cell = |row: &str, n| {
            let cell: &str = row.split('|').nth(n).unwrap();
            cell.trim().trim_matches('`').to_owned()
        };
        rows.take_while(|line| line.starts_with("| `"))
            .flat_map(|row| {
                let keys = cell(row, 1);
                let keys: Vec<_> = keys.split("`, `").map(str::to_owned).collect();
                keys.into_iter().map(move |key| (key, cell(row, 2)))
            })
            .collect()
    }

    #[test]
    fn manual_has_same_defaults() {
        let named = |table: &Table, entry: &Entry| {
            let path = table.path().replace("peer.tokyo", "peer");
            (format!("{path}.{}", entry.key), entry.value.clone())
        };
        let has_printed_default = |entry: &&Entry| {
            entry.role == KeyRole::Default && !matches!(&*entry.value, "false" | "[]")
        };
        let tables = tables();
        let in_file: BTreeSet<_> = tables
            .iter()
            .flat_map(|table| {
                table
                    .entries
                    .iter()
                    .filter(has_printed_default)
                    .map(|e| named(table, e))
            })
            .collect();
        let manual: BTreeSet<_> = manual("### Defaults").into_iter().collect();
        assert_eq!(in_file, manual);
    }

    #[test]
    fn manual_has_same_profile_keys() {
        let manual: BTreeSet<_> = manual("### Profiles")
            .into_iter()
            .map(|row| row.0)
            .collect();
        let tables = tables();
        let profile = tables
            .iter()
            .find(|table| table.path() == "profile.upstream");
        let in_file: BTreeSet<_> = profile
            .unwrap()
            .entries
            .iter()
            .map(|e| e.key.clone())
            .collect();
        assert_eq!(in_file, manual);
    }

    /// Compares the help of each flag that sets the same value.
    #[test]
    fn help_has_the_same_defaults() {
        use clap::Args as _;
        let command = crate::Args::augment_args(clap::Command::new("relay"));
        let tables = tables();
        let mut compared = 0;
        for arg in command.get_arguments() {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let key = match arg.get_id().as_str() {
                "max_connections" => "connections",
                "peer_pool" => "pool",
                id => id,
            };
            let in_tables = tables.iter().filter(|t| !t.path().starts_with("listener"));
            let entry = in_tables
                .flat_map(|t| &t.entries)
                .find(|e| e.key == key && e.role == KeyRole::Default && !e.value.starts_with('['));
            if let Some(entry) = entry.filter(|e| e.value != "false" && e.key != "profile") {
                let want = format!("[default: {}]", entry.value.trim_matches('"'));
                assert!(help.contains(&want), "--{key}: {help}: {want}");
                compared += 1;
            }
        }
        assert!(compared >= 6, "only {compared} flags were compared");
    }
}
