// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a dry run says would be done, one by one and in total.

use super::order::{Action, Planned};
use serde::Serialize;
use std::fmt;
use units::Bytes;

/// How much would be done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Plan {
    make: u64,
    change: u64,
    remove: u64,
    /// Data that would be sent.
    bytes: u64,
}

impl Plan {
    pub(super) fn add(&mut self, planned: &Planned) {
        let count = match planned.action {
            Action::Make => &mut self.make,
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
            Self::Make => "make",
            Self::Change => "change",
            Self::Remove => "remove",
        }
    }
}

impl Planned {
    pub(super) fn json(&self) -> serde_json::Value {
        let Self {
            action,
            path,
            bytes,
        } = self;
        serde_json::json!({ "would": action.name(), "path": path, "bytes": bytes })
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action.name(), self.path)?;
        match self.bytes {
            0 => Ok(()),
            bytes => write!(f, " ({})", Bytes::new(bytes)),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            make,
            change,
            remove,
            bytes,
        } = self;
        let bytes = Bytes::new(*bytes);
        write!(
            f,
            "{make} would be made, {change} changed, {remove} removed, {bytes} of data sent"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_the_sum_of_what_was_said() {
        let mut plan = Plan::default();
        let planned = |action, bytes| Planned {
            action,
            path: "a".to_owned(),
            bytes,
        };
        let all = [
            planned(Action::Make, 2000),
            planned(Action::Change, 0),
            planned(Action::Make, 500),
            planned(Action::Remove, 0),
        ];
        all.iter().for_each(|planned| plan.add(planned));
        assert_eq!(
            plan.to_string(),
            "2 would be made, 1 changed, 1 removed, 2.5 KB of data sent"
        );
        assert_eq!(all[0].to_string(), "make a (2 KB)");
        assert_eq!(all[3].to_string(), "remove a");
    }
}
