// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reader of configuration files.

use crate::config::{
    location::{self, Part, Table},
    settings::Settings,
};
use longhaul_command::exit::{Refusal, explain_integer_error};
use serde::Serialize;
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// Path and text of a configuration file.
pub(crate) struct File {
    path: PathBuf,
    text: String,
}

fn refusal(problem: String) -> anyhow::Error {
    Refusal::option("config", problem)
}

/// Reads the file at `path` and its settings. Errors name line and column.
pub(crate) fn read(path: &Path) -> anyhow::Result<(File, Settings)> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| refusal(format!("--config {}: {error}", path.display())))?;
    let mut settings =
        parse(&text).map_err(|problem| refusal(format!("{}:{problem}", path.display())))?;
    settings.resolve_paths(path.parent().unwrap_or(path));
    let path = path.to_owned();
    Ok((File { path, text }, settings))
}

/// Location in a file; line and column from 1.
#[derive(Debug, Serialize)]
pub(crate) struct Location {
    file: String,
    line: usize,
    column: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl File {
    /// Location of a part of a table. `None` if the table comes from flags.
    pub(crate) fn location(&self, table: &Table, part: Option<&Part>) -> Option<Location> {
        let at = location::offset(&self.text, table, part)?;
        let (line, column) = line_and_column_of(&self.text, at);
        let file = self.path.display().to_string();
        Some(Location { file, line, column })
    }
}

/// Prefixes the refusal of a part of a table with its location in the file, if it has one.
pub(crate) fn locate(error: anyhow::Error, file: Option<&File>) -> anyhow::Error {
    let location = || {
        let (table, part) = (error.downcast_ref()?, error.downcast_ref::<Part>()?);
        file?.location(table, Some(part))
    };
    let location = location();
    let is_located = location.is_some();
    let prefix = location.map_or_else(String::new, |location| format!("{location}: "));
    match Refusal::with_prefix(error, &prefix).downcast() {
        Ok(Refusal::Usage(text) | Refusal::Option(_, text)) if is_located => refusal(text),
        // Only the refusal is printed, without table and part.
        Ok(refusal) => refusal.into(),
        Err(error) => error,
    }
}

/// Parses the settings.
fn parse(text: &str) -> Result<Settings, String> {
    toml::from_str(text).map_err(|error| {
        let (line, column) = line_and_column_of(text, error.span().map_or(0, |span| span.start));
        let message = error.message().lines().next().unwrap_or_default();
        format!("{line}:{column}: {}", explain_integer_error(message))
    })
}

/// Line and column of a byte offset, both from 1.
fn line_and_column_of(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_unknown_key_with_its_location() {
        let problem = parse("[limits]\nconections = 5\n").unwrap_err();
        assert!(
            problem.starts_with("2:1: unknown field `conections`"),
            "{problem}"
        );
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("relay.toml");
        let tls = "tls = { ca = 'tls/ca.pem', certificate = '/etc/c.pem', key = '../k.pem' }\n";
        let listener = "[[listener]]\nkind = 'http'\naddress = '127.0.0.1:1'\n";
        let text = format!(
            "{listener}users = 'users'\n{tls}[peer.p]\naddress = 'p:1'\n{tls}\
             [counters]\nfile = '-'\naccess_log = 'a.jsonl'\n"
        );
        std::fs::write(&path, text).unwrap();
        let settings = read(&path).unwrap().1;
        let here = |name: &str| directory.path().join(name);
        assert_eq!(settings.listener[0].users, Some(here("users")));
        assert_eq!(settings.counters.file, Some("-".into()));
        assert_eq!(settings.counters.access_log, Some(here("a.jsonl")));
        let listener_tls = settings.listener[0].tls.clone().unwrap();
        assert_eq!(Some(&listener_tls), settings.peer["p"].tls.as_ref());
        assert_eq!(listener_tls.ca, here("tls/ca.pem"));
        assert_eq!(listener_tls.certificate, Path::new("/etc/c.pem"));
        assert_eq!(listener_tls.key, here("../k.pem"));
    }

    #[test]
    fn names_location_and_form_of_bad_values() {
        for (text, word) in [
            ("allow_from = ['10.0.0.0/99']", "1:14: "),
            (
                "[[listener]]\nkind = 'socks'\naddress = '127.0.0.1:1'",
                "socks5",
            ),
            ("[[route]]\nports = [70000]", "port"),
            ("[[route]]\nto = ['*']", "example.org"),
            ("[profile.long]\npacing_rate = 'fast'", "2:15: "),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(problem.contains(word), "{text}: {problem}");
        }
    }
}
