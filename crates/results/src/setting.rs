// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings that the cells of a scenario were varied in, and their values in words.

use indexmap::IndexMap;
use longhaul_report::metric::percent;
use serde_json::Value;

/// What the cells of one scenario were varied in, by name: `{"delay": "1ms", "relays": true}`.
pub type Vary = IndexMap<String, Value>;

/// One varied setting in words: `relays` and `no relays` for a switch, `delay 1ms` for others.
pub fn varied(key: &str, value: &Value) -> String {
    match value {
        Value::Bool(true) => key.to_owned(),
        Value::Bool(false) => format!("no {key}"),
        other => format!("{key} {}", setting(key, other)),
    }
}

/// The value of a varied setting for people: a loss in percent, a quantity with its unit apart, all else
/// as it stands.
pub fn setting(key: &str, value: &Value) -> String {
    match value.as_f64() {
        Some(share) if key == "loss" => percent(share),
        Some(_) => plain(value),
        None => quantity(&plain(value)).unwrap_or_else(|| plain(value)),
    }
}

/// `10ms` as `10 ms`, `100mbit` as `100 Mbit/s`; `None` of what has no unit.
fn quantity(text: &str) -> Option<String> {
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

/// A JSON value without the quotes of a string.
pub fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
