// SPDX-License-Identifier: MIT OR Apache-2.0
//! Old names in settings, in files and on the control socket. They work for one version. Each use in a setting or a
//! file prints a warning with the new name.

use super::counters::DirectionState;
use longhaul_command::deprecated::{self, RenamedKey};
use longhaul_netem::{Schedule, coalescer, setting};
use serde::{Serialize, Serializer, ser::Error};
use serde_json::{Map, Value};

/// Old keys of `[[links]]` in a file.
pub(super) const RENAMED_KEYS: [RenamedKey; 15] = [
    renamed("links", "tap", "capture"),
    renamed("links", "tap-snap", "snap-length"),
    renamed("links", "tap-memory", "capture-memory"),
    renamed("links", "order", "allow-reordering"),
    renamed("links", "rule", "aqm"),
    renamed("links", "ack-hold", "max-ack-delay"),
    renamed("links", "ack-pace", "ack-rate"),
    renamed("links.forward", "order", "allow-reordering"),
    renamed("links.forward", "rule", "aqm"),
    renamed("links.forward", "ack-hold", "max-ack-delay"),
    renamed("links.forward", "ack-pace", "ack-rate"),
    renamed("links.backward", "order", "allow-reordering"),
    renamed("links.backward", "rule", "aqm"),
    renamed("links.backward", "ack-hold", "max-ack-delay"),
    renamed("links.backward", "ack-pace", "ack-rate"),
];

const fn renamed(table: &'static str, old: &'static str, new: &'static str) -> RenamedKey {
    RenamedKey { table, old, new }
}

/// Serialises states with the old names of counters, which `longhaul link show` of both versions reads.
pub(super) fn serialize_states<S: Serializer>(
    states: &[DirectionState],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut states = serde_json::to_value(states).map_err(S::Error::custom)?;
    for state in states.as_array_mut().into_iter().flatten() {
        if let Some(counters) = state["counters"].as_object_mut() {
            rename(counters, "capture_dropped", "tap_missed");
            if let Some(drops) = counters["drops"].as_object_mut() {
                rename(drops, "aqm", "queue_rule");
                rename(drops, "ack_filtering", "ack_rule");
            }
        }
    }
    states.serialize(serializer)
}

fn rename(record: &mut Map<String, Value>, new: &str, old: &str) {
    if let Some(value) = record.remove(new) {
        record.insert(old.to_owned(), value);
    }
}

/// Prints a warning for an old key, and for an old value.
pub(super) fn warn_of_setting(key: &str, value: &str) {
    for (old, new) in setting::old_names(key, value) {
        deprecated::warn(&old, &new);
    }
}

/// Prints a warning for an old name in `KEY=VALUE`.
pub(super) fn warn_of_override(text: &str) {
    if let Some((key, value)) = text.split_once('=') {
        warn_of_setting(key.trim(), value);
    }
}

/// Prints a warning for an old name in `TIME: KEY VALUE`.
pub(super) fn warn_of_change(text: &str) {
    if let Ok((_, key, value)) = Schedule::split(text) {
        warn_of_setting(key, value);
    }
}

/// Prints a warning for the old name of a delivery mode.
pub(super) fn warn_of_delivery(text: &str) {
    if let Some((old, new)) = coalescer::old_name(text) {
        deprecated::warn(&format!("delivery {old}"), &format!("delivery {new}"));
    }
}
