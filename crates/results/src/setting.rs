// SPDX-License-Identifier: MIT OR Apache-2.0
//! Varied parameters of a scenario, and the text of their values.

use indexmap::IndexMap;
use longhaul_report::metric::format_percent;
use serde_json::Value;

/// Values of the varied parameters by name: `{"delay": "1ms", "relays": true}`.
pub type Parameters = IndexMap<String, Value>;

/// Describes a varied parameter: `relays` or `no relays` for a switch, `delay 1ms` for others.
pub fn describe_parameter(key: &str, value: &Value) -> String {
    match value {
        Value::Bool(true) => key.to_owned(),
        Value::Bool(false) => format!("no {key}"),
        other => format!("{key} {}", format_value(key, other)),
    }
}

/// Formats the value of a varied parameter: a loss in percent, a quantity with a space before its unit, other values
/// unchanged.
pub fn format_value(key: &str, value: &Value) -> String {
    match value.as_f64() {
        Some(share) if key == "loss" => format_percent(share),
        Some(_) => json_text(value),
        None => format_quantity(&json_text(value)).unwrap_or_else(|| json_text(value)),
    }
}

/// Formats a quantity: `10ms` as `10 ms`, `100mbit` as `100 Mbit/s`. Returns `None` for values without a unit.
fn format_quantity(text: &str) -> Option<String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = text.strip_suffix(unit)?.trim_end();
    if unit.trim().is_empty() || number.is_empty() {
        return None;
    }
    let time = || {
        text.parse()
            .ok()
            .map(|_: longhaul_units::Time| format!("{number} {}", unit.trim()))
    };
    let rate = || {
        text.parse()
            .ok()
            .map(|rate: longhaul_units::BitRate| rate.to_string())
    };
    let bytes = || {
        text.parse()
            .ok()
            .map(|size: longhaul_units::Bytes| size.to_string())
    };
    time().or_else(bytes).or_else(rate)
}

/// Returns a JSON value without the quotes of a string.
pub fn json_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
