// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines on standard output and standard error. Nobody may read them, or the disk behind them may be full: that ends no
//! relay, no copy and no thread, as a panic of `println!` would. Answers that were lost are an error at the end.
//!
//! Text from another host may be in any line on standard error, so each of them is escaped here.

use std::{
    fmt::Arguments,
    io::{self, Write},
    sync::OnceLock,
};

/// A line of the answer, on standard output.
#[macro_export]
macro_rules! say {
    ($($line:tt)*) => { $crate::console::say(format_args!($($line)*)) };
}

/// A line beside the answer, on standard error.
#[macro_export]
macro_rules! note {
    ($($line:tt)*) => { $crate::console::note(format_args!($($line)*)) };
}

/// Why the first line of the answer was lost that was.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Prints a line of the answer on standard output. A line that is lost is an error of [`checked`].
pub fn say(line: Arguments<'_>) {
    let line = line.to_string();
    // Some texts have their last newline, and some have not.
    let line = line.strip_suffix('\n').unwrap_or(&line);
    if let Err(error) = writeln!(io::stdout(), "{line}") {
        lose(error);
    }
}

/// A line of the answer was lost.
pub fn lose(error: io::Error) {
    let _there_was_one_before = LOST.set(error);
}

/// Prints lines beside the answer on standard error, escaped.
pub fn note(lines: Arguments<'_>) {
    // There is no other place to say it.
    let _lost = writeln!(io::stderr(), "{}", escaped_lines(&lines.to_string()));
}

/// Escapes what a terminal obeys or hides, line ends included: control characters (C0, C1, DEL), line and paragraph
/// separators, and characters without width, which change the direction of text. Everything else stays.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match is_obeyed(char) {
            true => shown.extend(char.escape_default()),
            false => shown.push(char),
        }
    }
    shown
}

/// Line ends stay, and tabs.
pub fn escaped_lines(text: &str) -> String {
    let escaped_line = |line: &str| line.split('\t').map(escaped).collect::<Vec<_>>().join("\t");
    text.split('\n')
        .map(escaped_line)
        .collect::<Vec<_>>()
        .join("\n")
}

fn is_obeyed(char: char) -> bool {
    let without_width = matches!(
        char,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    char.is_control() || without_width
}

/// What became of a command, unless its answer was lost. Whoever has read enough and went away (`| head`) lost nothing.
pub fn checked(outcome: anyhow::Result<()>) -> anyhow::Result<()> {
    outcome?;
    let lost = io::stdout().flush().err();
    match lost.as_ref().or(LOST.get()) {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            anyhow::bail!("standard output: {error}")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_what_a_terminal_obeys() {
        assert_eq!(
            escaped("\x1b]0;x\x07\r\nlonghaul: done\u{9b}2J"),
            "\\u{1b}]0;x\\u{7}\\r\\nlonghaul: done\\u{9b}2J"
        );
        assert_eq!(escaped("a\u{202e}b\u{200b}c"), "a\\u{202e}b\\u{200b}c");
    }

    #[test]
    fn keeps_what_is_only_seen() {
        let names = "größe 大 o\u{308} 'a' \"b\" c\\x0a";
        assert_eq!(escaped(names), names);
    }

    #[test]
    fn keeps_lines_and_tabs_of_a_message() {
        assert_eq!(escaped_lines("a\tb\n\x1bc\n"), "a\tb\n\\u{1b}c\n");
    }
}
