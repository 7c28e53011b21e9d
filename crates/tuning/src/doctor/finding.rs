// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finding of a check: severity, place and value, reason, and fix.

use serde::Serialize;
use std::fmt::Display;

/// Severity of a finding for the given path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Correct value.
    Ok,
    /// Costs performance, at least under losses or load; the path can still be filled.
    Note,
    /// Prevents the path from being filled.
    Limit,
}

/// Fix of a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fix {
    /// Kernel setting, which `--fix` applies.
    Sysctl { key: String, value: String },
    /// Command for the user to run.
    Command(String),
    /// Advice that is not a single command.
    Advice(String),
}

impl Fix {
    /// Returns the command for a shell, or the advice.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Sysctl { key, value } => format!("sysctl -w {key}='{value}'"),
            Self::Command(text) | Self::Advice(text) => text.clone(),
        }
    }
}

/// Finding of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// Name of a setting, or an interface and its property.
    pub(super) setting: String,
    /// Value found.
    pub(super) value: String,
    /// Reason why it matters for the path, with numbers; empty if the value is correct.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<Fix>,
}

impl Finding {
    /// Creates a finding about a correct value.
    pub(super) fn ok(setting: impl Into<String>, value: impl Display) -> Self {
        Self::new(Severity::Ok, setting, value, String::new())
    }

    /// Creates a finding about a value that costs performance.
    pub(super) fn note(
        setting: impl Into<String>,
        value: impl Display,
        reason: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Note, setting, value, reason.into())
    }

    /// Creates a finding about a value that limits the path.
    pub(super) fn limit(
        setting: impl Into<String>,
        value: impl Display,
        reason: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Limit, setting, value, reason.into())
    }

    pub(super) fn new(
        severity: Severity,
        setting: impl Into<String>,
        value: impl Display,
        reason: String,
    ) -> Self {
        Self {
            severity,
            setting: setting.into(),
            value: value.to_string(),
            reason,
            fix: None,
        }
    }

    /// Adds a fix that changes the setting to `value`.
    pub(super) fn set(mut self, value: impl Display) -> Self {
        self.fix = Some(Fix::Sysctl {
            key: self.setting.clone(),
            value: value.to_string(),
        });
        self
    }

    /// Adds a fix that is a command.
    pub(super) fn run(mut self, command: impl Into<String>) -> Self {
        self.fix = Some(Fix::Command(command.into()));
        self
    }

    /// Adds advice instead of a command.
    pub(super) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.fix = Some(Fix::Advice(advice.into()));
        self
    }
}
