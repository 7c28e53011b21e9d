// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a check says: how bad, what and where, why it matters, and what to do.

use serde::Serialize;
use std::fmt::Display;

/// How much a finding matters for the asked path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// As it should be.
    Ok,
    /// Costs something, or will on a bad day; the path can be filled all the same.
    Note,
    /// The asked path can't be had.
    Limit,
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fix {
    /// A kernel setting, which `--fix` applies.
    Sysctl { key: String, value: String },
    /// A command for a person to run.
    Command(String),
    /// Nothing that one command does.
    Advice(String),
}

impl Fix {
    /// As text for a shell, or for a reader.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Sysctl { key, value } => format!("sysctl -w {key}='{value}'"),
            Self::Command(text) | Self::Advice(text) => text.clone(),
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// A setting's name, or an interface and what of it.
    pub(super) place: String,
    /// The value there.
    pub(super) found: String,
    /// Why it matters for the asked path, with numbers; empty if it is as it should be.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<Fix>,
}

impl Finding {
    /// Something that is as it should be.
    pub(super) fn ok(place: impl Into<String>, found: impl Display) -> Self {
        Self::new(Severity::Ok, place, found, String::new())
    }

    /// Something that costs.
    pub(super) fn note(
        place: impl Into<String>,
        found: impl Display,
        why: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Note, place, found, why.into())
    }

    /// Something that limits.
    pub(super) fn limit(
        place: impl Into<String>,
        found: impl Display,
        why: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Limit, place, found, why.into())
    }

    pub(super) fn new(
        severity: Severity,
        place: impl Into<String>,
        found: impl Display,
        why: String,
    ) -> Self {
        Self {
            severity,
            place: place.into(),
            found: found.to_string(),
            why,
            fix: None,
        }
    }

    /// Fixed by giving the setting that it is about another value.
    pub(super) fn set(mut self, value: impl Display) -> Self {
        self.fix = Some(Fix::Sysctl {
            key: self.place.clone(),
            value: value.to_string(),
        });
        self
    }

    /// Fixed by a command.
    pub(super) fn run(mut self, command: impl Into<String>) -> Self {
        self.fix = Some(Fix::Command(command.into()));
        self
    }

    /// Not fixed by a command, but there is something to do.
    pub(super) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.fix = Some(Fix::Advice(advice.into()));
        self
    }
}
