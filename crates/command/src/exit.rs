// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit codes: 0 done, 1 failed, 2 usage, 3 not permitted or not supported here; of `longhaul lab run` also 4, not
//! decided.

use std::{io, process::ExitCode};

/// A failure whose exit code is not 1. Everything else that goes wrong exits with 1.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The input is wrong; nothing was touched. The text names the input and the way out.
    #[error("{0}")]
    Usage(String),
    /// The machine or the caller's rights do not allow it. The text says what is missing.
    #[error("{0}")]
    Unsupported(String),
    /// All was done, but what was to be shown is neither shown nor refuted. The text says why.
    #[error("{0}")]
    Undecided(String),
}

impl Refusal {
    /// Bad input, as an error that `?` carries to `main`.
    pub fn usage(reason: impl std::fmt::Display) -> anyhow::Error {
        Self::Usage(reason.to_string()).into()
    }

    /// Something that this machine or this user lacks.
    pub fn unsupported(reason: impl std::fmt::Display) -> anyhow::Error {
        Self::Unsupported(reason.to_string()).into()
    }

    /// Neither shown nor refuted.
    pub fn undecided(reason: impl std::fmt::Display) -> anyhow::Error {
        Self::Undecided(reason.to_string()).into()
    }
}

/// A port that could not be opened, as the end of a command that says which: some take a right.
pub fn port_not_opened(which: String, error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Refusal::unsupported(format!("{which}: {LOW_PORTS}")),
        _ => anyhow::Error::new(error).context(which),
    }
}

/// What such ports take.
pub const LOW_PORTS: &str =
    "ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE";

/// Prints a failure as one line on stderr and picks the exit code.
pub fn code(outcome: &anyhow::Result<()>) -> ExitCode {
    ExitCode::from(number(outcome))
}

/// The exit code of [`Refusal::Undecided`].
pub const UNDECIDED: u8 = 4;

/// The same, as the number that a process ends with.
pub fn number(outcome: &anyhow::Result<()>) -> u8 {
    let Err(error) = outcome else {
        return 0;
    };
    crate::note!("longhaul: {error:#}");
    match error.downcast_ref::<Refusal>() {
        Some(Refusal::Usage(_)) => 2,
        Some(Refusal::Unsupported(_)) => 3,
        Some(Refusal::Undecided(_)) => UNDECIDED,
        None => 1,
    }
}

/// The first line of what clap says about bad flags, without its `error: `.
pub fn first_line(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line)
}

/// Kinds of whole numbers, as serde calls them, and the largest that they hold.
const NUMBERS: [(&str, u64); 5] = [
    ("u8", u8::MAX as u64),
    ("u16", u16::MAX as u64),
    ("u32", u32::MAX as u64),
    ("u64", u64::MAX),
    ("usize", u64::MAX),
];

/// What serde says about a bad value, with what is wrong with a number instead of the name of a type. A key may allow less
/// than its type: that is for its own check to say.
///
/// ```
/// use longhaul_command::exit::with_range;
///
/// assert_eq!(with_range("integer `70000`, expected u16"), "integer `70000`, expected 65535 at most");
/// assert_eq!(with_range("integer `-1`, expected u16"), "integer `-1`, expected 0 or more");
/// assert_eq!(with_range("string \"8\", expected u16"), "string \"8\", expected a whole number without quotes");
/// ```
pub fn with_range(message: &str) -> String {
    let number = |(kind, most): (&str, u64)| {
        let before = message.strip_suffix(kind)?;
        before.ends_with("expected ").then_some((before, most))
    };
    let Some((before, most)) = NUMBERS.into_iter().find_map(number) else {
        return message.to_owned();
    };
    if before.contains("integer `-") {
        return format!("{before}0 or more");
    }
    if before.contains("integer `") {
        return format!("{before}{most} at most");
    }
    match before.contains("string ") {
        true => format!("{before}a whole number without quotes"),
        false => format!("{before}a whole number"),
    }
}
