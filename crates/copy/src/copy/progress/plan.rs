// SPDX-License-Identifier: MIT OR Apache-2.0
//! Actions of a dry run, one by one and in total.

use crate::protocol::report::{Action, PlannedAction};
use base64::{Engine, prelude::BASE64_STANDARD};
use longhaul_store::path::Printable;
use longhaul_units::Bytes;
use serde::Serialize;
use std::fmt;

/// Totals of the actions that a copy would perform.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Plan {
    create: u64,
    change: u64,
    remove: u64,
    /// Bytes that would be sent.
    bytes: u64,
    /// Why the copy would be refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
}

impl Plan {
    pub(crate) fn add(&mut self, planned: &PlannedAction) {
        let count = match planned.action {
            Action::Create => &mut self.create,
            Action::Change => &mut self.change,
            Action::Remove => &mut self.remove,
        };
        *count += 1;
        self.bytes += planned.bytes;
    }
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::Remove => "remove",
        }
    }
}

impl PlannedAction {
    pub(crate) fn json(&self) -> serde_json::Value {
        let Self {
            action,
            path,
            bytes,
        } = self;
        with_path(
            path,
            serde_json::json!({ "action": action.name(), "bytes": bytes }),
        )
    }
}

/// Adds the path of a file to a JSON object. `path` is the literal name, not escaped for people. If the name is not
/// UTF-8, `path` is an approximation and `path_base64` has the exact bytes.
pub(crate) fn with_path(path: &[u8], mut object: serde_json::Value) -> serde_json::Value {
    object["path"] = String::from_utf8_lossy(path).into();
    if str::from_utf8(path).is_err() {
        object["path_base64"] = BASE64_STANDARD.encode(path).into();
    }
    object
}

impl fmt::Display for PlannedAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action.name(), Printable(&self.path))?;
        match self.bytes {
            0 => Ok(()),
            bytes => write!(f, " ({})", Bytes::new(bytes)),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            create: make,
            change,
            remove,
            bytes,
            refused: _,
        } = self;
        let bytes = Bytes::new(*bytes);
        write!(
            f,
            "{make} would be created, {change} changed, {remove} removed, {bytes} of data sent"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_sums_the_actions() {
        let mut plan = Plan::default();
        let planned = |action, bytes| PlannedAction {
            action,
            path: b"a".to_vec(),
            bytes,
        };
        let all = [
            planned(Action::Create, 2000),
            planned(Action::Change, 0),
            planned(Action::Create, 500),
            planned(Action::Remove, 0),
        ];
        all.iter().for_each(|planned| plan.add(planned));
        assert_eq!(
            plan.to_string(),
            "2 would be created, 1 changed, 1 removed, 2.5 KB of data sent"
        );
        assert_eq!(all[0].to_string(), "create a (2 KB)");
        assert_eq!(all[3].to_string(), "remove a");
    }

    /// Names that are escaped for people would be different names.
    #[test]
    fn json_has_literal_names() {
        let planned = |path: &[u8]| PlannedAction {
            action: Action::Remove,
            path: path.to_vec(),
            bytes: 0,
        };
        let special = planned(b"a\r\"\\b");
        assert_eq!(special.json()["path"], "a\r\"\\b");
        assert!(special.json().get("path_base64").is_none());
        assert_eq!(special.to_string(), "remove a\\r\"\\\\b");
        assert_eq!(planned(b"\xff").json()["path_base64"], "/w==");
    }
}
