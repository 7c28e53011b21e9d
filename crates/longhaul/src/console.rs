// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines on standard output and standard error. Nobody may read them, or the disk behind them may be full: that ends no
//! relay, no copy and no thread, as a panic of `println!` would. Answers that were lost are an error at the end.

use std::{
    fmt::Arguments,
    io::{self, Write},
    sync::OnceLock,
};

/// A line of the answer, on standard output.
macro_rules! say {
    ($($line:tt)*) => { $crate::console::say(format_args!($($line)*)) };
}

/// A line beside the answer, on standard error.
macro_rules! note {
    ($($line:tt)*) => { $crate::console::note(format_args!($($line)*)) };
}

/// Why the first line of the answer was lost that was.
static LOST: OnceLock<io::Error> = OnceLock::new();

#[cfg(not(test))]
pub(crate) fn say(line: Arguments<'_>) {
    let line = line.to_string();
    // Some texts have their last newline, and some have not.
    let line = line.strip_suffix('\n').unwrap_or(&line);
    if let Err(error) = writeln!(io::stdout(), "{line}") {
        let _there_was_one_before = LOST.set(error);
    }
}

#[cfg(not(test))]
pub(crate) fn note(line: Arguments<'_>) {
    // There is no other place to say it.
    let _lost = writeln!(io::stderr(), "{line}");
}

/// Of tests the harness keeps what is printed so.
#[cfg(test)]
pub(crate) fn say(line: Arguments<'_>) {
    println!("{line}");
}

#[cfg(test)]
pub(crate) fn note(line: Arguments<'_>) {
    eprintln!("{line}");
}

/// What became of a command, unless its answer was lost. Whoever has read enough and went away (`| head`) lost nothing.
pub(crate) fn checked(outcome: anyhow::Result<()>) -> anyhow::Result<()> {
    outcome?;
    let lost = io::stdout().flush().err();
    match lost.as_ref().or(LOST.get()) {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            anyhow::bail!("standard output: {error}")
        }
        _ => Ok(()),
    }
}
