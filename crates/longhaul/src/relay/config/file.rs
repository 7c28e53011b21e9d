// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a configuration file.

use super::settings::Settings;
use crate::exit::Refusal;
use std::path::Path;

/// The settings in `path`. What is wrong is named with its line and column.
pub(crate) fn read(path: &Path) -> anyhow::Result<Settings> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Refusal::usage(format!("--config {}: {error}", path.display())))?;
    parse(&text).map_err(|problem| Refusal::usage(format!("{}:{problem}", path.display())))
}

fn parse(text: &str) -> Result<Settings, String> {
    toml::from_str(text).map_err(|error| {
        let before = &text[..error.span().map_or(0, |span| span.start)];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let message = error.message().lines().next().unwrap_or_default();
        format!("{line}:{column}: {message}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_named_with_its_place() {
        let problem = parse("[limits]\nconections = 5\n").unwrap_err();
        assert!(
            problem.starts_with("2:1: unknown field `conections`"),
            "{problem}"
        );
    }

    #[test]
    fn values_say_what_they_want() {
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
