// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a varied value is the one that a person names: `loss=1e-3` means a cell with `loss = 0.001`, and
//! `delay=1000us` one with `delay = "1ms"`.

use super::parameters::plain;
use longhaul_units::{BitRate, Bytes, Ratio, Time};
use std::str::FromStr;
use toml::Value;

/// Whether `text` names `value`: the same text, number or quantity.
pub(crate) fn names(text: &str, value: &Value) -> bool {
    let own = plain(value);
    // Bare numbers are not sizes: 0.00001 would be as many bytes as 0.
    own == text || same_number(&own, text).unwrap_or_else(|| same_quantity(&own, text))
}

/// Whether `text` names `value`, alone or among others: `a|b`.
pub(crate) fn names_one_of(text: &str, value: &Value) -> bool {
    names(text, value) || text.split('|').any(|one| names(one.trim(), value))
}

/// `None` unless both are numbers.
fn same_number(one: &str, other: &str) -> Option<bool> {
    let number = |text: &str| text.parse::<f64>().ok();
    Some(number(one)? == number(other)?)
}

fn same_quantity(one: &str, other: &str) -> bool {
    same::<Time>(one, other)
        || same::<Bytes>(one, other)
        || same::<BitRate>(one, other)
        || same_share(one, other)
}

fn same<T: FromStr + PartialEq>(one: &str, other: &str) -> bool {
    matches!((one.parse::<T>(), other.parse::<T>()), (Ok(one), Ok(other)) if one == other)
}

/// Percent come to shares with an error of rounding: 0.7 % is 0.006999….
fn same_share(one: &str, other: &str) -> bool {
    let share = |text: &str| text.parse().map(Ratio::get);
    matches!((share(one), share(other)), (Ok(one), Ok(other)) if (one - other).abs() < 1e-12)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Value {
        Value::String(value.to_owned())
    }

    #[test]
    fn numbers_and_quantities_are_compared_by_value() {
        assert!(names("1e-3", &Value::Float(0.001)));
        assert!(names("0.0", &Value::Integer(0)));
        assert!(names("0.7%", &Value::Float(0.007)));
        assert!(names("1000us", &text("1ms")));
        assert!(names("1gbit", &text("1000mbit")));
        assert!(names("true", &Value::Boolean(true)));
        assert!(!names("1", &Value::Boolean(true)));
        assert!(!names("1ms", &text("10ms")));
        assert!(!names("1GB", &text("1gbit")));
        assert!(!names("", &Value::Integer(0)));
        assert!(!names("0.0", &Value::Float(0.00001)));
        assert!(names("0.00001", &Value::Float(1e-5)));
    }

    #[test]
    fn one_of_several_is_enough() {
        assert!(names_one_of("0|0.001", &Value::Float(0.001)));
        assert!(names_one_of("reno | cubic", &text("cubic")));
        assert!(names_one_of("a|b", &text("a|b")));
        assert!(!names_one_of("0|0.1", &Value::Float(0.001)));
    }
}
