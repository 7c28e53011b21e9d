// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit codes: 0 done, 1 failed, 2 usage, 3 not permitted or not supported here. `longhaul lab run` also has 4, not
//! decided, and `longhaul copy` 24, files that vanished.

use crate::logging;
use std::io;

/// A failure whose exit code is not 1. All other errors exit with 1.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Wrong input; nothing was changed. The text names the input and says how to correct it. Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// As [`Refusal::Usage`], about the option with this name, which is without dashes. Exit code 2.
    #[error("{1}")]
    Option(String, String),
    /// A capability that this machine or this user lacks. The text names it. Exit code 3.
    #[error("{0}")]
    Unsupported(String),
    /// A completed run whose hypothesis is neither confirmed nor refuted. The text gives the reason. Exit code 4.
    #[error("{0}")]
    Undecided(String),
    /// A complete copy, but for entries that were removed at the source meanwhile. Exit code 24, as in rsync.
    #[error("{0}")]
    Vanished(String),
}

impl Refusal {
    /// Returns [`Refusal::Usage`] as an error for `?`.
    pub fn usage(reason: impl std::fmt::Display) -> anyhow::Error {
        Self::Usage(reason.to_string()).into()
    }

    /// Returns [`Refusal::Option`] as an error for `?`.
    pub fn option(name: impl Into<String>, reason: impl std::fmt::Display) -> anyhow::Error {
        Self::Option(name.into(), reason.to_string()).into()
    }

    /// Puts `prefix` before the text of `error`, if it is a refusal.
    pub fn with_prefix(mut error: anyhow::Error, prefix: &str) -> anyhow::Error {
        if let Some(
            Self::Usage(text)
            | Self::Option(_, text)
            | Self::Unsupported(text)
            | Self::Undecided(text)
            | Self::Vanished(text),
        ) = error.downcast_mut()
        {
            text.insert_str(0, prefix);
        }
        error
    }

    /// Returns [`Refusal::Unsupported`] as an error for `?`.
    pub fn unsupported(reason: impl std::fmt::Display) -> anyhow::Error {
        Self::Unsupported(reason.to_string()).into()
    }

    /// Returns [`Refusal::Undecided`] as an error for `?`.
    pub fn undecided(reason: impl std::fmt::Display) -> anyhow::Error {
        Self::Undecided(reason.to_string()).into()
    }
}

/// Returns the error of a command that could not bind a port. The message begins with `context`, which names the port.
/// A low port that the user may not bind gives [`Refusal::Unsupported`].
pub fn bind_error(context: String, error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Refusal::unsupported(format!("{context}: {LOW_PORT_REQUIREMENT}"))
        }
        _ => anyhow::Error::new(error).context(context),
    }
}

/// The right that a low port needs, for messages.
pub const LOW_PORT_REQUIREMENT: &str =
    "ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE";

/// The exit code of [`Refusal::Undecided`].
pub const UNDECIDED: u8 = 4;

/// The exit code of [`Refusal::Vanished`].
pub const VANISHED: u8 = 24;

/// Prints the error of a command, if it failed, as one line on standard error. Returns the exit code.
pub fn report_outcome(outcome: &anyhow::Result<()>) -> u8 {
    let Err(error) = outcome else {
        return 0;
    };
    crate::errln!("{}longhaul: {error:#}", logging::error_priority());
    match error.downcast_ref::<Refusal>() {
        Some(Refusal::Usage(_) | Refusal::Option(..)) => 2,
        Some(Refusal::Unsupported(_)) => 3,
        Some(Refusal::Undecided(_)) => UNDECIDED,
        Some(Refusal::Vanished(_)) => VANISHED,
        None => 1,
    }
}

/// Integer types, as serde calls them, and the largest value of each.
const INTEGER_TYPES: [(&str, u64); 5] = [
    ("u8", u8::MAX as u64),
    ("u16", u16::MAX as u64),
    ("u32", u32::MAX as u64),
    ("u64", u64::MAX),
    ("usize", u64::MAX),
];

/// Replaces the name of an integer type in serde's message about a bad value. The replacement is the bound that the
/// value exceeds, or the expected form. A key may allow fewer values than its type; the check of that key reports this.
///
/// ```
/// use longhaul_command::exit::explain_integer_error;
///
/// assert_eq!(explain_integer_error("integer `70000`, expected u16"), "integer `70000`, expected 65535 at most");
/// assert_eq!(explain_integer_error("integer `-1`, expected u16"), "integer `-1`, expected 0 or more");
/// assert_eq!(explain_integer_error("string \"8\", expected u16"), "string \"8\", expected a whole number without quotes");
/// ```
pub fn explain_integer_error(message: &str) -> String {
    let strip_type = |(name, max): (&str, u64)| {
        let before = message.strip_suffix(name)?;
        before.ends_with("expected ").then_some((before, max))
    };
    let Some((before, max)) = INTEGER_TYPES.into_iter().find_map(strip_type) else {
        return message.to_owned();
    };
    if before.contains("integer `-") {
        return format!("{before}0 or more");
    }
    if before.contains("integer `") {
        return format!("{before}{max} at most");
    }
    if before.contains("string ") {
        format!("{before}a whole number without quotes")
    } else {
        format!("{before}a whole number")
    }
}
