// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines on standard output and standard error. Writing a line can fail: the reader of a pipe may have gone, or the
//! disk may be full. `println!` would panic then. Here, the command continues. If lines of standard output were lost,
//! the command fails at its end.
//!
//! Any line on standard error may contain text from another host, so each is escaped here.

use rustix::termios::tcgetwinsize;
use std::{
    fmt::Arguments,
    io::{self, Write},
    os::fd::AsFd,
    sync::OnceLock,
};

/// Prints a line of the result on standard output: [`console::print`](crate::console::print) with the arguments of
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

/// The error of the first line of standard output that was lost.
static FIRST_ERROR: OnceLock<io::Error> = OnceLock::new();

/// Prints a line of the result on standard output. If the line is lost, [`check_output`] returns the error.
pub fn print(line: Arguments<'_>) {
    let line = line.to_string();
    // Some texts end with a newline already.
    let line = line.strip_suffix('\n').unwrap_or(&line);
    if let Err(error) = writeln!(io::stdout(), "{line}") {
        record_error(error);
    }
}

/// Stores the error of a lost line of standard output for [`check_output`]. Only the first error is stored.
pub fn record_error(error: io::Error) {
    let _first_error_counts = FIRST_ERROR.set(error);
}

/// Prints lines on standard error, escaped. They are messages and not part of the result.
pub fn report(lines: Arguments<'_>) {
    // A failure of standard error cannot be reported anywhere else.
    let _ignored = writeln!(io::stderr(), "{}", escaped_lines(&lines.to_string()));
}

/// Returns columns and rows of a terminal. `None` if the descriptor is no terminal, or its size is unknown.
pub fn terminal_size(terminal: impl AsFd) -> Option<(u16, u16)> {
    let size = tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Escapes the characters that a terminal interprets or does not show: control characters (C0, C1, DEL; line ends
/// included), line and paragraph separators, and characters without width. Some of the latter change the direction of
/// text. All other characters stay.
pub fn escape(text: &str) -> String {
    let mut output = String::with_capacity(text.len());
    for char in text.chars() {
        if is_unprintable(char) {
            output.extend(char.escape_default());
        } else {
            output.push(char);
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

/// Returns the outcome of a command, or the error if a line of its standard output was lost. A reader that closes the
/// pipe early, as `| head` does, is not an error.
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
