// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reader of configuration files.

use crate::config::{
    location::{self, Table},
    settings::Settings,
};
use longhaul_command::exit::{Refusal, explain_integer_error};
use std::path::{Path, PathBuf};

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

impl File {
    /// Location of the subject of `message`, as `FILE:LINE:COLUMN: `; empty if it comes from a
    /// flag.
    pub(crate) fn location_prefix(&self, table: &Table, message: &str) -> String {
        match self.line_and_column(table, message) {
            Some((line, column)) => format!("{}:{line}:{column}: ", self.path.display()),
            None => String::new(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Line and column of the subject of `message`, both from 1.
    pub(crate) fn line_and_column(&self, table: &Table, message: &str) -> Option<(usize, usize)> {
        let at = location::offset(&self.text, table, message)?;
        Some(line_and_column_of(&self.text, at))
    }
}

/// Prefixes the error with its location in the file, if it has one.
pub(crate) fn locate(error: anyhow::Error, file: Option<&File>) -> anyhow::Error {
    location::locate(error, |table, text| {
        file.map_or_else(String::new, |file| file.location_prefix(table, text))
    })
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
