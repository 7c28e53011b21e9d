// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines on standard output and standard error. Such a line may have no reader, or a full disk may refuse it. Then
//! relays, copies and threads go on, while a panic of `println!` would end them. Lost lines of standard output are an
//! error at the command's end.
//!
//! Any line on standard error may contain text from another host, so each is escaped here.

use std::{
    fmt::Arguments,
    io::{self, Write},
    sync::OnceLock,
};

/// Prints a line of the answer on standard output: [`console::print`](crate::console::print) with the arguments of
/// `format!`.
#[macro_export]
macro_rules! outln {
    ($($line:tt)*) => { $crate::console::print(format_args!($($line)*)) };
}

/// Prints a line on standard error: [`console::report`](crate::console::report) with the arguments of `format!`.
#[macro_export]
macro_rules! errln {
    ($($line:tt)*) => { $crate::console::report(format_args!($($line)*)) };
}

/// The error of the first line of the answer that was lost.
static FIRST_ERROR: OnceLock<io::Error> = OnceLock::new();

/// Prints a line of the answer on standard output. If it is lost, [`check_output`] returns the error.
pub fn print(line: Arguments<'_>) {
    let line = line.to_string();
    // Some texts end with a newline already.
    let line = line.strip_suffix('\n').unwrap_or(&line);
    if let Err(error) = writeln!(io::stdout(), "{line}") {
        record_error(error);
    }
}

/// Keeps the error of a lost line of the answer for [`check_output`]. The first error counts.
pub fn record_error(error: io::Error) {
    let _first_error_counts = FIRST_ERROR.set(error);
}

/// Prints lines on standard error, escaped. They are no part of the answer.
pub fn report(lines: Arguments<'_>) {
    // A failure of standard error cannot be reported anywhere else.
    let _ignored = writeln!(io::stderr(), "{}", escaped_lines(&lines.to_string()));
}

/// Escapes the characters that a terminal interprets or does not show, line ends included. They are control characters
/// (C0, C1, DEL), line and paragraph separators, and characters without width, some of which change the direction of
/// text. All others stay.
pub fn escape(text: &str) -> String {
    let mut output = String::with_capacity(text.len());
    for char in text.chars() {
        match is_unprintable(char) {
            true => output.extend(char.escape_default()),
            false => output.push(char),
        }
    }
    output
}

/// Escapes as [`escape`] does, but keeps line ends and tabs.
pub fn escaped_lines(text: &str) -> String {
    let escaped_line = |line: &str| line.split('\t').map(escape).collect::<Vec<_>>().join("\t");
    text.split('\n')
        .map(escaped_line)
        .collect::<Vec<_>>()
        .join("\n")
}

fn is_unprintable(char: char) -> bool {
    let has_no_width = matches!(
        char,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    char.is_control() || has_no_width
}

/// Returns the outcome of a command, or the error if a line of its answer was lost. A reader that closes the pipe, as
/// `| head` does, is no error.
pub fn check_output(outcome: anyhow::Result<()>) -> anyhow::Result<()> {
    outcome?;
    let flush_error = io::stdout().flush().err();
    match flush_error.as_ref().or(FIRST_ERROR.get()) {
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
    fn escapes_control_characters_and_those_without_width() {
        assert_eq!(
            escape("\x1b]0;x\x07\r\nlonghaul: done\u{9b}2J"),
            "\\u{1b}]0;x\\u{7}\\r\\nlonghaul: done\\u{9b}2J"
        );
        assert_eq!(escape("a\u{202e}b\u{200b}c"), "a\\u{202e}b\\u{200b}c");
    }

    #[test]
    fn keeps_printable_characters() {
        let names = "größe 大 o\u{308} 'a' \"b\" c\\x0a";
        assert_eq!(escape(names), names);
    }

    #[test]
    fn keeps_line_ends_and_tabs_of_messages() {
        assert_eq!(escaped_lines("a\tb\n\x1bc\n"), "a\tb\n\\u{1b}c\n");
    }
}
